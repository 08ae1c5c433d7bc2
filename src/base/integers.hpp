// integers.hpp - rounding counts that are not negative, by divisors above 0.
#pragma once

#include <cstdint>

namespace convgrad {

// Without a sum that could overflow.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

}  // namespace convgrad
