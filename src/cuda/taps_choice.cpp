// taps_choice.cpp - see taps_choice.hpp.
#include "cuda/taps_choice.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/integers.hpp"

namespace convgrad::cuda {
namespace {

// float32 is multiplied as three bfloat16, in six products.
int terms_of(const WgradProblem& problem) { return problem.dtype == DType::f32 ? 3 : 1; }
int products_of(const WgradProblem& problem) { return problem.dtype == DType::f32 ? 6 : 1; }

struct Width {
  int channels, panels, warpgroups;  // of WgmmaTaps
  int columns() const { return channels * panels; }
  // Clocks of the tensor cores for a step of one warpgroup, of 64 rows.
  int clocks() const { return columns() / 2; }
  std::int64_t tile_bytes() const { return std::int64_t{warpgroups} * columns() * 64 * 4; }
};

const Width& width_of(TapsKind kind) {
  static constexpr Width kWidths[] = {{64, 3, 3}, {32, 3, 3}, {64, 2, 2}, {32, 4, 2}};
  return kWidths[static_cast<std::size_t>(kind)];
}

bool is_of_rows(TapsKind kind) { return kind == TapsKind::rows64 || kind == TapsKind::rows32; }

// About what an H100 does in a clock of 1.755 GHz: bytes that a multiprocessor gets from L2 and
// writes there, that all get from memory, and that the tree reads; and clocks to begin and end.
constexpr double kFromL2 = 21, kToL2 = 10, kFromMemory = 1500, kTree = 1300, kShared = 128;
constexpr double kBegin = 2500, kTreeBegin = 3000, kChunkBegin = 60;
// A float32 sum has at most so many pixels; half of that where x and dy or dw are float32.
constexpr std::int64_t kSumPixels = 4096;

// How a candidate has x in shared memory.
struct Way {
  TapsKind kind;
  bool folds, rows_apart, columns_apart;  // a plane for each tap along h, along w
  int columns;                            // of a chunk: less than a row, or the whole
  int rows;
};

int small(std::int64_t value) { return static_cast<int>(value); }

// Makes taps of filter rows channels.
WgradProblem folded(const WgradProblem& problem) {
  WgradProblem result = problem;
  SpatialAxis& w = result.axis[2];
  result.C = problem.C * w.taps;
  w = SpatialAxis{};
  w.in = w.out = problem.axis[2].out;
  return result;
}

class Layout {
 public:
  Layout(const WgradProblem& problem, const Way& way) : problem_(problem), way_(way) {}

  // Nothing where it does not fit.
  std::optional<TapsLayout> make() {
    if (!set_tiles()) return std::nullopt;
    l_.step_w = small(w_.stride);
    l_.step_h = small(h_.stride);
    l_.rows = way_.rows;
    const bool shifts_columns = of_rows() && !way_.columns_apart;
    // Columns of dy beyond the chunk must be outside dy.
    const int beyond = shifts_columns ? small((l_.tile_s - 1) * w_.dilation) : 0;
    const int x_pitch = way_.columns + beyond;
    l_.pitch = way_.columns == w_.out ? x_pitch : way_.columns;
    set_steps(ceil_div(l_.rows * l_.pitch, kStepPixels));
    if (!set_copies(x_pitch)) return std::nullopt;
    const auto fits = [](std::int64_t extent, std::int64_t step) {
      return extent == 1 || (step <= kMaxBulkStep && extent * step <= kMaxBulkBox);
    };
    if (!fits(x_pitch, w_.stride) || !fits(l_.x_rows, h_.stride) || !fits(l_.pitch, 1)) {
      return std::nullopt;
    }
    l_.term_bytes = l_.x_copies * l_.x_plane_bytes + l_.dy_copies * l_.dy_plane_bytes;
    l_.stage_bytes = l_.term_bytes * terms_of(problem_);
    l_.stages = std::min(kTapsStageBytes / l_.stage_bytes, kMaxTapsStages);
    if (l_.stages < 2 || l_.panel_bytes >= 1 << 18) return std::nullopt;
    return l_;
  }

