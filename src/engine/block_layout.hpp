// block_layout.hpp - how a block that was read from a file lies in memory.
#pragma once

#include <array>

#include "engine/kernel.hpp"

namespace convgrad {

// Strides of a C-order box [images][spatial...][channels] or [images][channels][spatial...].
inline Strides box_strides(const WgradProblem& problem, std::int64_t channels,
                           const std::array<std::int64_t, 3>& extent) {
  Strides s;
  std::int64_t step = 1;
  if (problem.channels_last) {
    s.c = 1;
    step = channels;
  }
  for (int a = 2; a >= 0; --a) {
    s.spatial[static_cast<std::size_t>(a)] = step;
    step *= extent[static_cast<std::size_t>(a)];
  }
  if (!problem.channels_last) {
    s.c = step;
    step *= channels;
  }
  s.n = step;
  return s;
}

}  // namespace convgrad
