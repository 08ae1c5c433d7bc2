// outer_product_shape.hpp - decides how outer_product cuts a problem, and which rows and columns
// its panels of x hold, by the shape alone.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <type_traits>

#include "cpu/isa/isa_set.hpp"
#include "cpu/shared/pack.hpp"

namespace convgrad {

template <typename Element>
inline constexpr bool kIsPair = std::is_same_v<Element, BFloat16Pair>;

// An element of the panels holds one pixel, or a pair of them: a pixel of the first half of a chunk
// along an axis, and the one as far into the second half. Then neighbouring elements see neighbours
// in x, of which a packing serves all taps. Of an odd number of pixels the first has no second one:
// the taps that see padding there leave it out.
struct Halves {
  std::size_t axis = kNone;  // n, z, p or q
  static constexpr std::size_t kNone = 4;

  // Returns the distance of second pixels from the first along the axis.
  std::int64_t distance(const PixelBox& box) const {
    return axis == kNone ? 0 : box[axis].size() / 2;
  }
  PixelBox elements(const PixelBox& box) const {
    PixelBox first = box;
    if (axis != kNone) first[axis].end -= distance(box);
    return first;
  }
  // Returns the elements that have a second pixel.
  PixelBox pairs(const PixelBox& box) const {
    PixelBox pairs = elements(box);
    if (axis != kNone) pairs[axis].begin += box[axis].size() % 2;
    return pairs;
  }
  // Returns the elements along an axis of which a pixel is in a range that touches its ends.
  Range seen(const PixelBox& box, std::size_t a, Range pixels) const {
    if (axis != a || pixels.size() <= 0) return pixels;
    const Range all = elements(box)[a], pair = pairs(box)[a];
    const std::int64_t second = pixels.begin - distance(box);
    return {std::min(pixels.begin, std::max(second, pair.begin)), std::min(pixels.end, all.end)};
  }
};
// Takes the axis along which taps meet the fewest halves of pairs that are padding, or none. It
// looks at 4,096 taps at most: a plan for a filter of any size must be quick.
inline Halves halves_of(const WgradProblem& problem, const ChunkGrid& grid) {
  Halves best;
  double least = HUGE_VAL;  // elements for a pixel
  for (std::size_t a = 0; a < 4; ++a) {
    const Halves halves = {a};
    double elements = 0, pixels = 0;
    const auto taps = a == 0 ? 1 : std::min<std::int64_t>(problem.axis[a - 1].taps, 4096);
    for (const std::int64_t chunk : {std::int64_t{0}, grid.count - 1}) {
      const PixelBox box = grid.count > 0 ? grid.box(chunk) : PixelBox();
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const Range inside =
            a == 0 ? box[0] : intersect(box[a], outputs_inside(problem.axis[a - 1], tap));
        elements += static_cast<double>(halves.seen(box, a, inside).size());
        pixels += static_cast<double>(inside.size());
      }
    }
    const double cost = pixels > 0 ? elements / pixels : 1;
    if (cost < least) best = halves;
    least = std::min(least, cost);
  }
  return best;
}