 private:
  bool of_rows() const { return is_of_rows(way_.kind); }

  // False where copies of some group could not begin.
  bool set_tiles() {
    const std::int64_t group_c = problem_.group_c(), group_k = problem_.group_k();
    // Whole groups share a panel.
    const std::int64_t together = std::min<std::int64_t>(
        {width_.channels / group_c, kPanelChannels / group_k, problem_.groups});
    l_.panel_groups = small(std::max<std::int64_t>(together, 1));
    // Copies begin at whole vectors of 16 bytes.
    const auto begins_at_vectors = [&] {
      return l_.panel_groups >= problem_.groups ||
             (l_.panel_groups * group_c % 8 == 0 && l_.panel_groups * group_k % 8 == 0);
    };
    while (l_.panel_groups > 1 && !begins_at_vectors()) --l_.panel_groups;
    if (!begins_at_vectors()) return false;
    l_.warpgroups = width_.warpgroups;
    l_.tile_k = kPanelChannels;
    l_.tile_c = width_.channels;
    l_.tile_r = l_.tile_s = 1;
    if (of_rows()) {
      l_.tile_r = small(std::min<std::int64_t>(h_.taps, 3));
      l_.tile_s = small(std::min<std::int64_t>(w_.taps, 3));
      l_.warpgroups = l_.tile_r;
      l_.group_r = l_.panel_s = 1;
    } else if (way_.folds) {
      l_.tile_r = 2 * width_.panels;
      if (h_.taps <= width_.panels && !alternates()) {
        l_.tile_r = width_.panels;
        l_.warpgroups = 1;
      }
      l_.group_r = alternates() ? 1 : width_.panels;
      l_.panel_r = alternates() ? 2 : 1;
    } else if (l_.panel_groups == 1) {
      l_.panel_c = width_.channels;
      if (group_c > width_.channels) l_.tile_c *= width_.panels;
      l_.group_k = kPanelChannels;
      l_.tile_k = group_k > kPanelChannels ? 2 * kPanelChannels : kPanelChannels;
      l_.warpgroups = l_.tile_k / kPanelChannels;
    } else {
      l_.panel_c = width_.channels;  // of the second panel there is nothing
      l_.warpgroups = 1;
    }
    if (l_.panel_groups > 1) {
      l_.tile_k = small(l_.panel_groups * group_k);
      l_.tile_c = small(l_.panel_groups * group_c);
    }
    l_.k_tiles = divisor(ceil_div<std::int64_t>(group_k, l_.tile_k));
    l_.c_tiles = divisor(ceil_div<std::int64_t>(group_c, l_.tile_c));
    l_.s_tiles = divisor(ceil_div<std::int64_t>(w_.taps, l_.tile_s));
    l_.r_tiles = divisor(ceil_div<std::int64_t>(h_.taps, l_.tile_r));
    l_.t_tiles = divisor(problem_.axis[0].taps);
    return true;
  }

  // As few steps as there can be, of which as many as can be are begun together.
  void set_steps(int least) {
    l_.steps = std::numeric_limits<int>::max();
    for (const int together : {7, 5, 4, 3, 2}) {
      const int steps = small(round_up(least, together));
      if (steps >= l_.steps || (terms_of(problem_) > 1 ? together > 4 : together < 3)) continue;
      l_.steps = steps;
      l_.together = together;
    }
  }

  // With stride 2, even and odd filter rows see even and odd rows of x: one of them a warpgroup.
  bool alternates() const { return h_.stride == 2 && h_.dilation == 1 && !way_.rows_apart; }

