// npy_number.cpp - see npy_number.hpp.
#include "files/npy_number.hpp"

#include <cstddef>

#include "base/checked.hpp"

namespace convgrad::npy {
namespace {

void add_digit(int base, int digit, Literal& result) {
  const auto scaled = checked_multiply(result.integer, base);
  const auto sum = scaled ? checked_add(*scaled, digit) : scaled;
  if (sum) {
    result.integer = *sum;
  } else {
    result.fits = false;
  }
}

// At least one digit, no underscore before the first or behind the last.
bool take_digits(std::string_view token, std::size_t& at) {
  const std::size_t begin = at;
  while (at < token.size() && (is_digit(token[at]) || (token[at] == '_' && at > begin))) ++at;
  return at > begin && token[at - 1] != '_';
}

}  // namespace

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  const char letter = static_cast<char>(c | 0x20);
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : 99;
}

bool parse_integer(std::string_view token, Literal& result) {
  int base = 10;
  if (token.size() > 2 && token[0] == '0') {
    const char letter = static_cast<char>(token[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
  }
  if (base != 10) token.remove_prefix(token[2] == '_' ? 3 : 2);
  bool after_digit = false;
  for (const char c : token) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    const int digit = digit_value(c);
    if (digit >= base) return false;
    add_digit(base, digit, result);
    after_digit = true;
  }
  const bool leading_zero = base == 10 && token[0] == '0';
  return after_digit && !(leading_zero && result.integer != 0);
}

bool is_float(std::string_view token) {
  std::size_t at = 0;
  bool digits = take_digits(token, at);
  const std::size_t whole = at;
  if (at < token.size() && token[at] == '.') digits |= take_digits(token, ++at);
  if (!digits) return false;
  if (at < token.size() && (token[at] | 0x20) == 'e') {
    ++at;
    if (at < token.size() && (token[at] == '+' || token[at] == '-')) ++at;
    if (!take_digits(token, at)) return false;
  }
  if (at < token.size() && (token[at] | 0x20) == 'j') ++at;
  return at == token.size() && at > whole;
}

}  // namespace convgrad::npy
