// outer_product_shape.hpp - decides how outer_product cuts a problem, and which rows and columns
// its panels of x hold, by the shape alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>

#include "cpu/isa/isa_set.hpp"
#include "cpu/shared/pack.hpp"

namespace convgrad {

// One packing of x serves
enum class Reuse {
  filter,  // all taps: the panel has every input row that the chunk sees
  plane,   // the taps of one t
  row,     // the taps of one (t, r): the panel has the rows that those see
  tap      // one tap, where neighbouring taps are too far apart to share columns
};

// The shape of the problem alone decides, as the order of sums follows from it. A panel's columns
// are `step` input columns apart.
struct XPanels {
  Reuse reuse = Reuse::row;
  bool joined = false;             // few channels: the rows of a register tile are (s, c) pairs
  std::int64_t step = 1;           // input columns between neighbouring panel columns
  std::int64_t pixel_columns = 1;  // panel columns between neighbouring output pixels
  std::int64_t tap_columns = 0;    // ... between neighbouring taps
  std::int64_t most_lines = 1;     // rows of x in a panel, at most
  std::int64_t most_columns = 1;   // columns of one, at most

  std::int64_t columns(std::int64_t outputs, std::int64_t taps) const {
    return (outputs - 1) * pixel_columns + (taps - 1) * tap_columns + 1;
  }
  // Returns those of `count` columns from input column `first` on that are in `seen`.
  Range columns_of(Range seen, std::int64_t first, std::int64_t count) const {
    const std::int64_t begin = first >= seen.begin ? 0 : ceil_div(seen.begin - first, step);
    const std::int64_t end = first >= seen.end ? 0 : (seen.end - 1 - first) / step + 1;
    const std::int64_t low = std::min(begin, count);
    return {low, std::clamp(end, low, count)};
  }
};

// Channels up to this many join those of neighbouring taps: a register tile has 14 rows, and one of
// fewer would wait for its sums, of which it needs 8 vectors.
inline constexpr std::int64_t kFewChannels = 16;

inline XPanels x_panels(const WgradProblem& problem, std::int64_t most_elements,
                        std::int64_t channels) {
  const auto extent = chunk_extent(problem);
  const SpatialAxis &ad = problem.axis[0], &ah = problem.axis[1], &aw = problem.axis[2];
  const std::int64_t q = extent[3], S = aw.taps;
  XPanels p;
  // Taps and pixels see only multiples of the greatest common divisor of stride and dilation: a
  // dilated or strided filter reads a dense panel, too.
  if (S == 1) {
    p.step = aw.stride;
  } else {
    p.step = std::gcd(aw.stride, aw.dilation);
    p.pixel_columns = aw.stride / p.step;
    p.tap_columns = aw.dilation / p.step;
  }
  const std::int64_t rows = extent[0] * extent[1] * extent[2];
  // Each tap is packed for itself where taps are so far apart that most columns between them would
  // be packed for nothing, a row of columns does not fit, or strides leave no column that serves
  // two taps.
  const bool shares =
      S == 1 || problem.group_c() <= kFewChannels || spanned_inputs(aw, 1) > aw.stride;
  const bool near = shares &&
                    p.columns(q, S) <= 2 * (q + S) * std::min<std::int64_t>(p.pixel_columns, 2) &&
                    p.columns(q, S) <= most_elements;
  if (!near) {
    p.reuse = Reuse::tap;
    p.step = aw.stride;
    p.pixel_columns = 1;
    p.tap_columns = 0;
    p.most_lines = rows;
    p.most_columns = q;
    return p;
  }
  p.most_columns = p.columns(q, S);
  p.joined = S > 1 && p.tap_columns == 1 && problem.group_c() <= kFewChannels;
  // The packing that copies the fewest rows is taken, if it fits: one for all taps copies each row
  // of x once, one for each filter row copies it as often as rows of the filter see it.
  const auto seen = [](const SpatialAxis& axis, std::int64_t outputs) {  // 1 of an empty axis
    const std::int64_t in = std::max<std::int64_t>(axis.in, 1);
    return static_cast<double>(std::min(in, spanned_inputs(axis, outputs)));
  };
  const double seen_h = seen(ah, extent[2]), seen_d = seen(ad, extent[1]);
  const double n = static_cast<double>(extent[0]);
  const double z = static_cast<double>(extent[1]);
  const double T = static_cast<double>(ad.taps);
  const double by_filter = n * seen_d * seen_h, by_plane = n * z * seen_h;
  const double by_row = static_cast<double>(rows);
  const double most =
      static_cast<double>(most_elements) / static_cast<double>(p.most_columns * channels);
  double cost = by_row * T * static_cast<double>(ah.taps);
  p.most_lines = rows;
  if (by_plane <= most && by_plane * T < cost) {
    cost = by_plane * T;
    p.reuse = Reuse::plane;
    p.most_lines = static_cast<std::int64_t>(by_plane);
  }
  if (by_filter <= most && by_filter < cost) {
    p.reuse = Reuse::filter;
    p.most_lines = static_cast<std::int64_t>(by_filter);
  }
  return p;
}

// These limit a tile: dy's panels (512 x 256 floats, 512 KiB) and x's (512 KiB) share the second
// cache. Tiles of 128 channels of x, or of 128 or 512 of dy, were no faster
// (docs/measurements/performance.md). In 1x1 filters each packing of dy serves one tap, so that
// packing is most of the rest.
inline constexpr std::int64_t kOuterProductTileK = 256;
inline constexpr std::int64_t kOuterProductTileC = 64;
inline constexpr std::int64_t kOuterProductTileC1 = 256;
inline constexpr std::int64_t kMostXElements = 128 << 10;
inline constexpr std::int64_t kMostTileCells = 448;  // of a register tile: 14 x 32

// Tiles are equal parts: a thin remainder would fill no register tile. They have as many channels
// of x as a panel for all taps has room for.
struct OuterProductSteps {
  std::int64_t c, k;
};
inline OuterProductSteps outer_product_steps(const WgradProblem& problem) {
  const std::int64_t c = problem.group_c(), k = problem.group_k();
  const std::int64_t few = std::min<std::int64_t>(c, 16);
  const bool one_tap = problem.taps() == 1;
  const XPanels panels = x_panels(problem, kMostXElements, few);
  const std::int64_t fit = kMostXElements / (panels.most_lines * panels.most_columns);
  const std::int64_t most_c =
      std::clamp<std::int64_t>(fit, few, one_tap ? kOuterProductTileC1 : kOuterProductTileC);
  const std::int64_t tiles_c = ceil_div(c, most_c), tiles_k = ceil_div(k, kOuterProductTileK);
  if (c <= kFewChannels) {
    return {ceil_div(c, tiles_c),
            tile_step(problem, k, kOuterProductTileK, problem.groups * tiles_c)};
  }
  return {tile_step(problem, c, most_c, problem.groups * tiles_k), ceil_div(k, tiles_k)};
}

inline XPanels panels_of(const WgradProblem& problem) {
  return x_panels(problem, kMostXElements, outer_product_steps(problem).c);
}

// These make room for any instruction set's panels, of 6 channels and more (fewer if there is one).
inline std::int64_t dy_elements(const WgradProblem& problem) {
  return (kMaxChunkPixels + kPanelSlack) * round_up(outer_product_steps(problem).k, 32);
}
inline std::int64_t x_elements(const WgradProblem& problem) {
  const XPanels panels = panels_of(problem);
  const std::int64_t c = outer_product_steps(problem).c;
  return panels.most_lines * panels.most_columns * (c + 32) + (c / 3 + 1) * kPanelSlack + 64;
}

// Returns the largest step of at most `most` that cuts count into equal parts.
inline std::int64_t even_step(std::int64_t count, std::int64_t most) {
  return ceil_div(count, ceil_div(count, most));
}

// Counts vector multiply-adds for a pixel, with `rows` broadcast to `columns` side by side. It
// decides whether x or dy is broadcast: the side that fills whole vectors better is in vectors.
// Fewer than 8 sums in registers wait for each other.
template <typename Element>
double tile_cost(const OuterProductIsa<Element>& isa, std::int64_t rows, std::int64_t columns) {
  const std::int64_t step = even_step(rows, isa.max_rows), lanes = isa.max_columns / 2;
  const auto cost = [&](std::int64_t width) {
    return static_cast<double>(std::max<std::int64_t>(step * ceil_div(width, lanes), 8));
  };
  const std::int64_t whole = columns / isa.max_columns, rest = columns % isa.max_columns;
  return static_cast<double>(ceil_div(rows, step)) *
         (static_cast<double>(whole) * cost(isa.max_columns) + (rest > 0 ? cost(rest) : 0));
}

// The form says how a tile is multiplied, by its shape and the problem's alone.
struct TileForm {
  bool swapped = false;                 // dy is broadcast to channels of x side by side
  std::int64_t x_step = 1, k_step = 1;  // channels of a register tile
  std::int64_t images = 1, pixels = 1;  // of an element of the panels

