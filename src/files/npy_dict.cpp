// npy_dict.cpp - reads the dictionary in a .npy header, as programs write it. What Python would
// also take for it (escapes, comments, hexadecimal numbers, sums of strings) is refused.

#include <algorithm>
#include <charconv>
#include <set>

#include "base/messages.hpp"
#include "files/npy_parse.hpp"

namespace convgrad::npy {
namespace {

constexpr std::size_t kMaxRank = 64;  // numpy 2's limit
constexpr std::string_view kTuple = "a tuple such as (3,) or (2, 3)";

class DictParser {
 public:
  DictParser(std::string_view text, NpyHeader& header, std::string_view name)
      : text_(text), header_(header), name_(name) {}

  void parse() {
    if (!accept("{")) fail("'{'");
    while (!accept("}")) {
      read_entry();
      if (!accept(",") && !next_is("}")) fail("',' or '}'");
    }
    // numpy pads the dictionary with spaces and a newline, which this skips.
    next_is("");
    if (!rest().empty()) fail("nothing after the dictionary");
    for (const std::string_view key : {"descr", "fortran_order", "shape"}) {
      if (!seen_.contains(key)) refuse_key("no key", key);
    }
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }

  [[noreturn]] void fail(std::string_view expected) const {
    std::string found = "it ends too early";
    if (!rest().empty()) found = cat("found \"", printable(rest(), 30), "\"");
    refuse(name_, "damaged header: ", found, " at character ", at_, ", expected ", expected);
  }

  [[noreturn]] void refuse_key(std::string_view what, std::string_view key) const {
    refuse(name_, "damaged header: ", what, " '", printable(key),
           "', expected the keys descr, fortran_order and shape");
  }

  bool next_is(std::string_view word) {
    at_ = std::min(text_.find_first_not_of(" \t\n\r\f", at_), text_.size());
    return rest().starts_with(word);
  }

  bool accept(std::string_view word) {
    const bool found = next_is(word);
    if (found) at_ += word.size();
    return found;
  }

  void read_entry() {
    const std::string_view key = string();
    if (!seen_.insert(key).second) refuse_key("two keys", key);
    if (!accept(":")) fail("':'");
    if (key == "descr") {
      // A structured dtype is a list in Python; R stands for it here.
      header_.kind = next_is("[") ? 'R' : 'f';
      header_.descr = header_.kind == 'R' ? rest() : string();
      if (header_.kind == 'R') refuse_dtype(header_, name_);
    } else if (key == "fortran_order") {
      header_.fortran_order = accept("True");
      if (!header_.fortran_order && !accept("False")) fail("True or False");
    } else if (key == "shape") {
      read_shape();
    } else {
      refuse_key("unknown key", key);
    }
  }

  std::string_view string() {
    const bool quoted = next_is("'") || next_is("\"");
    const std::size_t end = quoted ? text_.find(text_[at_], at_ + 1) : text_.npos;
    if (end == text_.npos) fail("a string in quotes");
    const std::string_view result = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return result;
  }

  void read_shape() {
    if (!accept("(")) fail(kTuple);
    while (!accept(")")) {
      if (header_.shape.size() == kMaxRank) fail(cat("at most ", kMaxRank, " axes"));
      header_.shape.push_back(extent());
      // (3) is a number in Python, so one axis needs its comma.
      if (!accept(",") && (header_.shape.size() == 1 || !next_is(")"))) fail(kTuple);
    }
  }

  // Leading zeros make a number octal in Python 2, and none in Python 3. Python 2 writes 2L.
  std::int64_t extent() {
    const char* const begin = rest().data();
    std::int64_t value = -1;
    const char* const end = std::from_chars(begin, begin + rest().size(), value).ptr;
    if (value < 0 || (end > begin + 1 && (*begin == '0' || *begin == '-'))) {
      fail("integers from 0 to 2^63 - 1");
    }
    at_ += static_cast<std::size_t>(end - begin);
    if (header_.major < 3 && rest().starts_with('L')) ++at_;
    return value;
  }

  std::string_view text_;
  NpyHeader& header_;
  std::string_view name_;
  std::size_t at_ = 0;
  std::set<std::string_view> seen_;
};

}  // namespace

void parse_dict(std::string_view text, NpyHeader& header, std::string_view name) {
  DictParser(text, header, name).parse();
}

}  // namespace convgrad::npy