  // A plane of x has what rows' taps see that differ by whole strides. False if they are too many.
  bool set_copies(int x_pitch) {
    const int row_bytes = width_.channels * 2;
    std::vector<int> planes;              // the first row of each
    std::vector<int> plane_of, shift_of;  // of each row of taps in a tile
    int halo = 0;
    const auto stride = small(h_.stride), dilation = small(h_.dilation);
    const auto taps = small(std::min<std::int64_t>(l_.tile_r, h_.taps));
    for (int r = 0; r < l_.tile_r; ++r) {
      // Panels of no tap have a plane of their own, or are behind one.
      const int at = (way_.rows_apart ? r : std::min(r, taps - 1)) * (h_.taps > 1 ? dilation : 0);
      const int first = way_.rows_apart ? at : at % stride,
                shift = way_.rows_apart ? 0 : at / stride;
      const auto found = std::ranges::find(planes, first);
      plane_of.push_back(small(found - planes.begin()));
      shift_of.push_back(shift);
      if (found == planes.end()) planes.push_back(first);
      halo = std::max(halo, shift);
    }
    l_.x_pitch = x_pitch;
    l_.x_rows = l_.rows + halo;
    l_.x_box_bytes = l_.x_rows * x_pitch * row_bytes;
    l_.x_plane_bytes = small(round_up(l_.x_box_bytes, kSwizzleBytes));
    const int h_planes = small(std::ssize(planes));
    const int side = of_rows()
                         ? (way_.columns_apart ? l_.tile_s : 1)
                         : (l_.panel_c > 0 && l_.tile_c > width_.channels ? width_.panels : 1);
    l_.x_copies = side * h_planes;
    if (l_.x_copies > kMaxTapsCopies) return false;
    for (int i = 0; i < side; ++i) {
      for (int j = 0; j < h_planes; ++j) {
        const int n = i * h_planes + j;
        l_.copies[n] = {n * l_.x_plane_bytes, of_rows() ? 0 : i * l_.panel_c,
                        planes[static_cast<std::size_t>(j)],
                        of_rows() ? i * small(w_.dilation) : 0};
      }
    }
    const auto row_at = [&](int r) {
      const auto at = static_cast<std::size_t>(std::min(r, l_.tile_r - 1));
      return plane_of[at] * l_.x_plane_bytes + shift_of[at] * x_pitch * row_bytes;
    };
    for (int g = 0; g < l_.warpgroups; ++g) l_.b_at[g] = row_at(g * l_.group_r);
    l_.panel_bytes = side > 1     ? h_planes * l_.x_plane_bytes
                     : of_rows()  ? small(w_.dilation) * row_bytes
                     : way_.folds ? row_at(l_.panel_r) - row_at(0)
                                  : 0;
    l_.dy_copies = l_.tile_k > kPanelChannels ? 2 : 1;
    l_.dy_box_bytes = l_.rows * l_.pitch * kRowBytes;
    l_.dy_plane_bytes = small(round_up(l_.steps * kStepPixels * kRowBytes, kSwizzleBytes));
    for (int g = 0; g < l_.warpgroups; ++g) {
      l_.a_at[g] = l_.x_copies * l_.x_plane_bytes + (l_.dy_copies > 1 ? g * l_.dy_plane_bytes : 0);
    }
    return true;
  }

