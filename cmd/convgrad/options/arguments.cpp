#include "options/arguments.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <iterator>

namespace convgrad::cli {
namespace {

constexpr const char* kBetween = " ,[]()\t";  // the numbers of a list

std::int64_t parse_number(const std::string& flag, const std::string& word) {
  std::int64_t value = 0;
  const char* const end = word.data() + word.size();
  const auto [rest, status] = std::from_chars(word.data(), end, value);
  if (status == std::errc::result_out_of_range) {
    bad_input(flag, ": ", word, " does not fit in 64 bits");
  }
  if (status != std::errc{} || rest != end) {
    misuse(
        flag, ": '", word, "' is not a whole number",
        word.find_first_of(";:/|") == word.npos ? Hint() : Hint("put commas between numbers: 3,3"));
  }
  return value;
}

// Returns "3" and "3" for "3x3"; a word that is not made of numbers stays as it is.
Words factors(const std::string& word) {
  if (word.starts_with("0x") || word.starts_with("0X")) return {word};  // hexadecimal, and no list
  Words numbers = {""};
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool is_between = (word[i] == 'x' || word[i] == 'X') && i > 0 && i + 1 < word.size() &&
                            is_digit(word[i - 1]) && is_digit(word[i + 1]);
    if (is_between) {
      numbers.emplace_back();
    } else {
      numbers.back() += word[i];
    }
  }
  return numbers;
}

// Reads numbers, or pairs of them in brackets, with a comma or blanks between any two.
class ListReader {
 public:
  explicit ListReader(std::string_view text) : text_(text) {}

  // Appends the numbers up to the bracket `close` (0: the end). Returns false for anything else.
  bool read(Words& numbers, char close = '\0', int depth = 0) {
    int lists = 0;
    bool any_number = false, pairs = true, takes_comma = false;
    while (is_inside()) {
      const char c = text_[at_];
      if (c == ',' && !takes_comma) return false;
      takes_comma = c != ',';
      if (c == ',') {
        ++at_;
      } else if (c == '[' || c == '(') {
        const std::size_t before = numbers.size();
        if (!read_brackets(numbers, depth)) return false;
        ++lists;
        pairs = pairs && numbers.size() == before + 2;
      } else {
        read_number(numbers);
        any_number = true;
      }
    }
    if ((at_ < text_.size() ? text_[at_] : '\0') != close) return false;
    const bool whole = depth == 0 && lists == 1;  // brackets around all of it
    return lists == 0 || (!any_number && (pairs || whole));
  }

 private:
  // Skips blanks. Returns false at the end, or at what closes brackets.
  bool is_inside() {
    at_ = std::min(text_.find_first_not_of(" \t", at_), text_.size());
    return at_ < text_.size() && text_[at_] != ']' && text_[at_] != ')';
  }

  bool read_brackets(Words& numbers, int depth) {
    constexpr int kMostBrackets = 2;
    const char close = text_[at_++] == '[' ? ']' : ')';
    if (depth == kMostBrackets || !read(numbers, close, depth + 1)) return false;
    ++at_;
    return true;
  }

  void read_number(Words& numbers) {
    const std::size_t end = std::min(text_.find_first_of(kBetween, at_), text_.size());
    std::ranges::move(factors(std::string(text_.substr(at_, end - at_))),
                      std::back_inserter(numbers));
    at_ = end;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool looks_like_a_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && !is_digit(word[1]);
}

std::string last_value(const std::vector<std::string>& words, const std::string& option,
                       const std::string& word) {
  std::string value;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(option + "=")) value = words[i].substr(option.size() + 1);
    if (words[i] != option) continue;
    value = word.empty() && i + 1 < words.size() ? words[i + 1] : word;
  }
  return value;
}

std::vector<std::int64_t> parse_numbers(const std::string& flag, const Words& words) {
  const std::string text = joined(words);
  if (!words.empty() && text.find_first_not_of(kBetween) == text.npos) {
    misuse(flag, ": empty, expected whole numbers");
  }
  Words numbers;
  if (!ListReader(text).read(numbers)) {
    misuse(flag, ": '", text,
           "' is no list, expected whole numbers such as 3,3 or [3,3], or pairs of them, ",
           "[[1,1],[1,1]]");
  }
  std::vector<std::int64_t> result;
  for (const std::string& number : numbers) result.push_back(parse_number(flag, number));
  return result;
}

void read_padding(const std::string& flag, const std::string& word, WgradAttributes& attributes) {
  const std::size_t first = word.find_first_not_of(kBetween);
  if (first == word.npos || (!is_digit(word[first]) && word[first] != '-')) {
    attributes.padding = word;
    return;
  }
  if (!attributes.explicit_paddings.empty()) {
    misuse("--explicit-paddings: given with numbers in ", flag, ", expected one of them");
  }
  attributes.explicit_paddings = parse_numbers(flag, {word});
  attributes.explicit_paddings_name = flag;
  // A list of lists is one of pairs.
  attributes.explicit_one_for_both =
      std::ranges::count(word, '[') + std::ranges::count(word, '(') < 2;
}

std::optional<std::pair<std::int64_t, std::int64_t>> parse_share(std::string_view text) {
  constexpr std::int64_t kMostParts = 1000000;
  const std::size_t at = text.find('/');
  if (at == text.npos) return std::nullopt;
  const auto part = parse_whole(text.substr(0, at)), parts = parse_whole(text.substr(at + 1));
  if (!part || !parts || *part < 1 || *part > *parts || *parts > kMostParts) return std::nullopt;
  return std::pair(*part, *parts);
}

bool is_file_name(const Words& filter_sizes) {
  if (filter_sizes.size() != 1) return false;
  const std::string& word = filter_sizes[0];
  const auto is_numeric = [](const std::string& factor) {
    return std::ranges::none_of(factor,
                                [](unsigned char c) { return c == '/' || std::isalpha(c); });
  };
  if (std::ranges::all_of(factors(word), is_numeric)) return false;
  const bool is_list = word.find_first_of(kBetween) != word.npos;
  return !is_list || word.find(".npy") != word.npos || word.find(':') != word.npos;
}

std::string with_hyphens(std::string argument) {
  if (!argument.starts_with("--")) return argument;
  std::replace(argument.begin(), std::ranges::find(argument, '='), '_', '-');
  return argument;
}

std::string joined(const Words& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

Words words_of_line(const std::string& line) {
  TextReader text(line);
  return Words(std::istream_iterator<std::string>(text), {});
}

Words pieces_of(const std::string& text, char between) {
  Words words;
  TextReader rest(text);
  for (std::string word; std::getline(rest, word, between);) words.push_back(word);
  return words;
}

std::string padded(std::string_view text, int width) {
  const auto columns = static_cast<std::size_t>(std::abs(width));
  const std::string blanks(columns - std::min(columns, text.size()), ' ');
  return width < 0 ? cat(blanks, text) : cat(text, blanks);
}

std::string shell_quoted(const std::string& word) {
  const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace convgrad::cli
