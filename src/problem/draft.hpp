// draft.hpp - a problem that is being made, and what the steps of make_problem() share.
#pragma once

#include <span>
#include <string>

#include "base/messages.hpp"
#include "convgrad/problem.hpp"

namespace convgrad::making {

using Names = std::span<const char* const>;

// Names are in the order of their enumerators, channels last first.
Names data_formats(Op op);
Names filter_formats(Op op);

struct Draft {
  const TensorInfo& x;
  TensorInfo dy;
  const WgradAttributes& attributes;
  WgradProblem problem;

  // axis[first()], ..., axis[2] are the spatial axes of the op.
  std::size_t rank() const { return static_cast<std::size_t>(problem.spatial_rank()); }
  std::size_t first() const { return 3 - rank(); }
  // The axes of x and dy that hold spatial axis a, and the channels.
  std::size_t position(std::size_t a) const {
    return a - first() + (problem.channels_last ? 1 : 2);
  }
  std::size_t channel_position() const { return problem.channels_last ? rank() + 1 : 1; }
};

std::string upper(std::string_view text);
// Returns the number of the name that value spells, in any case; Error(usage) with a suggestion.
std::size_t choose(const std::string& flag, std::string_view value, Names names);

// Sets the padding and the output extent that SAME gives an axis; what is what an overflow is of.
void pad_same(SpatialAxis& axis, const std::string& what = "SAME");

// Tells whether make_problem() takes a request.
bool fits(const TensorInfo& x, const TensorInfo& dy, const WgradAttributes& attributes);
// Names the fewest slips that would explain why a problem does not fit, or none: "use --data-format
// NCHW: then it fits".
Hint hint(const TensorInfo& x, const TensorInfo& dy, const WgradAttributes& given);

// Names the padding with which dy's extents fit, if a transposed layer's output_padding, which is
// less than its stride or its dilation, takes rows off the end; below the stride nothing need be
// said.
Hint transposed_hint(const Draft& draft);

// Says how numpy makes the axes that are expected of one less or, of 2-D images, one more.
Hint rank_hint(const Draft& draft, const std::vector<std::int64_t>& shape);

}  // namespace convgrad::making
