// signs.hpp - each pixel of dy times +1 or -1, from a seed. Whatever signs the terms of a gradient
// have, those of such a dy have random ones, and no order in which they are summed is worse than
// another.
//
// A sign is a function of the seed and the pixel's number over n, z, p, q alone. It is put on by
// the sign bit, which is exact in every dtype, and has the channels of the pixel in common.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "convgrad/dtype.hpp"

namespace convgrad {

class PixelSigns {
 public:
  // Takes the shape of dy in its file, whose channels are last, or after n.
  PixelSigns(std::span<const std::int64_t> dy_shape, bool channels_last, std::uint64_t seed);

  // Puts the signs on the elements of a box of dy, which are in C order.
  void apply(DType dtype, std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
             void* elements) const;

 private:
  template <typename Bits, typename Flip>
  void flip_box(std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                Bits* elements, const Flip& flip) const;

  std::vector<std::int64_t> pixel_step_;  // of each axis of the file: 0 of the channels
  std::uint64_t seed_;
};

}  // namespace convgrad
