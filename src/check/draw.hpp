// draw.hpp - random whole numbers that are the same with every standard library, whose own
// distributions are not.
#pragma once

#include <cstdint>
#include <random>

namespace convgrad {

// Uniform in [0, count), count > 0.
inline std::int64_t draw(std::mt19937_64& random, std::int64_t count) {
  const auto n = static_cast<std::uint64_t>(count);
  const std::uint64_t most = std::mt19937_64::max() - std::mt19937_64::max() % n;
  std::uint64_t value = random();
  while (value >= most) value = random();
  return static_cast<std::int64_t>(value % n);
}

}  // namespace convgrad
