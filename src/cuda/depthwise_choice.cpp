// depthwise_choice.cpp - see depthwise_choice.hpp. Steps fix which warp adds a pixel, and with it
// the bits, so they follow from the problem alone.
#include "cuda/depthwise_choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "base/integers.hpp"

namespace convgrad::cuda {
namespace {

// A warp's float32 sums of float32 have at most so many pixels; the rest of a chunk is others'.
constexpr std::int64_t kMostChain = kChunkPixels;
constexpr std::int64_t kMost32 = 2048;  // pixels of a chunk of float32

std::int64_t vector_items(const WgradProblem& problem) {
  return kVectorBytes / dtype_bytes(problem.dtype);
}

Divider divider(int divisor) {
  return {static_cast<std::uint32_t>(ceil_div<std::int64_t>(std::int64_t{1} << 31, divisor))};
}

// Taps and channels of the variant. There are few, as each is compiled for four dtypes; taps beyond
// the filter's are not stored. Four channels leave registers for 3 x 3 taps only.
DepthwiseChoice variant_of(const WgradProblem& problem) {
  DepthwiseChoice choice{};
  const auto R = static_cast<int>(problem.axis[1].taps), S = static_cast<int>(problem.axis[2].taps);
  const auto C = static_cast<int>(problem.group_c());
  const int most = std::max(R, S);
  choice.c = C > 1 ? 4 : 1;
  choice.r = choice.s = choice.c == 4 || most <= 3 ? 3 : most <= 5 ? 5 : 7;
  choice.wide = C == 1 && problem.group_k() == 1 && dtype_bytes(problem.dtype) == 2 ? 2 : 1;
  choice.r_tiles = ceil_div(R, choice.r);
  choice.s_tiles = ceil_div(S, choice.s);
  choice.c_tiles = ceil_div(C, choice.c);
  return choice;
}

std::size_t sum_bytes(const WgradProblem& problem, const DepthwiseChoice& choice) {
  const int sums = choice.r * choice.s * choice.c * choice.wide;
  return static_cast<std::size_t>(sums) * (problem.dtype == DType::f64 ? 8 : 4);
}

// Panels are as even as whole vectors let them be.
int widest_panel(const WgradProblem& problem, const DepthwiseChoice& choice) {
  const std::int64_t most = kWarp * choice.wide;
  const std::int64_t even = ceil_div(problem.K, ceil_div(problem.K, most));
  return static_cast<int>(round_up(even, vector_items(problem)));
}

// Counts the vectors of a pixel of x that the groups of any panel lie in.
int x_vectors(const WgradProblem& problem, const DepthwiseChoice& choice, int panel) {
  const ChannelChoice channels = depthwise_channels(problem).x;
  const std::int64_t apart =
      channels.packs && channels.groups > 1 ? channels.pitch : problem.group_c();
  const std::int64_t K = problem.group_k(), whole = vector_items(problem);
  std::int64_t groups = panel % K == 0 ? panel / K : K % panel == 0 ? 1 : (panel - 2) / K + 2;
  groups = std::min(groups, problem.groups);
  std::int64_t begins = std::gcd(panel % K == 0 ? panel / K * apart : apart, whole);
  if (choice.c_tiles > 1) begins = std::gcd(begins, choice.c);
  return static_cast<int>(ceil_div((groups - 1) * apart + choice.c + whole - begins, whole));
}

Lines lines_of(int vectors, int columns, int planes) {
  const int pitch = vectors * kVectorBytes;
  const std::int64_t line_bytes = round_up(planes * columns * pitch, kBulkAlignment);
  return {vectors, pitch, columns, static_cast<int>(line_bytes), divider(vectors)};
}

// Counts the lines from a step's first to the last that is copied with it, in runs of these steps.
int most_slots(const LineLayout& l, int steps_of_run, std::int64_t steps) {
  int most = 0;
  for (int first = 0; first < std::min<std::int64_t>(steps_of_run, steps); ++first) {
    int span = l.window;
    for (int i = first; i < first + kLinesAhead && i + 1 < steps; ++i) {
      span += (i + 1) % steps_of_run == 0 ? l.window : l.rows * l.row_step;
    }
    most = std::max(most, span);
  }
  return most;
}

// Counts the lines of x that a step adds to those of the one before.
int new_lines(const LineLayout& l) { return std::min(l.window, l.rows * l.row_step); }

// What a layout is made for: the variant, and chunks in outputs.
struct Steps {
  const WgradProblem& problem;
  const DepthwiseChoice& choice;
  const Axis h = axis_of(problem.axis[1]), w = axis_of(problem.axis[2]);
  LineKind kind = LineKind::any;
  int unit_rows = 1;
  std::int64_t planes;
  int rows, last_rows, columns;  // of a full chunk, and of the last along its axis

