// pack.hpp - copies pixels of x and dy into the [pixel][channel] form that the kernels read,
// converted to the accumulator's type. One place knows the layouts and the dtypes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/kernel.hpp"

namespace convgrad {

template <typename Scalar>
using AccumulatorOf = std::conditional_t<std::is_same_v<Scalar, double>, double, float>;

template <typename Acc, typename Scalar>
Acc to_sum_type(Scalar value) {
  if constexpr (sizeof(Acc) == 8) {
    return to_double(value);
  } else {
    return to_float(value);
  }
}

// These return the offset of dy[n,z,p,q,k=0] and of x[n,d,h,w,c=0] in a block.
inline std::int64_t dy_offset(const Block& block, std::int64_t n, std::int64_t z, std::int64_t p,
                              std::int64_t q) {
  return (n - block.pixels[0].begin) * block.dy_strides.n +
         (z - block.pixels[1].begin) * block.dy_strides.spatial[0] +
         (p - block.pixels[2].begin) * block.dy_strides.spatial[1] +
         (q - block.pixels[3].begin) * block.dy_strides.spatial[2];
}
inline std::int64_t x_offset(const Block& block, std::int64_t n, std::int64_t d, std::int64_t h,
                             std::int64_t w) {
  return (n - block.pixels[0].begin) * block.x_strides.n +
         (d - block.input[0].begin) * block.x_strides.spatial[0] +
         (h - block.input[1].begin) * block.x_strides.spatial[1] +
         (w - block.input[2].begin) * block.x_strides.spatial[2];
}

// Serves the kernels without an instruction set of their own: destination[pixel * ld + channel] =
// source[pixel * pixel_stride + channel * channel_stride]. The inner loop runs along whichever axis
// is contiguous in the source.
template <typename Acc, typename Scalar>
void pack_pixels(const Scalar* source, std::int64_t pixels, std::int64_t pixel_stride,
                 std::int64_t channels, std::int64_t channel_stride, Acc* destination,
                 std::int64_t ld) {
  if (channel_stride == 1) {
    for (std::int64_t i = 0; i < pixels; ++i) {
      for (std::int64_t c = 0; c < channels; ++c) {
        destination[i * ld + c] = to_sum_type<Acc>(source[i * pixel_stride + c]);
      }
    }
    return;
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t i = 0; i < pixels; ++i) {
      destination[i * ld + c] = to_sum_type<Acc>(source[i * pixel_stride + c * channel_stride]);
    }
  }
}

inline std::int64_t pixel_count(const PixelBox& box) {
  return box[0].size() * box[1].size() * box[2].size() * box[3].size();
}

// Calls function(n, z, p) for each row of output pixels.
template <typename Function>
void for_each_row(const PixelBox& box, Function&& function) {
  for (std::int64_t n = box[0].begin; n < box[0].end; ++n) {
    for (std::int64_t z = box[1].begin; z < box[1].end; ++z) {
      for (std::int64_t p = box[2].begin; p < box[2].end; ++p) function(n, z, p);
    }
  }
}

// Calls use(offset, pixels, first) for pixels of a box that are evenly spaced in a tensor with
// these strides: rows, or all rows of an image or of several where no other pixels are between
// them. Counts offset, and the first of the pixels, from the box's first pixel on.
template <typename Use>
void for_each_piece(const Strides& strides, const PixelBox& box, Use&& use) {
  const std::array<std::int64_t, 4> stride = {strides.n, strides.spatial[0], strides.spatial[1],
                                              strides.spatial[2]};
  std::array<std::int64_t, 4> count = {box[0].size(), box[1].size(), box[2].size(), 1};
  std::int64_t pixels = box[3].size(), first = 0;
  for (std::size_t a = 3; a-- > 0 && stride[a] == stride[a + 1] * box[a + 1].size();) {
    pixels *= count[a];
    count[a] = 1;
  }
  for (std::int64_t n = 0; n < count[0]; ++n) {
    for (std::int64_t d = 0; d < count[1]; ++d) {
      for (std::int64_t h = 0; h < count[2]; ++h, first += pixels) {
        use(n * stride[0] + d * stride[1] + h * stride[2], pixels, first);
      }
    }
  }
}

// Tells whether every output channel has an input channel of its own, beside that of the next.
inline bool is_depthwise(const WgradProblem& problem) {
  return problem.group_c() == 1 && problem.group_k() == 1;
}

struct TapIndex {
  std::int64_t t, r, s;
};
inline TapIndex tap_index(const WgradProblem& problem, std::int64_t tap) {
  const std::int64_t S = problem.axis[2].taps, R = problem.axis[1].taps;
  return {tap / S / R, tap / S % R, tap % S};
}

// Returns the position along one axis of x that a tap sees from an output position. x has no
// padding in memory, so a position outside x is not in [0, in).
inline std::int64_t input_position(const SpatialAxis& axis, std::int64_t out, std::int64_t tap) {
  return out * axis.stride - axis.pad_before + tap * axis.dilation;
}

inline bool contains(Range range, std::int64_t position) {
  return position >= range.begin && position < range.end;
}
inline bool is_inside(const SpatialAxis& axis, std::int64_t position) {
  return contains({0, axis.in}, position);
}

inline Range intersect(Range a, Range b) {
  const std::int64_t begin = a.begin > b.begin ? a.begin : b.begin;
  const std::int64_t end = a.end < b.end ? a.end : b.end;
  return {begin, end > begin ? end : begin};
}

}  // namespace convgrad
