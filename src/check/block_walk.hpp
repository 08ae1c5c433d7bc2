// block_walk.hpp - goes over the pixels of a block, as the definition pairs x with dy. The index
// arithmetic is plain, and written out here again: nothing is taken from the kernels' helpers.
#pragma once

#include <array>
#include <atomic>

#include "engine/block_sum.hpp"
#include "engine/kernel.hpp"

namespace convgrad {

using TapPlace = std::array<std::int64_t, 3>;  // t, r, s

inline TapPlace tap_place(const WgradProblem& pb, std::int64_t tap) {
  const std::int64_t R = pb.axis[1].taps, S = pb.axis[2].taps;
  return {tap / S / R, tap / S % R, tap % S};
}

// Returns where a tap of an axis meets x for an output position: outside x too.
inline std::int64_t input_at(const SpatialAxis& axis, std::int64_t out, std::int64_t tap) {
  return out * axis.stride - axis.pad_before + tap * axis.dilation;
}

// These return the first channel of a pixel that lies in the block.
template <typename Scalar>
const Scalar* x_at(const Block& block, std::int64_t n, std::int64_t d, std::int64_t h,
                   std::int64_t w) {
  return static_cast<const Scalar*>(block.x) + (n - block.pixels[0].begin) * block.x_strides.n +
         (d - block.input[0].begin) * block.x_strides.spatial[0] +
         (h - block.input[1].begin) * block.x_strides.spatial[1] +
         (w - block.input[2].begin) * block.x_strides.spatial[2];
}
template <typename Scalar>
const Scalar* dy_at(const Block& block, std::int64_t n, std::int64_t z, std::int64_t p,
                    std::int64_t q) {
  return static_cast<const Scalar*>(block.dy) + (n - block.pixels[0].begin) * block.dy_strides.n +
         (z - block.pixels[1].begin) * block.dy_strides.spatial[0] +
         (p - block.pixels[2].begin) * block.dy_strides.spatial[1] +
         (q - block.pixels[3].begin) * block.dy_strides.spatial[2];
}

// Calls task(i, scalar) for each i below count, by the pool's threads, with a number of the dtype,
// and says how many are done.
template <typename Task>
void run_tasks(TaskPool& pool, DType dtype, std::int64_t count, const BlockSum::Progress& progress,
               Task&& task) {
  std::atomic<std::int64_t> done{0};
  pool.run(count, [&](std::int64_t i, int) {
    with_scalar(dtype, [&](auto scalar) { task(i, scalar); });
    if (progress) progress(++done, count);
  });
}

// A line of output pixels from which a tap sees x, and the pixels that meet there.
template <typename Scalar>
struct PixelLine {
  std::int64_t n, z, p;
  Range q;
  const Scalar* x;  // the first channel of the first pixel, as of dy
  const Scalar* dy;
  std::int64_t x_step, dy_step;  // from one pixel to the next
};

// Calls visit(line) for the lines of some pixels of a block, in the order n, z, p.
template <typename Scalar, typename Visit>
void visit_pixel_lines(const WgradProblem& pb, const Block& block,
                       const std::array<Range, 4>& pixels, const TapPlace& tap, Visit&& visit) {
  const auto& [ad, ah, aw] = pb.axis;
  Range q = pixels[3];
  while (q.begin < q.end && input_at(aw, q.begin, tap[2]) < 0) ++q.begin;
  while (q.begin < q.end && input_at(aw, q.end - 1, tap[2]) >= aw.in) --q.end;
  if (q.size() <= 0) return;
  for (std::int64_t n = pixels[0].begin; n < pixels[0].end; ++n) {
    for (std::int64_t z = pixels[1].begin; z < pixels[1].end; ++z) {
      const std::int64_t d = input_at(ad, z, tap[0]);
      if (d < 0 || d >= ad.in) continue;
      for (std::int64_t p = pixels[2].begin; p < pixels[2].end; ++p) {
        const std::int64_t h = input_at(ah, p, tap[1]);
        if (h < 0 || h >= ah.in) continue;
        visit(PixelLine<Scalar>{
            n, z, p, q, x_at<Scalar>(block, n, d, h, input_at(aw, q.begin, tap[2])),
            dy_at<Scalar>(block, n, z, p, q.begin), aw.stride * block.x_strides.spatial[2],
            block.dy_strides.spatial[2]});
      }
    }
  }
}

}  // namespace convgrad