  Steps(const WgradProblem& of, const DepthwiseChoice& variant, const ChunkGrid& grid)
      : problem(of), choice(variant) {
    const Chunks chunks = chunks_of(grid);
    planes = std::int64_t{chunks.full[0]} * chunks.full[1];
    rows = chunks.full[2];
    last_rows = std::max(chunks.extent[1] - (chunks.pieces[1] - 1) * rows, 1);
    columns = chunks.full[3];
    if (w.dilation == 1 && w.stride == 2) kind = LineKind::twice;
    if (h.dilation == 1 && w.dilation == 1 && h.stride == 1 && w.stride == 1) {
      kind = LineKind::dense;
      unit_rows = strip_rows(sum_bytes(problem, choice));
    }
  }

  void set_rows(LineLayout& l) const {
    l.row_taps = std::min(h.taps, choice.r);
    const int reach = (l.row_taps - 1) * h.dilation + 1;
    l.apart_rows = l.kind != LineKind::dense && (h.stride > l.row_taps || reach > 16);
    l.row_step = l.apart_rows ? l.row_taps : h.stride;
    l.row_tap = l.apart_rows ? 1 : h.dilation;
    l.window = (l.rows - 1) * l.row_step + (l.row_taps - 1) * l.row_tap + 1;
  }
  // Returns the columns of x in a plane's line.
  int set_columns(LineLayout& l) const {
    l.column_taps = std::min(w.taps, choice.s);
    if (l.kind == LineKind::dense) return l.columns + choice.s - 1;
    if (l.kind == LineKind::twice) return 2 * l.columns + choice.s - 2;
    const int near = l.columns + (l.column_taps - 1) * w.dilation,
              apart = l.columns * l.column_taps;
    l.apart_columns = w.stride > 1 || near > apart;
    l.column_tap = l.apart_columns ? l.columns : w.dilation;
    return l.apart_columns ? apart : near;
  }

  std::int64_t count(const LineLayout& l, int of_rows) const {
    return ceil_div<std::int64_t>(planes, l.planes) * ceil_div(columns, l.columns) *
           ceil_div(of_rows, l.rows);
  }
  // Strips that a warp has of a step.
  static int strips_of_warp(const LineLayout& l) {
    return ceil_div(l.strips * l.row_units * l.planes, kDepthwiseWarps);
  }
  // About the instructions of a warp for a chunk.
  double cost(const LineLayout& l) const {
    const double taps = choice.r * choice.s * choice.c * choice.wide;
    const double vectors =
        (new_lines(l) * l.x.line_bytes + l.rows * l.dy.line_bytes) / double{kVectorBytes};
    return static_cast<double>(count(l, rows)) *
           (strips_of_warp(l) * l.unit_rows * kStrip * 1.7 * taps + vectors / 16 + 300);
  }
  std::int64_t chain(const LineLayout& l) const {
    return count(l, rows) * strips_of_warp(l) * l.unit_rows * kStrip;
  }

