// stream_shape.hpp - how streaming reads x and dy, by the shape of the problem alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/isa/isa_set.hpp"
#include "cpu/shared/pack.hpp"

namespace convgrad {

// Neighbouring output positions of one axis that see x with the same taps.
struct TapSpan {
  Range outputs, taps;
};

inline Range taps_inside(const SpatialAxis& axis, std::int64_t output) {
  return indices_inside(input_position(axis, output, 0), axis.dilation, axis.taps, axis.in);
}

// Calls use(TapSpan) for each span of `outputs` whose taps see x.
template <typename Use>
void for_each_span(const SpatialAxis& axis, Range outputs, Use&& use) {
  for (std::int64_t o = outputs.begin; o < outputs.end;) {
    const Range taps = taps_inside(axis, o);
    std::int64_t end = o + 1;
    if (taps == Range{0, axis.taps}) {
      // All taps, up to the last output whose last tap is inside.
      const std::int64_t reach = axis.in - 1 - input_position(axis, 0, axis.taps - 1);
      end = std::min(outputs.end, reach / axis.stride + 1);
    } else {
      while (end < outputs.end && taps_inside(axis, end) == taps) ++end;
    }
    if (taps.size() > 0) use(TapSpan{{o, end}, taps});
    o = end;
  }
}

// Borders cost a span for each set of taps that sees x: 9 of them for 3x3 on one image.
// Spans of rows times spans of columns in the first chunk of an image.
inline std::int64_t span_count(const WgradProblem& problem) {
  const auto extent = chunk_extent(problem);
  std::int64_t rows = 0, columns = 0;
  for_each_span(problem.axis[1], {0, extent[2]}, [&](const TapSpan&) { ++rows; });
  for_each_span(problem.axis[2], {0, extent[3]}, [&](const TapSpan&) { ++columns; });
  return rows * columns;
}

// Input pixels that a chunk's panel may hold: more, and taps are too far apart for this kernel.
inline constexpr std::int64_t kMostPanelPixels = 8 * kMaxChunkPixels;

// Whether x and dy hold vectors of the type of the sums.
inline bool is_in_layout(const WgradProblem& problem) {
  return problem.channels_last && problem.dtype == accumulator_dtype(problem.dtype);
}

struct StreamShape {
  bool dy_in_place = false;       // the file's dtype and channels side by side: nothing to copy
  bool x_in_place = false;        // ... and no lane shares its x; only taps inside x are visited
  std::int64_t panel_pixels = 0;  // of x with its padding, for one chunk; at most one more than
                                  // kMostPanelPixels
};

inline StreamShape stream_shape(const WgradProblem& problem) {
  const auto extent = chunk_extent(problem);
  StreamShape shape;
  double pixels = static_cast<double>(extent[0]) *
                  static_cast<double>(std::min(std::max<std::int64_t>(problem.axis[0].in, 1),
                                               spanned_inputs(problem.axis[0], extent[1])));
  for (std::size_t a = 1; a < 3; ++a) {
    pixels *= static_cast<double>(spanned_inputs(problem.axis[a], extent[a + 1]));
  }
  shape.panel_pixels =
      pixels > kMostPanelPixels ? kMostPanelPixels + 1 : static_cast<std::int64_t>(pixels);
  shape.dy_in_place = is_in_layout(problem);
  if (!shape.dy_in_place || problem.group_c() != 1 || problem.group_k() != 1) return shape;
  // Each span of rows and columns ends with adding its sums to the partial: about 1.5 cycles for a
  // tap. A pixel that is copied takes about 12 all in all (docs/measurements/performance.md).
  const double taps =
      static_cast<double>(problem.axis[1].taps) * static_cast<double>(problem.axis[2].taps);
  shape.x_in_place = static_cast<double>(span_count(problem)) * taps * 1.5 < pixels * 12;
  return shape;
}

// Distances between taps and between output pixels in x, from those between its rows and columns.
template <typename Element>
void set_x_distances(StreamView<Element>& view, const WgradProblem& problem, std::int64_t row,
                     std::int64_t column) {
  view.x_row = problem.axis[1].dilation * row;
  view.x_tap = problem.axis[2].dilation * column;
  view.x_pixel = problem.axis[2].stride * column;
}

inline constexpr std::int64_t kMostLanes = 64;  // of a panel
// Output channels of a tile with one input channel each: 16 vectors of floats, a pixel of which are
// 16 neighbouring cache lines.
inline constexpr std::int64_t kStreamTileK = 256;
// Groups wider than this fill the lanes of outer_product.
inline constexpr std::int64_t kMostGroupC = 16;
// Sets of lanes in a tile: of the 2 doubles that the narrowest vector has, at least.
inline constexpr std::size_t kMostLaneSets = kStreamTileK / 2 + 1;

// Output channels of a tile: whole groups, so that direct_chunk() can take over any tile.
inline std::int64_t stream_tile_k(const WgradProblem& problem) {
  const std::int64_t group_k = problem.group_k();
  const std::int64_t most = std::max(kStreamTileK / problem.group_c(), kMostLanes);
  const std::int64_t groups = std::max<std::int64_t>(most / group_k, 1);  // in a tile
  return ceil_div(problem.groups, ceil_div(problem.groups, groups)) * group_k;
}

// A vector may begin earlier or end later than a tile's channels.
// Room for the sums of a tile's taps and lanes, and for those of its last vectors.
inline std::int64_t stream_sum_elements(const WgradProblem& problem) {
  return round_up(problem.taps() * (stream_tile_k(problem) + 2 * kMostLanes), kMostLanes);
}

}  // namespace convgrad
