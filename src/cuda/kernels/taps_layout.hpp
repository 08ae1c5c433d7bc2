// taps_layout.hpp - what of x and dy a stage of wgmma_taps.hpp holds, where its sums are in dw, and
// which chunks a slice has, in plain numbers, the same on device and processor.
#pragma once

#include "cuda/kernels/geometry.hpp"
#include "cuda/kernels/wgmma.hpp"

namespace convgrad::cuda {

inline constexpr int kPanelChannels = kRowBytes / 2;  // of dy: m of one warpgroup
inline constexpr int kStepPixels = 16;                // of one instruction
inline constexpr int kTapsStageBytes = 208 << 10, kMaxTapsStages = 8, kMaxTapsCopies = 14;

// What follows from the shape alone (taps_choice.hpp). Bytes are those of shared memory.
struct TapsLayout {
  // Tiles from the innermost on, and what each has of it; then taps t, then panels of groups: one
  // group, or as many whole ones as 64 channels of x or dy are.
  Divisor k_tiles, c_tiles, s_tiles, r_tiles, t_tiles;
  int tile_k, tile_c, tile_s, tile_r, panel_groups;
  // Panel j of warpgroup g has tap (r, s) = (g * group_r + j * panel_r, j * panel_s) of the tile,
  // input channels from j * panel_c and output channels from g * group_k on.
  int group_r, group_k, panel_r, panel_s, panel_c;
  int warpgroups;  // that have something to do
  // A stage has, of each term (terms.hpp), copies of boxes of x, then of dy.
  struct Copy {
    int at, channel, row, column;  // counted from the tile's first
  };
  Copy copies[kMaxTapsCopies];
  int x_copies, x_plane_bytes, x_box_bytes, dy_copies, dy_plane_bytes, dy_box_bytes;
  int term_bytes, stage_bytes, stages;
  // Where a warpgroup's operands are in a stage, and how far its panels are apart.
  int a_at[3], b_at[3], panel_bytes;
  int pitch, rows, steps;  // a chunk in k
  int together;            // steps that are begun together: 3, 4, 5 or 7; 2 to 4 of three terms
  int x_pitch, x_rows;     // a box of x
  int step_w, step_h;      // of input positions for an output pixel
  // Where filter rows' taps were folded into channels (pack.hpp): what the axis was, and the input
  // channels of one of its taps; else one tap of all channels.
  Axis folded;
  int folded_c;
  bool has_totals;  // slices are longer than one sum
  // The slices (schedule.hpp): of units of chunks each partition has so many, and these are left.
  std::uint32_t units, units_over;
  Divisor tiles, interleave, partitions;
  Divisor cluster;           // of slices of a tile, or one alone
  Divisor sums;              // by the chunks that one float32 sum may have
  std::int64_t slice_sums;   // of a slice's partial gradient: of all tiles
  std::int64_t total_bytes;  // of all slices' sums; totals, or clusters' sums, are behind them
};

struct TapsTile {
  int group, t, r, s, c, k;  // the first of each; c and k within the group
};

CONVGRAD_HD TapsTile taps_tile(const TapsLayout& l, std::uint32_t tile) {
  TapsTile result;
  result.k = static_cast<int>(l.k_tiles.take(tile)) * l.tile_k;
  result.c = static_cast<int>(l.c_tiles.take(tile)) * l.tile_c;
  result.s = static_cast<int>(l.s_tiles.take(tile)) * l.tile_s;
  result.r = static_cast<int>(l.r_tiles.take(tile)) * l.tile_r;
  result.t = static_cast<int>(l.t_tiles.take(tile));
  result.group = static_cast<int>(tile) * l.panel_groups;
  return result;
}

// Where sum (row, column) of a warpgroup is in dw; -1 if it is none of dw's.
CONVGRAD_HD std::int64_t taps_place(const TapsLayout& l, const Shape& shape, const TapsTile& tile,
                                    int panel_width, int warpgroup, int row, int column) {
  const int panel = column / panel_width, k = tile.k + warpgroup * l.group_k + row,
            c = tile.c + panel * l.panel_c + column % panel_width,
            r = tile.r + warpgroup * l.group_r + panel * l.panel_r, s = tile.s + panel * l.panel_s;
  if (r >= shape.axis[1].taps || s >= shape.axis[2].taps || warpgroup >= l.warpgroups) return -1;
  int in_group = c;
  if (l.panel_groups == 1) {
    if (k >= shape.group_k || c >= shape.group_c) return -1;
  } else {
    const int group = k / shape.group_k;
    in_group = c - group * shape.group_c;
    if (in_group < 0 || in_group >= shape.group_c) return -1;
    if (group >= l.panel_groups || tile.group + group >= shape.groups) return -1;
  }
  const int tap = (tile.t * shape.axis[1].taps + r) * shape.axis[2].taps + s;
  return (static_cast<std::int64_t>(tap) * shape.group_c + in_group) * shape.K +
         tile.group * shape.group_k + k;
}

// A task is a tile of a slice: slices of a cluster are inside, then tiles. There are fewer than
// 2^31, and chunks as well (device_kernels.cpp).
struct TapsTask {
  std::uint32_t slice, tile;
  CONVGRAD_HD TapsTask(const BlockParams& w, const TapsLayout& l, std::int64_t number) {
    auto rest = static_cast<std::uint32_t>(number);
    slice = static_cast<std::uint32_t>(w.first_slice) + l.cluster.take(rest);
    tile = l.tiles.take(rest);
    slice += rest * l.cluster.value;
  }
};

// The chunks of a slice in the block, as dealt_chunks() has them: `left` from `chunk` on, how many
// are before them, and all. Divisions would take longer than all else before the first product.
struct TapsWalk {
  std::uint32_t chunk, step, left, before, all;

