// tap_input.hpp - where a tap sees x.
#pragma once

#include "cuda/kernels/geometry.hpp"

namespace convgrad::cuda {

// Holds where a tap sees x from the outputs at position 0.
struct TapStart {
  int at[3];

  // Divides, for which devices have no instruction: kernels do this once a chunk at most.
  CONVGRAD_HD TapStart(const Shape& shape, int tap) {
    const int R = shape.axis[1].taps, S = shape.axis[2].taps;
    const int taps[3] = {tap / (R * S), tap / S % R, tap % S};
    for (int a = 0; a < 3; ++a) at[a] = taps[a] * shape.axis[a].dilation - shape.axis[a].pad;
  }
  TapStart() = default;  // in shared memory
};

// Finds where a tap sees x from an output position; false if that is outside x on some axis.
CONVGRAD_HD bool tap_input(const Shape& shape, const TapStart& start, const int out[3], int in[3]) {
  bool inside = true;
  for (int a = 0; a < 3; ++a) {
    in[a] = out[a] * shape.axis[a].stride + start.at[a];
    inside = inside && in[a] >= 0 && in[a] < shape.axis[a].in;
  }
  return inside;
}

}  // namespace convgrad::cuda
