// npy_literal.cpp - see npy_literal.hpp. A parser by recursive descent over the grammar of Python's
// literals (The Python Language Reference, 2.4 and 6.2).
#include "files/npy_literal.hpp"

#include <utility>

#include "convgrad/error.hpp"
#include "files/npy_number.hpp"

namespace convgrad::npy {
namespace {

class LiteralParser {
 public:
  LiteralParser(std::string_view source, std::string_view name, bool python2)
      : source_(source), name_(name), python2_(python2) {}

  Literal parse() {
    Literal result = value(0);
    skip_space();
    if (position_ != source_.size()) fail("something follows the dictionary");
    return result;
  }

 private:
  static constexpr int kMaxDepth = 64;

  [[noreturn]] void fail(std::string_view what) const {
    std::string where = " (its end)";
    if (position_ < source_.size()) {
      where = cat(", before \"", printable(source_.substr(position_), 20), "\"");
    }
    throw Error(ErrorKind::input, name_, ": damaged header: ", what, " at character ", position_,
                where, "; expected a Python dictionary as numpy.save writes it");
  }

  char peek(std::size_t ahead = 0) const {
    return position_ + ahead < source_.size() ? source_[position_ + ahead] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;  // never looked for: the \0 behind the end
    ++position_;
    return true;
  }
  static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
  }
  static bool is_newline(char c) { return c == '\n' || c == '\r'; }

  void skip_space() {
    for (; position_ < source_.size(); ++position_) {
      const char c = peek();
      if (c == '#') {
        while (position_ + 1 < source_.size() && !is_newline(peek(1))) ++position_;
      } else if (c == '\\' && is_newline(peek(1))) {
        ++position_;
      } else if (c != ' ' && c != '\t' && c != '\f' && !is_newline(c)) {
        return;
      }
    }
  }

  Literal value(int depth) {
    if (depth > kMaxDepth) fail("brackets are nested too deeply");
    skip_space();
    const std::size_t begin = position_;
    Literal result = unplaced_value(depth);
    result.begin = begin;
    result.end = position_;
    return result;
  }

  Literal unplaced_value(int depth) {
    const char c = peek();
    if (accept('(')) return parenthesised(depth);
    if (accept('[')) return sequence(']', Literal::Type::list, {}, depth);
    if (accept('{')) return dict_or_set(depth);
    if (c == '+' || c == '-') return signed_number(depth);
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number();
    if (c == '\'' || c == '"' || is_letter(c)) return string_or_name();
    fail(position_ < source_.size() ? "unexpected character" : "it ends too early");
  }

  Literal parenthesised(int depth) {
    skip_space();
    if (accept(')')) return {.type = Literal::Type::tuple};
    Literal first = value(depth + 1);
    skip_space();
    if (accept(')')) return first;  // (3) is 3
    if (!accept(',')) fail("expected ',' or ')'");
    std::vector<Literal> items;
    items.push_back(std::move(first));
    return sequence(')', Literal::Type::tuple, std::move(items), depth);
  }

  // The items up to the closing bracket, a trailing comma allowed.
  Literal sequence(char close, Literal::Type type, std::vector<Literal> items, int depth) {
    Literal result{.type = type, .items = std::move(items)};
    for (;;) {
      skip_space();
      if (accept(close)) return result;
      result.items.push_back(value(depth + 1));
      skip_space();
      if (accept(close)) return result;
      if (!accept(',')) fail(cat("expected ',' or '", close, "'"));
    }
  }

  Literal dict_or_set(int depth) {
    Literal result{.type = Literal::Type::dict};
    skip_space();
    if (accept('}')) return result;
    for (bool first = true;; first = false) {
      result.items.push_back(value(depth + 1));
      skip_space();
      if (first && peek() != ':') result.type = Literal::Type::set;
      if (result.type == Literal::Type::dict) {
        if (!accept(':')) fail("expected ':'");
        result.items.push_back(value(depth + 1));
        skip_space();
      }
      if (accept('}')) return result;
      if (!accept(',')) fail("expected ',' or '}'");
      skip_space();
      if (accept('}')) return result;
    }
  }

  Literal signed_number(int depth) {
    const bool minus = accept('-');
    if (!minus) accept('+');
    Literal operand = value(depth + 1);
    const bool numeric =
        operand.type == Literal::Type::integer || operand.type == Literal::Type::number;
    if (!numeric || operand.is_signed) fail("a sign without a number");
    operand.is_signed = true;
    if (minus) operand.integer = -operand.integer;
    return operand;
  }

  Literal number() {
    const std::size_t begin = position_;
    const bool hexadecimal = peek() == '0' && (peek(1) == 'x' || peek(1) == 'X');
    while (is_digit(peek()) || is_letter(peek()) || peek() == '.') {
      const bool exponent = !hexadecimal && (peek() == 'e' || peek() == 'E');
      ++position_;
      if (exponent && (peek() == '+' || peek() == '-')) ++position_;
    }
    std::string_view token = source_.substr(begin, position_ - begin);
    if (token.back() == 'L' || token.back() == 'l') {
      if (!python2_) fail("the suffix L is not legal in format 3.0");
      token.remove_suffix(1);
    }
    Literal result{.type = Literal::Type::integer};
    if (!parse_integer(token, result)) {
      result.type = Literal::Type::number;
      if (token.size() != position_ - begin || !is_float(token)) fail("expected a number");
    }
    return result;
  }

