// suggest.hpp - "did you mean".
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace convgrad {

// "; did you mean 'SAME'?" for the candidate nearest to word (edit distance, case ignored), or
// "" when none is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

// "a, b or c".
std::string join_or(std::span<const std::string> words);

}  // namespace convgrad