// One packing of x serves
enum class Reuse {
  filter,  // all taps: the panel has every input row that the chunk sees
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

inline constexpr std::int64_t kMostXElements = 128 << 10;  // of panels
// With no more channels than that, sums of a register tile wait for each other: it has 14 rows.
inline constexpr std::int64_t kFewChannels = 16;
inline constexpr std::int64_t kOuterProductTileC = 64;
// Tells whether channels of neighbouring taps are joined, as the rows of a register tile: where
// they are few, and where taps' channels together fill vectors better than those of one, though
// they meet the padding that taps leave out.
inline bool joins_taps(const WgradProblem& problem) {
  const SpatialAxis& w = problem.axis[2];
  const std::int64_t c = problem.group_c(), k = problem.group_k(), S = w.taps;
  if (S == 1 || w.stride % w.dilation != 0) return false;
  if (c <= kFewChannels || c > kOuterProductTileC || S > 32) return c <= kFewChannels;
  std::int64_t seen = 0;
  for (std::int64_t s = 0; s < S; ++s) seen += outputs_inside(w, s).size();
  const auto filled = [](std::int64_t lanes) { return round_up(lanes, 8); };  // half vectors of 16
  return w.out * filled(S * c) * k < seen * std::min(c * filled(k), k * filled(c)) * 19 / 20;
}

// `extent` is a chunk's, of elements.
inline XPanels x_panels(const WgradProblem& problem, const Halves& halves,
                        const std::array<std::int64_t, 4>& extent, std::int64_t channels) {
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
  // Joined channels fill register tiles, which is worth as much packing as without sharing.
  p.joined = joins_taps(problem);
  const std::int64_t rows = extent[0] * extent[1] * extent[2];
  // Each tap is packed for itself where most columns between taps would be packed for nothing, a
  // row of columns does not fit, or strides leave no column that serves two taps.
  const bool shares = S == 1 || p.joined || spanned_inputs(aw, 1) > aw.stride;
  const std::int64_t dense = 2 * (q + S) * std::min<std::int64_t>(p.pixel_columns, 2);
  const std::int64_t columns = p.columns(q, S);
  const bool near =
      shares && columns <= kMostXElements && columns <= (p.joined ? std::max(dense, q * S) : dense);
  if (!near) {
    return {.reuse = Reuse::tap, .step = aw.stride, .most_lines = rows, .most_columns = q};
  }
  p.most_columns = columns;
  // The packing that copies the fewest rows is taken, if it fits: one for all taps copies each row
  // of x once, one for each filter row copies it as often as rows of the filter see it.
  const auto seen = [&](std::size_t a) {  // 1 of an empty axis
    const SpatialAxis& axis = problem.axis[a];
    const std::int64_t outputs = extent[a + 1], apart = halves.axis == a + 1 ? outputs : 0;
    const std::int64_t in = std::max<std::int64_t>(axis.in, 1) + apart * axis.stride;
    return static_cast<double>(std::min(in, spanned_inputs(axis, outputs)));
  };
  const double by_filter = static_cast<double>(extent[0]) * seen(0) * seen(1);
  const double by_row = static_cast<double>(rows * ad.taps) * static_cast<double>(ah.taps);
  const double most =
      static_cast<double>(kMostXElements) / static_cast<double>(p.most_columns * channels);
  p.most_lines = rows;
  if (by_filter <= most && by_filter < by_row) {
    p.reuse = Reuse::filter;
    p.most_lines = static_cast<std::int64_t>(by_filter);
  }
  return p;
}

// These limit a tile: dy's panels (512 x 256 floats, 512 KiB) and x's (512 KiB) share the second
// cache. C1 is for panels of a filter row: few taps are all that a packing of dy serves.
inline constexpr std::int64_t kOuterProductTileK = 256, kOuterProductTileC1 = 256;
// Where slices are tasks enough: threads that share a partial's rows may wait for each other.
inline constexpr std::int64_t kOuterProductWideK = 512;

struct OuterProductShape {
  std::int64_t pixels = kMaxChunkPixels;  // of a chunk, at most
  Halves halves;
  std::array<std::int64_t, 4> extent{};  // of a chunk, in elements
  std::int64_t c = 1, k = 1;             // channels of a tile in each of its groups
  std::int64_t groups = 1;               // of a tile, at most
  std::int64_t wide_k = 1;               // the most that k may become
  XPanels x;