  // The length of a string prefix (u r b rb br) if a quote follows it, else npos.
  std::size_t string_prefix() const {
    std::string prefix;
    while (prefix.size() < 3 && is_letter(peek(prefix.size()))) {
      prefix += static_cast<char>(peek(prefix.size()) | 0x20);
    }
    const char quote = peek(prefix.size());
    const bool legal = prefix.empty() || prefix == "u" || prefix == "r" || prefix == "b" ||
                       prefix == "rb" || prefix == "br";
    return legal && (quote == '\'' || quote == '"') ? prefix.size() : std::string::npos;
  }

  Literal string_or_name() {
    if (string_prefix() != std::string::npos) return strings();
    std::size_t length = 0;
    while (is_letter(peek(length)) || is_digit(peek(length))) ++length;
    const std::string_view word = source_.substr(position_, length);
    const bool truth = word == "True";
    if (!truth && word != "False" && word != "None") fail("unknown word");
    position_ += length;
    if (word == "None") return {};
    return {.type = Literal::Type::boolean, .integer = truth ? 1 : 0};
  }

  // One string or several that stand side by side.
  Literal strings() {
    Literal result;
    std::size_t end = position_;
    for (bool first = true; string_prefix() != std::string::npos; first = false) {
      const auto type = string(result.text);
      if (!first && type != result.type) fail("bytes and text side by side");
      result.type = type;
      end = position_;
      skip_space();
    }
    position_ = end;
    return result;
  }

  Literal::Type string(std::string& text) {
    bool raw = false;
    bool bytes = false;
    for (std::size_t letters = string_prefix(); letters > 0; --letters, ++position_) {
      raw |= (peek() | 0x20) == 'r';
      bytes |= (peek() | 0x20) == 'b';
    }
    const char quote = peek();
    const bool triple = peek(1) == quote && peek(2) == quote;
    position_ += triple ? 3 : 1;
    for (;;) {
      if (position_ >= source_.size()) fail("a string is not closed");
      if (peek() == quote && (!triple || (peek(1) == quote && peek(2) == quote))) {
        position_ += triple ? 3 : 1;
        return bytes ? Literal::Type::bytes : Literal::Type::string;
      }
      if (!triple && is_newline(peek())) fail("a string is not closed on its line");
      if (accept('\\')) {
        escape(raw, bytes, text);
      } else {
        text += source_[position_++];
      }
    }
  }

  // What follows a backslash.
  void escape(bool raw, bool bytes, std::string& text) {
    static constexpr std::string_view kLetters = "\\'\"abfnrtv";
    static constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    if (position_ >= source_.size()) fail("a string is not closed");
    const char c = source_[position_++];
    // A raw string keeps the backslash, as does an unknown escape (at the end of the chain).
    if (raw) {  // NOLINT(bugprone-branch-clone)
      text += {'\\', c};
    } else if (const auto at = kLetters.find(c); at != std::string_view::npos) {
      text += kValues[at];
    } else if (c == 'x') {
      append_code(code(2), text);
    } else if ((c == 'u' || c == 'U') && !bytes) {
      append_code(code(c == 'u' ? 4 : 8), text);
    } else if (c >= '0' && c <= '7') {
      append_code(octal(c), text);
    } else if (c == 'N' && !bytes) {
      fail("\\N{...} is not understood here");
    } else if (c == '\r') {
      accept('\n');
    } else if (c != '\n') {
      text += {'\\', c};
    }
  }

  std::uint32_t code(int digits) {
    std::uint32_t result = 0;
    for (; digits > 0; --digits, ++position_) {
      const int digit = digit_value(peek());
      if (digit >= 16) fail("an escape sequence is too short");
      result = result * 16 + static_cast<std::uint32_t>(digit);
    }
    if (result > 0x10ffff) fail("an escape sequence is no character");
    return result;
  }

  std::uint32_t octal(char first) {
    auto result = static_cast<std::uint32_t>(first - '0');
    for (int more = 0; more < 2 && peek() >= '0' && peek() <= '7'; ++more) {
      result = result * 8 + static_cast<std::uint32_t>(source_[position_++] - '0');
    }
    return result;
  }

  static void append_code(std::uint32_t code, std::string& text) {
    const auto append = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
    if (code < 0x80) return append(code);
    if (code < 0x800) {
      append(0xc0 | (code >> 6));
    } else if (code < 0x10000) {
      append(0xe0 | (code >> 12));
      append(0x80 | ((code >> 6) & 0x3f));
    } else {
      append(0xf0 | (code >> 18));
      append(0x80 | ((code >> 12) & 0x3f));
      append(0x80 | ((code >> 6) & 0x3f));
    }
    append(0x80 | (code & 0x3f));
  }

  std::string_view source_;
  std::string_view name_;
  bool python2_;
  std::size_t position_ = 0;
};

}  // namespace

Literal parse_literal(std::string_view source, std::string_view name, bool python2) {
  return LiteralParser(source, name, python2).parse();
}

std::string printable(std::string_view text, std::size_t limit) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else {
      result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
    if (result.size() >= limit) return result + "...";
  }
  return result;
}

}  // namespace convgrad::npy
