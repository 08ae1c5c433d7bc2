// clock.hpp - durations in seconds, by a clock that is never set back.
#pragma once

#include <chrono>

namespace convgrad {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <typename Work>
double seconds_of(Work&& work) {
  const auto start = Clock::now();
  work();
  return seconds_since(start);
}

}  // namespace convgrad
