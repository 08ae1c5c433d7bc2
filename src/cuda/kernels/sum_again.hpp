// sum_again.hpp - sums a chunk once more by the definition, pixel by pixel from device memory.
//
// Kernels take padding for zeros, which is not enough where the other factor is not finite. A value
// that is not finite leaves one that is not finite in every sum that it is a product of, padding's
// zeros included: so sums are looked at, which is less than all data. This is slow, and meant to be
// rare.
#pragma once

#include "cuda/kernels/chunk_walker.hpp"

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

// Replaces a thread's sums of a chunk; find(thread, fragment, element) is the DwElement of each.
// opaque() keeps the places of all sums from being kept in registers.
template <typename Scalar, class Sums, class Find>
CONVGRAD_HD void sum_again(const BlockParams& w, const Box& box, int thread, Sums& sums,
                           Find&& find) {
  using Acc = typename AccumulatorOf<Scalar>::type;
  const int pixels = box.pixels();
  sums.clear();
  CONVGRAD_NO_UNROLL
  for (int i = 0; i < pixels; ++i) {
    int image, out[3];
    w.chunks.pixel(box, i, image, out);
    const std::int64_t n = box.n + image;
    const int own = opaque(thread);
    Sums::each([&](int fragment, int e) {
      const DwElement to = find(own, fragment, e);
      int in[3];
      if (!to.there || !tap_input(w.shape, TapStart(w.shape, to.tap), out, in)) return;
      const std::int64_t x = w.x.pixel(n, in[0], in[1], in[2]) + w.x.channel(to.group, to.c),
                         dy = w.dy.pixel(n, out[0], out[1], out[2]) + w.dy.channel(to.group, to.k);
      sums.chunk[fragment][e] += convert<Acc>(static_cast<const Scalar*>(w.x.data)[x]) *
                                 convert<Acc>(static_cast<const Scalar*>(w.dy.data)[dy]);
    });
  }
}

}  // namespace convgrad::cuda