  // These make room for any instruction set's panels, of 6 channels and more, or of one.
  std::int64_t dy_elements() const {
    const std::int64_t most = std::max(wide_k, k);
    return (kMaxChunkPixels + kPanelSlack) * groups * std::min(most + 32, 2 * most);
  }
  std::int64_t x_elements() const {
    const std::int64_t group = x.most_lines * x.most_columns * std::min(c + 32, 2 * c);
    return groups * (group + (c / 3 + 1) * kPanelSlack) + 64;
  }
};

// Sets chunks of pairs, of so many pixels. Returns true if panels have room for them,
// direct_chunk() takes a row of them, and two threads can share them, or the tiles of one.
inline bool set_chunks(const WgradProblem& problem, std::int64_t pixels, OuterProductShape& shape) {
  const ChunkGrid grid = chunk_grid(problem, pixels);
  shape.pixels = pixels;
  shape.halves = halves_of(problem, grid);
  shape.extent = chunk_extent(problem, pixels);
  const bool is_row = shape.extent[3] <= kMaxChunkPixels;
  shape.extent[shape.halves.axis] = ceil_div(shape.extent[shape.halves.axis], 2);
  const auto& [n, z, p, q] = shape.extent;
  const std::int64_t tiles = problem.groups * ceil_div(problem.group_k(), kOuterProductTileK);
  return is_row && n * z * p * q <= kMaxChunkPixels &&
         (grid.count % 2 == 0 || grid.count == 1 || tiles % 2 == 0);
}

// Tiles are equal parts, of whole vectors of dy: a thin remainder would fill no register tile. They
// have as many channels of x as a panel for all taps has room for, of small groups several: memory
// is read in its order then, and ahead.
template <typename Element>
OuterProductShape outer_product_shape(const WgradProblem& problem) {
  OuterProductShape shape;
  shape.extent = chunk_extent(problem);
  if (kIsPair<Element>) {
    const std::int64_t pixels = std::min(long_chunk_pixels(problem), 2 * kMaxChunkPixels);
    if (!set_chunks(problem, pixels, shape)) set_chunks(problem, kMaxChunkPixels, shape);
  }
  const std::int64_t c = problem.group_c(), k = problem.group_k();
  const std::int64_t few = joins_taps(problem) ? c : std::min(c, kFewChannels);
  const XPanels panels = x_panels(problem, shape.halves, shape.extent, few);
  const std::int64_t fit = kMostXElements / (panels.most_lines * panels.most_columns);
  const std::int64_t most_c = std::clamp<std::int64_t>(
      fit, few, panels.reuse == Reuse::filter ? kOuterProductTileC : kOuterProductTileC1);
  const std::int64_t tiles_c = ceil_div(c, most_c), tiles_k = ceil_div(k, kOuterProductTileK);
  const ChunkGrid grid = chunk_grid(problem, shape.pixels);
  const bool cuts_c = c > few;
  shape.c =
      cuts_c ? tile_step(problem, grid, c, most_c, problem.groups * tiles_k) : ceil_div(c, tiles_c);
  shape.k = cuts_c ? ceil_div(k, tiles_k)
                   : tile_step(problem, grid, k, kOuterProductTileK, problem.groups * tiles_c);
  shape.k = std::min(round_up(shape.k, 16), k);
  shape.x = x_panels(problem, shape.halves, shape.extent, shape.c);
  if (shape.c == c && shape.k == k) {
    const std::int64_t most = std::min({kOuterProductTileK / k, kOuterProductTileC1 / c, fit / c});
    shape.groups = std::clamp<std::int64_t>(most, 1, problem.groups);
  }
  if (problem.groups == 1) shape.wide_k = std::min(k, kOuterProductWideK);
  return shape;
}

// A register tile, and the vector multiply-adds for a pixel of all that it takes.
struct RegisterTile {
  std::int64_t rows, columns;
  double cost;
};

// Chooses the register tile for `rows` broadcast to `columns` side by side. Fewer than 8 sums in
// registers wait for each other. Columns are counted in whole `parts`.
template <typename Element>
RegisterTile register_tile(const OuterProductIsa<Element>& isa, std::int64_t rows,
                           std::int64_t columns, std::int64_t part) {
  const std::int64_t lanes = isa.max_columns / 2;
  const auto tile = [&](std::int64_t most_rows, std::int64_t vectors) {
    const std::int64_t step = ceil_div(rows, ceil_div(rows, most_rows)), most = vectors * lanes;
    const auto cost = [&](std::int64_t width) {
      return static_cast<double>(std::max(step * round_up(width, part), 8 * lanes)) /
             static_cast<double>(lanes);
    };
    const std::int64_t whole = columns / most, rest = columns % most;
    return RegisterTile{
        step, std::min(columns, most),
        static_cast<double>(ceil_div(rows, step)) *
            (static_cast<double>(whole) * cost(most) + (rest > 0 ? cost(rest) : 0))};
  };
  RegisterTile best = tile(isa.max_rows, 2);
  // Lower tiles are more, each of which reads the columns again, from the second cache: tiles of 3
  // rows with three vectors took 1.2 times as long as those of 6 with two (21 joined rows).
  if (isa.wide_rows > 0) {
    const RegisterTile wide = tile(isa.wide_rows, 3);
    if (wide.cost < 0.95 * best.cost) best = wide;
  }
  return best;
}

// The form says how a tile is multiplied, by its shape and the problem's alone.
struct TileForm {
  bool swapped = false;                 // dy is broadcast to channels of x side by side
  bool in_place = false;                // the tensors are read as they are
  bool dy_in_place = false;             // dy is
  std::int64_t x_step = 1, k_step = 1;  // channels of a register tile
  std::int64_t part = 1;  // of a vector: a tile's last one begins earlier, to be whole
  int thirds = 1;         // 3: joined rows are multiplied as those of three filter rows
};

// Counts the pixels of x that are packed for each output pixel.
inline double inputs_of_output(const WgradProblem& problem) {
  double count = 1;
  for (const SpatialAxis& axis : problem.axis) {
    count *= static_cast<double>(std::min(axis.taps, axis.stride));
  }
  return count;
}

// Tells whether a tile reads the tensors as they are: that is faster where a packed value would
// meet few others, and fewer where register tiles are small, as each of them reads all pixels
// again. Pixels a multiple of 4 KiB apart share a few sets of a cache. 1x1 filters mind neither
// with vectors of 64 bytes.
template <typename Element>
bool reads_tensors(const OuterProductIsa<Element>& isa, const WgradProblem& problem) {
  constexpr std::int64_t kBytes = sizeof(Element);
  const std::int64_t c = problem.group_c(), k = problem.group_k(), stride = problem.axis[2].stride;
  if (isa.max_columns * kBytes == 128 && problem.taps() * problem.groups * stride == 1) return true;
  const auto packed = static_cast<double>(c) * inputs_of_output(problem) + static_cast<double>(k);
  const auto products = static_cast<double>(problem.taps()) * static_cast<double>(c * k);
  return 8 * products <= 3 * isa.max_rows * isa.max_columns * packed &&
         problem.C * stride * kBytes % 4096 != 0 && problem.K * kBytes % 4096 != 0;
}
template <typename Element>
TileForm tile_form(const OuterProductIsa<Element>& isa, const WgradProblem& problem,
                   const XPanels& panels, const Tile& tile) {
  TileForm form;
  const std::int64_t c = tile.c.size(), k = tile.k.size();
  const std::int64_t rows = panels.joined ? problem.axis[2].taps * c : c;
  // Half of a vector of 64 bytes may be the last.
  const std::int64_t lanes = isa.max_columns / 2,
                     part = lanes == std::int64_t{64 / sizeof(Element)} ? lanes / 2 : lanes;
  const RegisterTile plain = register_tile(isa, rows, k, part);
  const RegisterTile swapped = register_tile(isa, k, rows, part);
  // What is loaded as a vector, or half of one, is there: behind the last there may be nothing. One
  // that would end there begins earlier, in a tile that is not the first and has enough sums. (With
  // narrow vectors that are not aligned, packing is faster.)
  const auto can_load = [&](const RegisterTile& one, std::int64_t side) {
    return side % part == 0 ||
           (part < lanes && (side > one.columns || (side > lanes && one.rows >= 8)));
  };
  // Joined rows are side by side in x, too, where taps are. They read dy so few times that a copy
  // does not pay. What pixels see beside padding is copied: panels have room for few channels.
  const SpatialAxis& w = problem.axis[2];
  const bool in_x = !panels.joined || (problem.groups == 1 && w.dilation == 1 &&
                                       (c <= kFewChannels || !sees_padding(w)));
  const bool in_layout =
      problem.channels_last && dtype_bytes(problem.dtype) == std::int64_t{sizeof(Element)};
  const bool may_read = in_layout && in_x && reads_tensors(isa, problem);
  // The side that fills whole vectors better is in vectors. A swapped sum is turned round, which
  // takes as long as two vectors of a pixel; a value that is packed as long as one.
  const std::int64_t steps =
      std::min(kMaxChunkPixels, ceil_div(term_count(problem), kIsPair<Element> ? 2 : 1));
  const double turning = 2 * static_cast<double>(k * rows) / static_cast<double>(steps);
  const double packing = may_read ? static_cast<double>(rows + k) : 0;
  const bool loads_x = can_load(swapped, rows), loads_dy = can_load(plain, k);
  form.swapped =
      swapped.cost + turning + (loads_x ? 0 : packing) < plain.cost + (loads_dy ? 0 : packing);
  form.x_step = form.swapped ? swapped.columns : plain.rows;
  form.k_step = form.swapped ? swapped.rows : plain.columns;
  // With one vector of dy there are registers for twice as many rows.
  const std::int64_t tiles = ceil_div(rows, 2 * isa.max_rows);
  if (!kIsPair<Element> && panels.joined && !form.swapped && k <= lanes && rows > isa.max_rows &&
      rows % (3 * tiles) == 0) {
    form.x_step = rows / tiles;
    form.thirds = 3;
  }
  const bool loads = form.swapped ? loads_x : loads_dy;
  form.in_place = may_read && loads;
  form.dy_in_place = form.in_place || (in_layout && loads && panels.joined && k == problem.K);
  if (!form.dy_in_place) return form;
  form.part = part;
  std::int64_t& step = form.swapped ? form.x_step : form.k_step;
  const std::int64_t side = form.swapped ? rows : k;
  if (side % part != 0 && side == step) step = lanes;
  return form;
}

}  // namespace convgrad
