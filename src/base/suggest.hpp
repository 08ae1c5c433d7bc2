// suggest.hpp - words in messages: "did you mean", lists, names cut short.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "convgrad/error.hpp"

namespace convgrad {

// Returns "did you mean 'SAME'?" for the candidate nearest to word (edit distance, case ignored),
// or no hint when none is near.
Hint did_you_mean(std::string_view word, std::span<const std::string> candidates);

// Returns at most so many bytes of text's beginning and does not cut within a UTF-8 character.
std::string_view cut_short(std::string_view text, std::size_t most_bytes);

// Returns text on one line, in ASCII, cut off after limit characters.
std::string printable(std::string_view text, std::size_t limit = 60);

// Returns "a, b or c".
std::string join_or(std::span<const std::string> words);

// Returns "1 number", "2 numbers".
template <typename Count>
std::string counted(Count count, const char* noun) {
  return cat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace convgrad
