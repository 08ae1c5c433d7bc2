// x_panels.hpp - how outer_product packs x: which rows and columns its panels hold.
#pragma once

#include <cstdint>
#include <numeric>

#include "cpu/isa/isa_set.hpp"
#include "cpu/shared/pack.hpp"

namespace convgrad {

// For how much of the filter one packing of x serves.
enum class Reuse {
  filter,  // all taps: the panel has every input row that the chunk sees
  plane,   // the taps of one t
  row,     // the taps of one (t, r): the panel has the rows that those see
  tap      // one tap, where neighbouring taps are too far apart to share columns
};

// By the shape of the problem alone, as the order of sums follows from it. A panel's columns are
// `step` input columns apart.
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
  // Those of `count` columns from input column `first` on that are in `seen`.
  Range columns_of(Range seen, std::int64_t first, std::int64_t count) const {
    const std::int64_t begin = first >= seen.begin ? 0 : ceil_div(seen.begin - first, step);
    const std::int64_t end = first >= seen.end ? 0 : (seen.end - 1 - first) / step + 1;
    const std::int64_t low = std::min(begin, count);
    return {low, std::clamp(end, low, count)};
  }
};

// A register tile of fewer rows would wait for its sums: it needs 8 vectors of them.
// Channels up to this many join those of neighbouring taps: a register tile has 14 rows.
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
  // Taps that are so far apart that most columns between them would be packed for nothing, or so
  // many columns that a row does not fit, or strides over the filter, so that no column serves two
  // taps: each tap for itself.
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
  // The packing that copies the fewest rows, if it fits: one for all taps copies each row of x
  // once, one for each filter row copies it as often as rows of the filter see it.
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

}  // namespace convgrad
