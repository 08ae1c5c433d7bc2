// outer_product_shape.hpp - how outer_product cuts a problem, by its shape alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/isa/isa_set.hpp"
#include "cpu/outer_product/x_panels.hpp"

namespace convgrad {

// Limits of a tile: dy's panels (512 x 256 floats, 512 KiB) and x's (256 KiB) share the second
// cache. Tiles of 128 channels of x, or of 128 or 512 of dy, were no faster
// (docs/measurements/performance.md). Of 1x1 filters each packing of dy serves one tap, so that
// packing is most of the rest: x's panels are as large as dy's.
inline constexpr std::int64_t kOuterProductTileK = 256;
inline constexpr std::int64_t kOuterProductTileC = 64;
inline constexpr std::int64_t kOuterProductTileC1 = 256;
inline constexpr std::int64_t kMostXElements = 64 << 10;
inline constexpr std::int64_t kMostXElements1 = 128 << 10;
inline constexpr std::int64_t kMostTileCells = 448;  // of a register tile: 14 x 32

// In equal parts: a thin remainder would fill no register tile. As many channels of x as a panel
// for all taps has room for.
struct OuterProductSteps {
  std::int64_t c, k;
};
inline OuterProductSteps outer_product_steps(const WgradProblem& problem) {
  const std::int64_t c = problem.group_c(), k = problem.group_k();
  const std::int64_t few = std::min<std::int64_t>(c, 16);
  const bool one_tap = problem.taps() == 1;
  const XPanels panels = x_panels(problem, kMostXElements, few);
  const std::int64_t fit =
      (one_tap ? kMostXElements1 : kMostXElements) / (panels.most_lines * panels.most_columns);
  const std::int64_t most_c =
      std::clamp<std::int64_t>(fit, few, one_tap ? kOuterProductTileC1 : kOuterProductTileC);
  return {ceil_div(c, ceil_div(c, most_c)), ceil_div(k, ceil_div(k, kOuterProductTileK))};
}

inline XPanels panels_of(const WgradProblem& problem) {
  return x_panels(problem, kMostXElements, outer_product_steps(problem).c);
}

// Room for the panels of any instruction set, of 6 channels and more (fewer only if there is one).
inline std::int64_t dy_elements(const WgradProblem& problem) {
  return (kMaxChunkPixels + kPanelSlack) * round_up(outer_product_steps(problem).k, 32);
}
inline std::int64_t x_elements(const WgradProblem& problem) {
  const XPanels panels = panels_of(problem);
  const std::int64_t c = outer_product_steps(problem).c;
  return panels.most_lines * panels.most_columns * (c + 32) + (c / 3 + 1) * kPanelSlack + 64;
}

// The largest step of at most `most` that cuts count into equal parts.
inline std::int64_t even_step(std::int64_t count, std::int64_t most) {
  return ceil_div(count, ceil_div(count, most));
}

// What decides whether x or dy is broadcast: the side that fills whole vectors better is in
// vectors. Vector multiply-adds for a pixel, with `rows` broadcast to `columns` side by side. Fewer
// than 8 sums in registers wait for each other.
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

// How a tile is multiplied, by its shape and the problem's alone.
struct TileForm {
  bool swapped = false;                 // dy is broadcast to channels of x side by side
  std::int64_t x_step = 1, k_step = 1;  // channels of a register tile
  std::int64_t images = 1, pixels = 1;  // of an element of the panels

  // Whether an element of image n has a second one in the chunk.
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
  // One vector of columns where more are not needed: panels half as large.
  const auto columns = [&](std::int64_t count) {
    return count <= isa.max_columns / 2 ? isa.max_columns / 2 : isa.max_columns;
  };
  form.x_step = form.swapped ? columns(rows) : even_step(rows, isa.max_rows);
  form.k_step = form.swapped ? even_step(k, isa.max_rows) : columns(k);
  return form;
}

}  // namespace convgrad
