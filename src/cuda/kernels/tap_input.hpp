// tap_input.hpp - where a tap sees x.
#pragma once

#include "cuda/kernels/geometry.hpp"

namespace convgrad::cuda {

// Holds where a tap sees x from the outputs at position 0.
struct TapStart {
  int at[3];

  CONVGRAD_HD TapStart(const Shape& shape, int tap)
      : at{shape.tap_t(tap), shape.tap_r(tap), shape.tap_s(tap)} {
    for (int a = 0; a < 3; ++a) at[a] = at[a] * shape.axis[a].dilation - shape.axis[a].pad;
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

// Is an element of dw, c and k within its group; `there` is false beyond dw.
struct DwElement {
  int group, tap, c, k;
  bool there;
};

}  // namespace convgrad::cuda