  const WgradProblem& problem_;
  const Way& way_;
  const Width width_ = width_of(way_.kind);
  const SpatialAxis &h_ = problem_.axis[1], &w_ = problem_.axis[2];
  TapsLayout l_{};
};

// Chunks are `rows` rows of an image, or pieces of one row.
ChunkGrid grid_of(const WgradProblem& problem, const Way& way) {
  ChunkGrid grid;
  grid.extent = {problem.N, problem.axis[0].out, problem.axis[1].out, problem.axis[2].out};
  const bool whole = way.columns == problem.axis[2].out;
  grid.axis = whole ? 2 : 3;
  grid.step = whole ? way.rows : way.columns;
  const auto at = static_cast<std::size_t>(grid.axis);
  grid.pieces = ceil_div(grid.extent[at], grid.step);
  grid.count = grid.pieces;
  for (std::size_t a = 0; a < at; ++a) grid.count *= grid.extent[a];
  return grid;
}

double chunk_clocks(const TapsLayout& l, const Width& width, const WgradProblem& problem) {
  const double steps = l.steps * l.warpgroups * products_of(problem);
  const double products = steps * width.clocks();
  const double bytes =
      terms_of(problem) * (l.x_copies * l.x_box_bytes + l.dy_copies * l.dy_box_bytes);
  const double operands = steps * (64.0 + width.columns()) * 32;
  const double clocks =
      std::max({products, bytes / kFromL2, (operands + bytes) / kShared}) + kChunkBegin;
  return l.stages > 2 ? clocks : clocks * 1.15;  // little is under way
}

// Counts the chunks of the longest slice: partitions are of whole images, and may differ by one.
std::int64_t longest_slice(const SliceGrid& slices) {
  const std::int64_t units = ceil_div(ceil_div(slices.chunks, slices.unit), slices.partitions);
  return ceil_div(units * slices.unit, slices.interleave);
}

// The time of these slices, in clocks.
double clocks_of(const TapsChoice& choice, const SliceGrid& slices, double each) {
  const TapsLayout& l = choice.layout;
  const Width& width = width_of(choice.kind);
  const double stored = static_cast<double>(width.tile_bytes()) * l.warpgroups / width.warpgroups;
  const double bytes = 2.0 * terms_of(choice.problem) *
                       static_cast<double>(choice.problem.x_count() + choice.problem.dy_count());
  const std::int64_t blocks = slices.count() * choice.tiles;
  const auto waves = static_cast<double>(ceil_div(blocks, kMultiprocessors));
  const auto longest = static_cast<double>(longest_slice(slices));
  const bool has_totals = longest_slice(slices) > l.sums.value;
  return std::max(waves * longest * each, bytes / kFromMemory) +
         waves * (kBegin + stored / kToL2 * (has_totals ? 4 : 1)) + kTreeBegin +
         static_cast<double>(blocks) * stored / kTree * (has_totals ? 2 : 1);
}

// Returns the slices that take the least time, and that time.
std::pair<SliceGrid, double> best_slices(const TapsChoice& choice, std::int64_t least_chunks) {
  const Width& width = width_of(choice.kind);
  const double each = chunk_clocks(choice.layout, width, choice.problem);
  const std::int64_t most =
      std::min({choice.grid.count / least_chunks, kMostWaves * kMultiprocessors / choice.tiles,
                kMaxPartialBytes / (choice.tiles * width.tile_bytes())});
  std::pair<SliceGrid, double> best = {{}, std::numeric_limits<double>::max()};
  for (std::int64_t slices = 1; slices <= std::max<std::int64_t>(most, 1); ++slices) {
    for (const std::int64_t partitions : {kPartitions, std::min(slices, kMostInterleave)}) {
      const SliceGrid dealt = deal_slices(choice.grid, slices, partitions, kMostInterleave);
      const double time = clocks_of(choice, dealt, each);
      if (time < best.second) best = {dealt, time};
    }
  }
  return best;
}

// Calls f(way) for all ways to have the problem in shared memory.
template <class F>
void each_way(const WgradProblem& problem, F&& f) {
  const SpatialAxis &h = problem.axis[1], &w = problem.axis[2];
  const bool folds = problem.groups == 1 && problem.C < 16 && problem.C * w.taps <= 64;
  for (const TapsKind kind :
       {TapsKind::rows64, TapsKind::rows32, TapsKind::panels64, TapsKind::panels32}) {
    const bool of_rows = is_of_rows(kind);
    if (of_rows && (folds || h.taps == 1 || w.taps == 1)) continue;
    if (!of_rows && folds && (problem.C * w.taps <= 32) != (kind == TapsKind::panels32)) continue;
    if (kind == TapsKind::panels32 && !folds) continue;
    // Three terms' sums take twice the registers.
    if (kind == TapsKind::rows64 && terms_of(problem) > 1) continue;
    for (const bool rows_apart : {false, true}) {
      if (rows_apart && (h.taps == 1 || (!of_rows && !folds))) continue;
      // Panels that are filter rows' taps must be evenly apart.
      const bool even = h.stride == 1 || (h.stride == 2 && h.dilation == 1) || h.taps == 1;
      if (folds && !rows_apart && !even) continue;
      for (const bool columns_apart : {false, true}) {
        // Neighbouring pixels' taps are neighbours without a stride alone.
        if (of_rows ? w.stride > 1 && !columns_apart : columns_apart) continue;
        const int out = small(std::min<std::int64_t>(w.out, kMaxExtent));
        Way way{kind, folds, rows_apart, columns_apart, out, 1};
        const std::int64_t most = std::clamp<std::int64_t>(kChunkPixels / out, 1, h.out);
        for (; out <= kMaxBulkBox && way.rows <= most; ++way.rows) {
          // Even chunks alone: the last one is as long as others, or nearly.
          const std::int64_t chunks = ceil_div<std::int64_t>(h.out, way.rows);
          if (ceil_div(h.out, chunks) == way.rows) f(way);
        }
        way.rows = 1;
        const int most_pieces = std::min(ceil_div(out, 16), 63);
        for (int pieces = ceil_div(out, 240); pieces <= most_pieces; ++pieces) {
          way.columns = small(round_up(ceil_div(out, pieces), kStepPixels));
          if (way.columns < out && ceil_div(out, way.columns) == pieces) f(way);
        }
      }
    }
  }
}

}  // namespace

TapsChoice taps_choice(const WgradProblem& original) {
  WgradProblem shape = original;
  shape.C = std::max(shape.C, shape.groups);
  shape.K = std::max(shape.K, shape.groups);
  for (SpatialAxis& axis : shape.axis) axis.out = std::max<std::int64_t>(axis.out, 1);
  const WgradProblem fold = folded(shape);
  const std::int64_t most_pixels =
      dtype_bytes(original.out_dtype) == 2 && terms_of(original) == 1 ? kSumPixels : kSumPixels / 2;
  // Of each kind only the ways whose loops are the shortest, as slices take time to choose.
  constexpr std::size_t kMost = 3;
  std::map<std::array<bool, 4>, std::vector<std::pair<double, TapsChoice>>> candidates;
  each_way(shape, [&](const Way& way) {
    const WgradProblem& problem = way.folds ? fold : shape;
    const std::optional<TapsLayout> layout = Layout(problem, way).make();
    if (!layout) return;
    TapsChoice choice{way.kind, way.folds, problem, *layout, grid_of(problem, way), 0};
    TapsLayout& l = choice.layout;
    choice.tiles = ceil_div<std::int64_t>(problem.groups, l.panel_groups);
    for (const Divisor& of : {l.k_tiles, l.c_tiles, l.s_tiles, l.r_tiles, l.t_tiles}) {
      choice.tiles *= of.value;
    }
    l.folded.taps = 1;
    if (way.folds) l.folded = axis_of(shape.axis[2]);
    l.folded_c = small(shape.C);
    const std::int64_t pixels = way.rows * std::int64_t{way.columns};
    l.sums = divisor(std::max<std::int64_t>(most_pixels / pixels, 1));
    const double clocks = static_cast<double>(choice.tiles * choice.grid.count) *
                          chunk_clocks(l, width_of(way.kind), problem);
    const auto kind = static_cast<int>(way.kind);
    auto& best = candidates[{kind % 2 == 1, kind > 1, way.rows_apart, way.columns_apart}];
    best.emplace_back(clocks, choice);
    std::ranges::stable_sort(best, {}, &std::pair<double, TapsChoice>::first);
    if (best.size() > kMost) best.pop_back();
  });
  TapsChoice best{};
  double shortest = std::numeric_limits<double>::max();
  for (const auto& [kind, some] : candidates) {
    for (const auto& [clocks, choice] : some) {
      const double time = best_slices(choice, 1).second;
      if (time < shortest) best = choice;
      shortest = std::min(time, shortest);
    }
  }
  if (term_count(original) == 0 || original.dw_count() == 0) best.grid.count = 0;
  best.layout.slice_sums = best.tiles * width_of(best.kind).tile_bytes() / 4;
  return best;
}

SliceGrid taps_slices(const TapsChoice& choice, std::int64_t least_chunks) {
  if (choice.grid.count == 0) return deal_slices(choice.grid, 1, kPartitions, 1);
  return best_slices(choice, least_chunks).first;
}

TapsLayout with_slices(const TapsChoice& choice, const SliceGrid& slices) {
  TapsLayout layout = choice.layout;
  layout.has_totals = longest_slice(slices) > layout.sums.value;
  const std::int64_t parts = std::max<std::int64_t>(slices.partitions, 1);
  layout.units = static_cast<std::uint32_t>(slices.chunks / slices.unit / parts);
  layout.units_over = static_cast<std::uint32_t>(slices.chunks / slices.unit % parts);
  layout.tiles = divisor(choice.tiles);
  layout.interleave = divisor(slices.interleave);
  layout.partitions = divisor(parts);
  layout.total_bytes = slices.count() * layout.slice_sums * 4;
  return layout;
}

// A cluster is on one of about eight parts of a device, of 16 multiprocessors or a few more. Where
// that takes more waves than blocks alone do, it would cost more than the tree.
int cluster_of(const TapsChoice& choice, const SliceGrid& slices) {
  const std::int64_t count = slices.count(), blocks = std::min(count, kMostBlocks);
  if (count % blocks != 0 || longest_slice(slices) > choice.layout.sums.value) return 0;
  const std::int64_t at_a_time = blocks > 1 ? 8 * (16 / blocks) : kMultiprocessors;
  const std::int64_t waves = ceil_div(choice.tiles * count / blocks, at_a_time);
  return waves > ceil_div(choice.tiles * count, kMultiprocessors) ? 0 : small(blocks);
}

std::int64_t taps_partial_bytes(const TapsChoice& choice, const SliceGrid& slices) {
  const TapsLayout layout = with_slices(choice, slices);
  // Totals are float64, and so are clusters' sums, of an eighth of the slices.
  return layout.has_totals ? layout.total_bytes * 3 : layout.total_bytes / 4 * 5;
}

ChannelChoice taps_channels(const WgradProblem& problem, std::int64_t channels) {
  const int terms = terms_of(problem);
  return {1, channels, round_up(channels, 8),
          !problem.channels_last || channels % 8 != 0 || terms > 1, terms};
}

std::int64_t folded_pitch(const TapsChoice& choice) { return round_up(choice.problem.C, 8); }

std::int64_t taps_packed_bytes(const WgradProblem& problem, std::int64_t x_bytes,
                               std::int64_t dy_bytes) {
  const std::int64_t dy = packed_bytes(taps_channels(problem, problem.K), dy_bytes);
  const TapsChoice choice = taps_choice(problem);
  if (!choice.folds) return packed_bytes(taps_channels(problem, problem.C), x_bytes) + dy;
  // As many columns as dy has, of all rows of x: a block has whole ones of either, or a piece of
  // one row of dy and the rows that its taps see.
  const SpatialAxis& w = problem.axis[2];
  const std::int64_t item = dtype_bytes(problem.dtype);
  const std::int64_t x_pixels = x_bytes / (item * std::max<std::int64_t>(problem.C, 1));
  std::int64_t pixels = ceil_div(x_pixels, std::max<std::int64_t>(w.in, 1)) * w.out;
  std::int64_t of_piece = dy_bytes / (item * problem.K);
  if (of_piece <= w.out) {
    for (std::size_t a = 0; a < 2; ++a) {
      const SpatialAxis& axis = problem.axis[a];
      of_piece *= std::min((axis.taps - 1) * axis.dilation + 1, axis.in);
    }
    pixels = std::max(pixels, of_piece);
  }
  return pixels * folded_pitch(choice) * 2 * terms_of(problem) + 256 + dy;
}

}  // namespace convgrad::cuda
