// outer_product_shape.hpp - how outer_product cuts a problem, by its shape alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/isa/isa_set.hpp"
#include "cpu/outer_product/x_panels.hpp"

namespace convgrad {

// Limits of a tile: dy's panels (512 x 256 floats) and x's share the L2 cache.
inline constexpr std::int64_t kOuterProductTileK = 256;
inline constexpr std::int64_t kOuterProductTileC = 64;
inline constexpr std::int64_t kOuterProductTileC1 =
    256;  // of 1x1 filters, for which packing dy is most of the rest
inline constexpr std::int64_t kMostXElements = 64 << 10;
// Pixels of a run: short enough to give each its own lines to fetch.
inline constexpr std::int64_t kRunPixels = 32;
inline constexpr std::int64_t kMostTileCells = 448;  // 14 x 32

struct OuterProductSteps {
  std::int64_t c, k;
};
inline OuterProductSteps outer_product_steps(const WgradProblem& problem) {
  const std::int64_t c = problem.group_c(), k = problem.group_k();
  const std::int64_t few = std::min<std::int64_t>(c, 16);
  const XPanels panels = x_panels(problem, kMostXElements, few);
  const std::int64_t fit = kMostXElements / (panels.most_lines * panels.most_columns);
  const std::int64_t most_c = std::clamp<std::int64_t>(
      fit, few, problem.taps() == 1 ? kOuterProductTileC1 : kOuterProductTileC);
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

// Vector multiply-adds for a pixel, with `rows` broadcast to `columns` side by side. Fewer than 8
// sums in registers wait for each other.
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

// How many pixels one element of a panel holds, and the type in which a tile is summed.
template <typename Element>
struct PanelTraits {
  static constexpr std::int64_t kPixels = 1;
};
template <>
struct PanelTraits<BFloat16Pair> {
  static constexpr std::int64_t kPixels = 2;
};

}  // namespace convgrad