  CONVGRAD_HD TapsWalk(const BlockParams& w, const TapsLayout& l, std::uint32_t slice)
      : step(l.interleave.value), left(0) {
    std::uint32_t partition = slice;
    const std::uint32_t own = l.interleave.take(partition);
    const std::uint32_t first = begin_of(w, l, partition) + own,
                        end = begin_of(w, l, partition + 1);
    const auto here = static_cast<std::uint32_t>(w.chunk_begin),
               stop = least(end, static_cast<std::uint32_t>(w.chunk_end));
    const auto steps = [&](std::uint32_t from, std::uint32_t to) {
      return from < to ? l.interleave.quotient(to - from + step - 1) : 0;
    };
    all = steps(first, end);
    before = steps(first, here);
    chunk = first + before * step;
    left = steps(chunk, stop);
  }
  CONVGRAD_HD static std::uint32_t begin_of(const BlockParams& w, const TapsLayout& l,
                                            std::uint32_t partition) {
    return (l.units * partition + l.partitions.quotient(l.units_over * partition)) *
           static_cast<std::uint32_t>(w.unit);
  }
};

// What of a slice's next sum a block has, behind `done` chunks: `count` chunks from `chunk` on.
// Earlier blocks had `before` of the sum.
struct TapsSum {
  std::uint32_t chunk;
  int before, count;
  bool ended, first;

  CONVGRAD_HD TapsSum(const TapsWalk& walk, const Divisor& sums, std::uint32_t done) {
    const std::uint32_t at = walk.before + done;
    chunk = walk.chunk + done * walk.step;
    std::uint32_t sum = at;
    before = static_cast<int>(sums.take(sum));
    const int rest =
        static_cast<int>(least(sums.value - static_cast<std::uint32_t>(before), walk.all - at));
    count = least(rest, static_cast<int>(walk.left - done));
    ended = count == rest;
    first = sum == 0;
  }
};

// The form of a Body's partial gradients (reduce.hpp): sums of a slice, or the totals of long ones.
template <class Body, typename Number>
struct TapsSums {
  using Value = Number;
  struct Params {
    TapsLayout layout;
    Shape shape;
  };
  static constexpr bool kWholeVectors = true;

  CONVGRAD_HD static Value nothing() { return Value(-0.0f); }
  CONVGRAD_HD static double value(Value sum) { return sum; }
  CONVGRAD_HD static std::int64_t elements(const Params& p) { return p.layout.slice_sums; }
  // Elements of a vector are of one thread, two by two in a row.
  struct Places {
    const Params& p;
    TapsTile tile;
    int group, row, column, first;

    CONVGRAD_HD Places(const Params& params, std::int64_t element) : p(params) {
      auto rest = static_cast<std::uint32_t>(element);
      first = take(rest, 4);
      const int thread = take(rest, kWarpgroup), vector = take(rest, Body::kVectors);
      group = take(rest, Body::kGroupCount);
      tile = taps_tile(p.layout, rest);
      Body::Op::c_place(thread, vector * 4, row, column);
    }
    CONVGRAD_HD std::int64_t at(int i) const {
      const int e = first + i;
      return taps_place(p.layout, p.shape, tile, Body::kRowX / 2, group, row + e / 2 * 8,
                        column + e % 2);
    }
  };
};

}  // namespace convgrad::cuda
