// crop.hpp - a part of a problem that is a problem of its own.
#pragma once

#include <array>
#include <optional>

#include "convgrad/run.hpp"

namespace convgrad {

// Ranges of the whole problem. c and k count within a group, and are whole unless one group is
// left: other channels would not lie side by side.
struct Crop {
  Range images, groups, c, k;
  std::array<Range, 3> out, taps;  // z, p, q and t, r, s
};
Crop whole_crop(const WgradProblem& problem);

struct CroppedProblem {
  WgradProblem problem;  // with explicit paddings; the same op, dtypes and formats
  SourceOrigin origin;   // in the files of the whole problem
};
// Nothing if the crop sees only padding along an axis.
std::optional<CroppedProblem> cropped(const WgradProblem& problem, const Crop& crop);

// Where the cropped gradient's entry at `index` ([tap][c][k]) stands in the whole one.
std::int64_t whole_index(const WgradProblem& problem, const Crop& crop, const WgradProblem& part,
                         std::int64_t index);

}  // namespace convgrad
