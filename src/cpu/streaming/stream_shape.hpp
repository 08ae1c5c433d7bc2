// stream_shape.hpp - decides how streaming reads x and dy, by the shape of the problem alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/isa/isa_set.hpp"
#include "cpu/shared/pack.hpp"

namespace convgrad {

// A chunk's panel may hold so many input pixels; with more, taps are too far apart for this kernel.
inline constexpr std::int64_t kMostPanelPixels = 8 * kMaxChunkPixels;

// Tells whether x and dy hold vectors of the type of the sums.
inline bool is_in_layout(const WgradProblem& problem) {
  return problem.channels_last && problem.dtype == accumulator_dtype(problem.dtype);
}

// Nothing is copied where there are vectors of the type of the sums, and no lane shares its x.
struct InPlace {
  bool dy = false, x = false;
  bool pairs = false;  // both, where bfloat16 is widened in registers
};
inline InPlace reads_in_place(const WgradProblem& problem) {
  const bool vectors = is_in_layout(problem);
  const bool alone = problem.channels_last && is_depthwise(problem);
  return {vectors, vectors && alone, alone && problem.dtype == DType::bf16};
}

// Counts the pixels of x that a chunk's taps see, at most one more than `most`.
inline std::int64_t seen_pixels(const WgradProblem& problem, std::int64_t most) {
  const auto extent = chunk_extent(problem);
  double pixels = static_cast<double>(extent[0]);
  for (std::size_t a = 0; a < 3; ++a) {
    const std::int64_t in = std::max<std::int64_t>(problem.axis[a].in, 1);
    pixels *= static_cast<double>(std::min(in, spanned_inputs(problem.axis[a], extent[a + 1])));
  }
  return pixels > static_cast<double>(most) ? most + 1 : static_cast<std::int64_t>(pixels);
}

// Sets distances between taps and output pixels in x from those between its rows and columns.
template <typename Element>
void set_x_distances(StreamView<Element>& view, const WgradProblem& problem, std::int64_t row,
                     std::int64_t column) {
  view.x_row = problem.axis[1].dilation * row;
  view.x_tap = problem.axis[2].dilation * column;
  view.x_pixel = problem.axis[2].stride * column;
}

inline constexpr std::int64_t kMostLanes = 64;  // of a panel
// A tile has so many output channels with one input channel each: 16 vectors of floats, a pixel of
// which are 16 neighbouring lines. Where nothing is copied it may have more, so that memory is read
// in its order, as long as its sums fit the second cache.
inline constexpr std::int64_t kStreamTileK = 256, kWideTileK = 2048, kWideSums = 1 << 16;
// Groups wider than this fill the lanes of outer_product.
inline constexpr std::int64_t kMostGroupC = 16;
// A tile has at most so many sets of lanes, of the 2 doubles that the narrowest vector has.
inline constexpr std::size_t kMostLaneSets = kWideTileK / 2 + 1;

// Counts the output channels of a tile, which are whole groups.
inline std::int64_t stream_tile_k(const WgradProblem& problem) {
  const std::int64_t group_k = problem.group_k();
  const std::int64_t most = std::max(kStreamTileK / problem.group_c(), kMostLanes);
  const std::int64_t groups = std::max<std::int64_t>(most / group_k, 1);  // in a tile
  return tile_step(problem, chunk_grid(problem), problem.groups, groups, 1) * group_k;
}

// Returns the most that a tile may have.
inline std::int64_t stream_wide_k(const WgradProblem& problem) {
  const std::int64_t k = stream_tile_k(problem), most = std::min(kWideTileK, problem.K);
  const InPlace reads = reads_in_place(problem);
  if (!reads.pairs && !is_in_layout(problem)) return k;
  const std::int64_t groups =
      std::min(most, kWideSums / problem.taps() / problem.group_c()) / problem.group_k();
  return std::max(k, groups * problem.group_k());
}

// Makes room for the sums of a tile's taps and lanes, and for those of its last vectors: a vector
// may begin earlier or end later than a tile's channels. In panels a few lanes are summed at a
// time, with all channels of a group.
inline std::int64_t stream_sum_elements(const WgradProblem& problem) {
  const std::int64_t lanes =
      std::max(stream_wide_k(problem) + 2 * kMostLanes, problem.group_c() * kMostLanes);
  return round_up(problem.taps() * lanes, kMostLanes);
}

}  // namespace convgrad