  // The layout of these steps, if memory has room.
  std::optional<LineLayout> layout(int panel, int of_planes, int units, int strips) const {
    LineLayout l{};
    l.kind = kind;
    l.panel = panel;
    l.planes = of_planes;
    l.row_units = units;
    l.unit_rows = unit_rows;
    l.rows = units * unit_rows;
    l.strips = strips;
    l.columns = strips * kStrip;
    set_rows(l);
    l.x = lines_of(x_vectors(problem, choice, panel), set_columns(l), of_planes);
    l.dy = lines_of(static_cast<int>(ceil_div<std::int64_t>(panel, vector_items(problem))),
                    l.columns, of_planes);
    for (const int some : {rows, last_rows}) {
      const std::int64_t steps = count(l, some);
      l.x_slots = std::max(l.x_slots, most_slots(l, ceil_div(some, l.rows), steps));
      const auto at_once = static_cast<int>(std::min<std::int64_t>(steps, kLinesAhead + 1));
      l.dy_slots = std::max(l.dy_slots, at_once * l.rows);
    }
    l.ahead = kLinesAhead;
    const std::int64_t x_line = l.x.line_bytes, dy_line = l.dy.line_bytes;
    if (l.x_slots * x_line + l.dy_slots * dy_line > kRingBytes) return std::nullopt;
    if (l.window * x_line + l.rows * dy_line > kLeastRingBytes) return std::nullopt;
    l.ring_bytes = static_cast<int>(l.x_slots * x_line + l.dy_slots * dy_line);
    return l;
  }
  // The cheapest, with as few tiles along the row as there can be.
  std::optional<LineLayout> best(int panel) const {
    const int most_units = std::min(ceil_div(rows, unit_rows), 16);
    std::optional<LineLayout> found;
    const int all_strips = ceil_div(columns, kStrip);
    int before = 0;
    for (int tiles = 1; tiles <= all_strips && !found; ++tiles) {
      const int strips = ceil_div(all_strips, tiles);
      if (strips == before) continue;
      before = strips;
      for (int units = 1; units <= most_units; ++units) {
        const bool whole = units * unit_rows >= rows && tiles == 1;
        for (int some = 1; some <= (whole ? std::min<std::int64_t>(planes, 8) : 1); ++some) {
          const std::optional<LineLayout> l = layout(panel, some, units, strips);
          if (l && (!found || cost(*l) < cost(*found))) found = l;
        }
      }
    }
    return found;
  }
};

// Chooses into how many parts lines are cut, so that warps have alike many.
void set_parts(LineLayout& l) {
  const int lines = (new_lines(l) + l.rows) * l.planes;
  const int vectors = std::max(l.x.columns * l.x.vectors, l.dy.columns * l.dy.vectors);
  int least = std::numeric_limits<int>::max();
  for (int parts = 1; parts <= kDepthwiseWarps; ++parts) {
    const int cost = ceil_div(lines * parts, kDepthwiseWarps) *
                     (ceil_div(ceil_div(vectors, parts), kWarp) * 14 + 40);
    if (cost < least) l.parts = parts;
    least = std::min(least, cost);
  }
}

LineLayout layout_of(const WgradProblem& problem, const DepthwiseChoice& choice,
                     const ChunkGrid& grid) {
  const Steps steps(problem, choice, grid);
  int panel = widest_panel(problem, choice);
  std::optional<LineLayout> found = steps.best(panel);
  while (!found && panel > vector_items(problem)) {
    panel = static_cast<int>(round_up(ceil_div(panel, 2), vector_items(problem)));
    found = steps.best(panel);
  }
  LineLayout l = found.value();
  set_parts(l);
  l.by_strips = divider(l.strips);
  l.by_units = divider(l.row_units);
  l.by_planes = divider(l.planes);
  l.by_parts = divider(l.parts);
  return l;
}

// About the clocks of the whole sum on 132 multiprocessors at 1.7 GHz with 3 TB/s. A multiprocessor
// has up to two blocks at a time, which issue 3 instructions a clock, one alone 2.4; it can
// take 1.6 times its share of the memory's bytes.
double estimated_clocks(const WgradProblem& problem, const DepthwiseChoice& choice,
                        const ChunkGrid& grid, int panel) {
  constexpr double kProcessors = kMultiprocessors, kBytes = 1765;  // a clock
  const Chunks chunks = chunks_of(grid);
  double in = chunks.full[0], pixels = in;  // of x and of dy
  bool strides = false;
  for (std::size_t a = 1; a < 4; ++a) {
    const SpatialAxis& axis = problem.axis[a - 1];
    pixels *= chunks.full[a];
    in *= static_cast<double>(std::min(
        axis.in, (chunks.full[a] - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1));
    strides = strides || axis.stride > 1;
  }
  const auto channels = [](std::int64_t some) { return static_cast<double>(some); };
  const double chunk_count = channels(grid.count);
  const double tiles = channels(ceil_div<std::int64_t>(problem.K, panel)) * choice.c_tiles *
                       choice.r_tiles * choice.s_tiles;
  const double blocks = chunk_count * tiles, rounds = std::ceil(blocks / (2 * kProcessors));
  const double of_one = blocks > kProcessors ? 2 * rounds : 1;  // blocks of a multiprocessor
  const double share = of_one * kProcessors / blocks;           // 1: all have alike much
  const double bytes = chunk_count * channels(dtype_bytes(problem.dtype)) *
                       (in * channels(problem.C) + pixels * channels(problem.K));
  const double taps = choice.r * choice.s * choice.c;
  const double products = pixels * choice.wide * (strides ? 2.4 * taps + 3 : 1.5 * taps + 4);
  const double copies =
      (in * x_vectors(problem, choice, panel) + pixels * channels(panel / vector_items(problem))) *
      0.8;
  const double slices = std::min(chunk_count, 2 * kProcessors / tiles + 1);
  return std::max(bytes / kBytes * std::max(1.0, share / 1.6),
                  of_one * (products + copies) / (of_one > 1 ? 3.0 : 2.4)) +
         slices * channels(problem.dw_count()) * 16 / kBytes + rounds * 2500;
}

}  // namespace

ChannelChoices depthwise_channels(const WgradProblem& problem) {
  const auto whole = [&](ChannelChoice choice, std::int64_t channels) {
    choice.packs = choice.packs || channels % vector_items(problem) != 0;
    return choice;
  };
  const std::int64_t unit = problem.group_c() > 1 ? 4 : 1;
  return {whole(channel_choice(problem, problem.group_c(), unit), problem.C),
          whole(channel_choice(problem, problem.group_k(), 1), problem.K)};
}

ChunkGrid depthwise_chunks(const WgradProblem& problem) {
  const DepthwiseChoice choice = variant_of(problem);
  const int panel = widest_panel(problem, choice);
  ChunkGrid best = even_chunk_grid(problem, kMaxChunkPixels);
  if (best.count == 0) return best;
  double least = std::numeric_limits<double>::max();
  const bool is_f32 = problem.dtype == DType::f32;
  for (std::int64_t most = is_f32 ? kMost32 : kLongChunkPixels; most >= 32; most = most * 7 / 8) {
    const ChunkGrid grid = even_chunk_grid(problem, most);
    if (is_f32 && most > kMostChain &&
        Steps(problem, choice, grid).chain(layout_of(problem, choice, grid)) > kMostChain) {
      continue;
    }
    const double clocks = estimated_clocks(problem, choice, grid, panel);
    if (clocks < least * 0.99) best = grid;
    least = std::min(clocks, least);
  }
  return best;
}

DepthwiseChoice depthwise_choice(const WgradProblem& problem) {
  DepthwiseChoice choice = variant_of(problem);
  choice.layout = layout_of(problem, choice, depthwise_chunks(problem));
  choice.k_tiles = static_cast<int>(ceil_div<std::int64_t>(problem.K, choice.layout.panel));
  choice.tiles.count = problem.axis[0].taps * choice.r_tiles * choice.s_tiles;
  choice.tiles.count *= std::int64_t{choice.c_tiles} * choice.k_tiles;
  choice.tiles.resident = resident_blocks(sum_bytes(problem, choice));
  return choice;
}

void copy_none_ahead(LineLayout& layout) {
  layout.ahead = 0;
  layout.x_slots = layout.window;
  layout.dy_slots = layout.rows;
  layout.ring_bytes = layout.x_slots * layout.x.line_bytes + layout.dy_slots * layout.dy.line_bytes;
}

bool lines_are_boxes(const LineLayout& l, const BlockParams& work, int item_bytes) {
  bool sees = true;
  for (int a = 0; a < 3; ++a) {
    sees = sees && work.x.hi[a] > work.x.lo[a] && work.dy.hi[a] > work.dy.lo[a];
  }
  const auto fits = [&](const Lines& lines) {
    return lines.columns <= kMaxBulkBox && lines.pitch / item_bytes <= kMaxBulkBox;
  };
  return sees && l.ahead == kLinesAhead && !l.apart_rows && !l.apart_columns && fits(l.x) &&
         fits(l.dy) && work.chunks.full[3] == work.chunks.extent[2] &&
         (l.planes == 1 || work.chunks.full[1] == 1);
}

// A warp starts up to four copies of a step: its own instructions delay the block.
int log_copiers(const LineLayout& l) {
  int log = 0;
  while (2 << log <= kDepthwiseWarps && 4 << log < new_lines(l) + l.rows) ++log;
  return log;
}

}  // namespace convgrad::cuda