  // Tells whether an element of image n has a second one in the chunk.
  bool has_partner(const PixelBox& box, std::int64_t n) const {
    return images > 1 && n + 1 < box[0].end;
  }
};
template <typename Element>
TileForm tile_form(const OuterProductIsa<Element>& isa, const WgradProblem& problem,
                   const XPanels& panels, const Tile& tile) {
  TileForm form;
  // Pairs are of neighbouring images where a chunk has several, else of neighbouring pixels: rows
  // of an odd number of pixels waste half a pair.
  if (std::is_same_v<Element, BFloat16Pair>) {
    (chunk_extent(problem)[0] > 1 ? form.images : form.pixels) = 2;
  }
  const std::int64_t c = tile.c.size(), k = tile.k.size();
  const std::int64_t rows = panels.joined ? problem.axis[2].taps * c : c;
  // Swapped sums pass through memory once more on their way to the partial.
  form.swapped = 4 * tile_cost(isa, k, rows) < 3 * tile_cost(isa, rows, k);
  // One vector of columns, where more are not needed, makes panels half as large.
  const auto columns = [&](std::int64_t count) {
    return count <= isa.max_columns / 2 ? isa.max_columns / 2 : isa.max_columns;
  };
  form.x_step = form.swapped ? columns(rows) : even_step(rows, isa.max_rows);
  form.k_step = form.swapped ? even_step(k, isa.max_rows) : columns(k);
  return form;
}

}  // namespace convgrad
