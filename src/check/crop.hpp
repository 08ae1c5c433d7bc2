// crop.hpp - a part of a problem that is a problem of its own: taps of two channels, over all
// images and output positions.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "convgrad/npy.hpp"
#include "problem/schedule.hpp"

namespace convgrad {

struct Crop {
  std::int64_t c, k;          // an input channel, counted within the group of an output channel
  std::array<Range, 3> taps;  // t, r, s
};
// Returns the crop of the element at `index` ([tap][c][k]) of the gradient.
Crop element_crop(const WgradProblem& problem, std::int64_t index);

struct CroppedProblem {
  WgradProblem problem;             // with explicit paddings; the same op, dtypes and formats
  std::vector<std::int64_t> x, dy;  // where its tensors begin in those of the whole problem
};
// Returns nothing if the crop sees only padding along an axis.
std::optional<CroppedProblem> cropped(const WgradProblem& problem, const Crop& crop);

// Returns the index in the whole gradient of the element of one of the crop's taps.
std::int64_t whole_index(const WgradProblem& problem, const Crop& crop, const WgradProblem& part,
                         std::int64_t tap);

// Writes a part of a tensor in the problem's dtype, image after image.
void write_part(const std::string& path, NpyReader& whole, DType dtype,
                const std::vector<std::int64_t>& origin, const std::vector<std::int64_t>& shape);

}  // namespace convgrad
