// messages.hpp - what errors are made of: words, lists, sizes, and whose fault a failed call is.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "convgrad/error.hpp"

namespace convgrad {

template <typename... Parts>
[[noreturn]] void misuse(const Parts&... parts) {
  throw Error(ErrorKind::usage, parts...);
}
template <typename... Parts>
[[noreturn]] void bad_input(const Parts&... parts) {
  throw Error(ErrorKind::input, parts...);
}

// Returns what a catch (...) handles as an Error; `cure` says what to do where memory is missing.
Error handled_error(const char* cure);

// Takes an errno. Missing space, memory or descriptors and a failing disk are runtime errors, all
// others are input errors.
ErrorKind kind_of_failure(int error);

// Returns "did you mean 'SAME'?" for the candidate nearest to word (edit distance, case ignored),
// or no hint when none is near.
Hint did_you_mean(std::string_view word, std::span<const std::string> candidates);

// Returns at most so many bytes of text's beginning and does not cut within a UTF-8 character.
std::string_view cut_short(std::string_view text, std::size_t most_bytes);

// Returns text on one line, in ASCII, cut off after limit characters.
std::string printable(std::string_view text, std::size_t limit = 60);

// Returns "a, b or c".
std::string join_or(std::span<const std::string> words);

std::string bracketed(std::span<const std::int64_t> numbers);  // "[1,2]"

// format_bytes(1536) is "1.5 KiB".
std::string format_bytes(double bytes);
std::string format_bytes(std::integral auto bytes) {
  return format_bytes(static_cast<double>(bytes));
}

// Returns "1 number", "2 numbers".
template <typename Count>
std::string counted(Count count, const char* noun) {
  return cat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace convgrad
