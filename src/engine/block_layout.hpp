// block_layout.hpp - how a block that was read from a file lies in memory.
#pragma once

#include <array>

#include "engine/kernel.hpp"

namespace convgrad {

// Returns the strides of a C-order box [images][spatial...][channels] or
// [images][channels][spatial...].
inline Strides box_strides(bool channels_last, std::int64_t channels,
                           const std::array<std::int64_t, 3>& extent) {
  Strides s;
  s.spatial[2] = channels_last ? channels : 1;
  s.spatial[1] = extent[2] * s.spatial[2];
  s.spatial[0] = extent[1] * s.spatial[1];
  const std::int64_t outer = extent[0] * s.spatial[0];
  s.c = channels_last ? 1 : outer;
  s.n = channels_last ? outer : channels * outer;
  return s;
}
inline Strides box_strides(const WgradProblem& problem, std::int64_t channels,
                           const std::array<std::int64_t, 3>& extent) {
  return box_strides(problem.channels_last, channels, extent);
}

}  // namespace convgrad
