// integers.hpp - counts: rounded, multiplied, added up and read.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace convgrad {

// Counts must not be negative, divisors must be above 0. a + b - 1 could overflow, so it is
// avoided.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

// Products and sums of sizes past 63 bits are refused, not wrapped.
inline std::optional<std::int64_t> checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

inline std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

// A factor of 0 makes the product 0, also where the others would overflow.
inline std::optional<std::int64_t> checked_product(std::span<const std::int64_t> factors) {
  std::optional<std::int64_t> product = std::ranges::count(factors, 0) > 0 ? 0 : 1;
  for (const std::int64_t factor : factors) {
    if (product) product = checked_multiply(*product, factor);
  }
  return product;
}

// Reads a whole number of at least 0; there is none in anything else.
inline std::optional<std::int64_t> parse_whole(std::string_view word) {
  std::int64_t value = 0;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc{} || rest != end || value < 0) return std::nullopt;
  return value;
}

}  // namespace convgrad
