// streaming_wgrad.cpp - depthwise and small groups. A lane is an output channel; x is spread so
// that each lane has the value of its own group beside its dy, and no product is wasted on other
// groups.
//
// The sums of several filter rows and their taps (all of 3x3 and 5x5) stay in registers, so that x
// and dy pass through once; over a chunk they are kept in the data's type and then added to the
// float64 partial. Where a lane's x and dy lie side by side in memory as they are, nothing is
// copied: a few rows at a time go through all lanes, in spans of outputs that see x with the same
// taps, while the next rows are fetched. Otherwise x is packed into panels [pixel][lane] with zeros
// for padding, dy into panels [pixel][lane].
#include "cpu/streaming_wgrad.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "cpu/direct_wgrad.hpp"
#include "cpu/in_place_walk.hpp"
#include "cpu/isa_set.hpp"
#include "cpu/pack.hpp"
#include "cpu/region.hpp"
#include "cpu/stream_shape.hpp"

namespace convgrad {
namespace {

constexpr std::int64_t kMostLanes = 64;  // of a panel
constexpr std::int64_t kTileK = 256;     // output channels of a tile with one input channel each
// Groups wider than this fill the lanes of outer_product.
constexpr std::int64_t kMostGroupC = 16;
// Sets of lanes in a tile: of the 2 doubles that the narrowest vector has, at least.
constexpr std::size_t kMostLaneSets = kTileK / 2 + 1;
constexpr int kMostTaps = 7;  // of a filter row in registers, and filter rows

// Output channels of a tile: whole groups, so that direct_chunk() can take over any tile.
std::int64_t tile_k(const WgradProblem& problem) {
  const std::int64_t group_k = problem.group_k();
  const std::int64_t most = std::max(kTileK / problem.group_c(), kMostLanes);
  const std::int64_t groups = std::max<std::int64_t>(most / group_k, 1);  // in a tile
  return ceil_div(problem.groups, ceil_div(problem.groups, groups)) * group_k;
}

// Room for the sums of a tile's taps and lanes, and for those of its last vectors.
std::int64_t sum_elements(const WgradProblem& problem) {
  return round_up(problem.taps() * (tile_k(problem) + 2 * kMostLanes), kMostLanes);
}

template <typename Scalar, typename Acc>
class StreamingTile {
 public:
  StreamingTile(const IsaSet& set, const WgradProblem& problem, const Block& block,
                const Tile& tile, Acc* workspace)
      : packer_(outer_product_isa<Acc>(set)),
        isa_(streaming_isa<Acc>(set)),
        pb_(problem),
        block_(block),
        tile_(tile),
        shape_(stream_shape(problem)),
        sums_(workspace),
        dy_panel_(sums_ + sum_elements(problem)),
        x_panel_(dy_panel_ + kMaxChunkPixels * kMostLanes) {
    const SpatialAxis &ah = problem.axis[1], &aw = problem.axis[2];
    const std::int64_t most = std::min(isa_.sums, kMostTaps);
    taps_ = ceil_div(aw.taps, ceil_div(aw.taps, most));
    const std::int64_t rows = std::min<std::int64_t>(isa_.sums / taps_, kMostTaps);
    rows_ = ceil_div(ah.taps, ceil_div(ah.taps, rows));
    vectors_ = std::min<std::int64_t>(isa_.sums / (rows_ * taps_), isa_.vectors);
    list_lanes();
  }

  // False if dy is not finite where the x panel holds zeros for padding.
  bool add_chunk(const PixelBox& box, const PixelBox* next, double* partial) {
    box_ = box;
    input_ = input_box(pb_, box);
    if (in_place_x()) {
      add_in_place(next, partial);
      return true;
    }
    if (has_padding() && !dy_is_finite()) return false;
    for (const Lanes& lanes : lane_sets()) {
      use_lanes(lanes, sums_);
      load_dy();
      for (std::int64_t c = tile_.c.begin; c < tile_.c.end; ++c) {
        std::fill_n(lane_sums_, pb_.taps() * width(), Acc{0});
        pack_x(c);
        add_panel();
        flush(c, partial);
      }
    }
    return true;
  }

 private:
  // Fewer channels than a vector has lanes are packed.
  bool in_place_dy() const { return shape_.dy_in_place && tile_.k.size() >= isa_.lanes; }
  bool in_place_x() const { return shape_.x_in_place && in_place_dy(); }

  bool has_padding() const { return sees_padding(pb_.axis[1]) || sees_padding(pb_.axis[2]); }

  // Output channels that are worked on together: whole vectors, and what is then left as the last
  // lanes of a vector that begins earlier, or, packed, as the first of one with zeros.
  struct Lanes {
    Range k;
    std::int64_t vectors;
    std::int64_t first;  // lanes before it belong to the one before
  };
  void list_lanes() {
    const std::int64_t lanes = isa_.lanes;
    for (std::int64_t k = tile_.k.begin; k < tile_.k.end; k = lanes_[lanes_count_++].k.end) {
      const std::int64_t left = tile_.k.end - k;
      if (left >= lanes || !in_place_dy()) {
        const std::int64_t vectors = std::clamp<std::int64_t>(left / lanes, 1, vectors_);
        lanes_[lanes_count_] = {{k, std::min(k + vectors * lanes, tile_.k.end)}, vectors, 0};
      } else {
        lanes_[lanes_count_] = {{tile_.k.end - lanes, tile_.k.end}, 1, lanes - left};
      }
    }
  }
  std::span<const Lanes> lane_sets() const {
    return {lanes_.data(), static_cast<std::size_t>(lanes_count_)};
  }
  void use_lanes(const Lanes& lanes, Acc* sums) {
    k_ = lanes.k;
    width_vectors_ = lanes.vectors;
    first_lane_ = lanes.first;
    lane_sums_ = sums;
    view_.sum_tap = width();
    view_.sum_row = pb_.axis[2].taps * width();
  }

  // Adds lane_sums_ to the partial of channel c.
  void flush(std::int64_t c, double* partial) const {
    for (std::int64_t tap = 0; tap < pb_.taps(); ++tap) {
      const Acc* sums = lane_sums_ + tap * width();
      double* out = partial + (tap * pb_.group_c() + c) * pb_.K + k_.begin;
      for (std::int64_t j = first_lane_; j < k_.size(); ++j) {
        out[j] += static_cast<double>(sums[j]);
      }
    }
  }
  std::int64_t width() const { return width_vectors_ * isa_.lanes; }

  PackSource source(const void* data, std::int64_t offset, std::int64_t pixel_stride,
                    std::int64_t channel_stride) const {
    return {static_cast<const Scalar*>(data) + offset, nullptr, static_cast<int>(pb_.dtype),
            pixel_stride, channel_stride};
  }

  template <typename Function>
  static void for_each_row(const PixelBox& box, Function&& function) {
    for (std::int64_t n = box[0].begin; n < box[0].end; ++n) {
      for (std::int64_t z = box[1].begin; z < box[1].end; ++z) {
        for (std::int64_t p = box[2].begin; p < box[2].end; ++p) function(n, z, p);
      }
    }
  }

  // Looks at the tile's dy where it stands.
  bool dy_is_finite() const {
    for (Region region = dy_region(pb_, block_, box_, tile_.k); !region.done(); region.advance()) {
      const auto* values = reinterpret_cast<const Scalar*>(region.piece());
      const std::int64_t count = region.piece_bytes() / static_cast<std::int64_t>(sizeof(Scalar));
      if constexpr (std::is_same_v<Scalar, Acc>) {
        if (!packer_.all_finite(values, count)) return false;
      } else {
        if (!all_finite(values, count)) return false;
      }
    }
    return true;
  }
  static bool all_finite(const Scalar* values, std::int64_t count) {
    constexpr unsigned kExponent = std::is_same_v<Scalar, Half> ? 0x7c00u : 0x7f80u;
    unsigned any = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      any |= (values[i].bits & kExponent) == kExponent ? 1u : 0u;
    }
    return any == 0;
  }

  // dy of the chunk's rows and of k_, as it stands or as a panel.
  void load_dy() {
    if (in_place_dy()) {
      if constexpr (std::is_same_v<Scalar, Acc>) {
        view_.dy = static_cast<const Acc*>(block_.dy) + k_.begin;
        view_.dy_pixel = block_.dy_strides.spatial[2];
      }
      return;
    }
    const std::int64_t q_count = box_[3].size();
    Acc* out = dy_panel_;
    const auto step = static_cast<int>(width());
    for_each_row(box_, [&](std::int64_t n, std::int64_t z, std::int64_t p) {
      const std::int64_t offset =
          dy_offset(block_, n, z, p, box_[3].begin) + k_.begin * block_.dy_strides.c;
      packer_.pack(source(block_.dy, offset, block_.dy_strides.spatial[2], block_.dy_strides.c),
                   q_count, k_.size(), {step, 0}, out);
      out += q_count * width();
    });
    view_.dy = dy_panel_;
    view_.dy_pixel = width();
  }
  // Of a row of the box in what view_.dy points at, at column q.
  std::int64_t dy_at(std::int64_t n, std::int64_t z, std::int64_t p, std::int64_t q) const {
    if (in_place_dy()) return dy_offset(block_, n, z, p, q);
    const std::int64_t row =
        ((n - box_[0].begin) * box_[1].size() + z - box_[1].begin) * box_[2].size() + p -
        box_[2].begin;
    return (row * box_[3].size() + q - box_[3].begin) * width();
  }

  // ---- x as it stands

  template <typename Use>
  void for_each_lanes(Use&& use) {
    Acc* sums = sums_;
    for (const Lanes& lanes : lane_sets()) {
      use_lanes(lanes, sums);
      use();
      sums += pb_.taps() * width();
    }
  }

  void add_in_place(const PixelBox* next, double* partial) {
    if constexpr (std::is_same_v<Scalar, Acc>) {
      for_each_lanes([&] { std::fill_n(lane_sums_, pb_.taps() * width(), Acc{0}); });
      const Strides& x = block_.x_strides;
      view_.x_row = pb_.axis[1].dilation * x.spatial[1];
      view_.x_tap = pb_.axis[2].dilation * x.spatial[2];
      view_.x_pixel = pb_.axis[2].stride * x.spatial[2];
      InPlaceWalk walk(pb_, block_, tile_.k, tile_.k, rows_, taps_, tile_.k.size() / isa_.lanes);
      walk.visit(box_, next, [&](const TapIndex& first, std::int64_t rows, std::int64_t taps) {
        for_each_lanes([&] {
          load_dy();
          view_.x = static_cast<const Acc*>(block_.x) + k_.begin;
          view_.prefetch_lines = walk.share_lines(width_vectors_);
          stream(first, rows, taps, walk.runs(), walk.run_count());
        });
      });
      for_each_lanes([&] { flush(0, partial); });
    }
  }

  // ---- x packed

  std::int64_t panel_rows() const { return spanned_inputs(pb_.axis[1], box_[2].size()); }
  std::int64_t panel_columns() const { return spanned_inputs(pb_.axis[2], box_[3].size()); }

  // x_panel_[image and depth][row][column][lane]: row and column 0 are what tap 0 of the first
  // output sees.
  void pack_x(std::int64_t c) {
    for (std::int64_t k = k_.begin; k < k_.end; ++k) {
      channel_[k - k_.begin] =
          static_cast<int>((k / pb_.group_k() - k_.begin / pb_.group_k()) * pb_.group_c() + c);
    }
    const std::int64_t base = k_.begin / pb_.group_k() * pb_.group_c() * block_.x_strides.c;
    const std::int64_t first_h = input_position(pb_.axis[1], box_[2].begin, 0);
    const std::int64_t columns = panel_columns();
    Acc* row = x_panel_;
    for (std::int64_t n = box_[0].begin; n < box_[0].end; ++n) {
      for (std::int64_t d = input_[0].begin; d < input_[0].end; ++d) {
        for (std::int64_t h = first_h; h < first_h + panel_rows(); ++h) {
          if (h < 0 || h >= pb_.axis[1].in) {
            std::fill_n(row, columns * width(), Acc{0});
          } else {
            pack_columns(base, n, d, h, row);
          }
          row += columns * width();
        }
      }
    }
  }

  void pack_columns(std::int64_t base, std::int64_t n, std::int64_t d, std::int64_t h, Acc* row) {
    const std::int64_t columns = panel_columns();
    const std::int64_t first = input_position(pb_.axis[2], box_[3].begin, 0);
    const Range inside = intersect({first, first + columns}, {0, pb_.axis[2].in});
    const std::int64_t before = std::clamp<std::int64_t>(inside.begin - first, 0, columns);
    const std::int64_t count = std::max<std::int64_t>(inside.size(), 0);
    std::fill_n(row, before * width(), Acc{0});
    if (count > 0) {
      pack_row(base + x_offset(block_, n, d, h, inside.begin), count, row + before * width());
    }
    std::fill_n(row + (before + count) * width(), (columns - before - count) * width(), Acc{0});
  }

  void pack_row(std::int64_t offset, std::int64_t pixels, Acc* panel) const {
    const PackSource from =
        source(block_.x, offset, block_.x_strides.spatial[2], block_.x_strides.c);
    const auto step = static_cast<int>(width());
    if (pb_.group_c() == 1 && pb_.group_k() == 1) {
      packer_.pack(from, pixels, k_.size(), {step, 0}, panel);
    } else {
      isa_.spread(from, pixels, channel_, static_cast<int>(k_.size()), step, panel);
    }
  }

  void add_panel() {
    const SpatialAxis &ad = pb_.axis[0], &ah = pb_.axis[1], &aw = pb_.axis[2];
    const std::int64_t row = panel_columns() * width();
    view_.x_row = ah.dilation * row;
    view_.x_tap = aw.dilation * width();
    view_.x_pixel = aw.stride * width();
    for (std::int64_t t = 0; t < ad.taps; ++t) {
      run_count_ = 0;
      for_each_row(box_, [&](std::int64_t n, std::int64_t z, std::int64_t p) {
        const std::int64_t d = input_position(ad, z, t);
        if (d < 0 || d >= ad.in) return;
        const std::int64_t image = (n - box_[0].begin) * input_[0].size() + d - input_[0].begin;
        const std::int64_t first = image * panel_rows() + (p - box_[2].begin) * ah.stride;
        runs_[run_count_++] = {first * row, dy_at(n, z, p, box_[3].begin), box_[3].size(), nullptr,
                               nullptr};
      });
      if (run_count_ == 0) continue;
      for (std::int64_t r = 0; r < ah.taps; r += rows_) {
        for (std::int64_t s = 0; s < aw.taps; s += taps_) {
          view_.x = x_panel_ + r * view_.x_row + s * view_.x_tap;
          stream({t, r, s}, std::min(rows_, ah.taps - r), std::min(taps_, aw.taps - s), runs_,
                 run_count_);
        }
      }
    }
  }

  // The runs, for the taps from `first` on.
  void stream(const TapIndex& first, std::int64_t rows, std::int64_t taps, const PanelRun* runs,
              std::int64_t run_count) {
    const std::int64_t R = pb_.axis[1].taps;
    isa_.stream(static_cast<int>(rows), static_cast<int>(taps), static_cast<int>(width_vectors_))(
        view_, runs, run_count,
        lane_sums_ + (first.t * R + first.r) * view_.sum_row + first.s * view_.sum_tap);
  }

  const OuterProductIsa<Acc>& packer_;
  const StreamingIsa<Acc>& isa_;
  const WgradProblem& pb_;
  const Block& block_;
  const Tile& tile_;
  const StreamShape shape_;
  Acc* sums_;
  Acc* dy_panel_;
  Acc* x_panel_;
  Acc* lane_sums_ = nullptr;                        // [tap][lane] of the lanes chosen now
  std::int64_t rows_ = 1, taps_ = 1, vectors_ = 1;  // in registers at a time, at most
  PixelBox box_;
  std::array<Range, 3> input_;
  Range k_;
  std::int64_t width_vectors_ = 1;
  std::int64_t first_lane_ = 0;  // those before it belong to the lanes chosen before
  std::int64_t lanes_count_ = 0;
  std::array<Lanes, kMostLaneSets> lanes_;
  StreamView<Acc> view_{};
  int channel_[kMostLanes];
  std::int64_t run_count_ = 0;
  PanelRun runs_[kMaxChunkPixels];
};

// Small groups where they lie: lanes are input channels, and each meets the output channels of its
// group, which are picked from a vector of dy (or two) in registers.
template <typename Acc>
class GroupTile {
 public:
  // Whether this instruction set and shape can do so; by the shape of the problem alone.
  static bool fits(const StreamingIsa<Acc>& isa, const WgradProblem& problem) {
    if (isa.stream_group == nullptr || !stream_shape(problem).dy_in_place) return false;
    const std::int64_t lanes = isa.lanes, c = problem.group_c(), k = problem.group_k();
    const std::int64_t picked = (ceil_div(lanes, c) + (lanes % c != 0 ? 1 : 0)) * k;
    const bool spread = c > 1 || k > 1;
    return spread && picked <= 2 * lanes && problem.C >= lanes &&
           problem.K >= (picked > lanes ? 2 : 1) * lanes && problem.axis[2].taps <= kMostTaps &&
           spans_are_few(problem);
  }

  GroupTile(const StreamingIsa<Acc>& isa, const WgradProblem& problem, const Block& block,
            const Tile& tile, Acc* workspace)
      : isa_(isa),
        pb_(problem),
        block_(block),
        c_{tile.k.begin / problem.group_k() * problem.group_c(),
           tile.k.end / problem.group_k() * problem.group_c()},
        k_(tile.k),
        sums_(workspace) {
    const std::int64_t S = problem.axis[2].taps, R = problem.axis[1].taps;
    outputs_ = std::min<std::int64_t>({problem.group_k(), 4, isa.group_sums / S});
    rows_ =
        std::clamp<std::int64_t>(isa.group_sums / (S * outputs_), 1, std::min<std::int64_t>(R, 3));
  }

  bool add_chunk(const PixelBox& box, const PixelBox* next, double* partial) {
    const std::int64_t blocks = ceil_div(c_.size(), isa_.lanes);
    std::fill_n(sums_, blocks * block_sums(), Acc{0});
    const Strides& x = block_.x_strides;
    view_.x_row = pb_.axis[1].dilation * x.spatial[1];
    view_.x_tap = pb_.axis[2].dilation * x.spatial[2];
    view_.x_pixel = pb_.axis[2].stride * x.spatial[2];
    view_.dy_pixel = block_.dy_strides.spatial[2];
    view_.sum_tap = pb_.group_k() * isa_.lanes;
    view_.sum_row = pb_.axis[2].taps * view_.sum_tap;
    InPlaceWalk walk(pb_, block_, c_, k_, rows_, pb_.axis[2].taps, blocks);
    walk.visit(box, next, [&](const TapIndex& first, std::int64_t rows, std::int64_t taps) {
      for (std::int64_t b = 0; b < blocks; ++b) add_block(b, first, rows, taps, walk);
    });
    for (std::int64_t b = 0; b < blocks; ++b) flush(b, partial);
    return true;
  }

 private:
  std::int64_t block_sums() const { return pb_.taps() * pb_.group_k() * isa_.lanes; }
  // The last block begins early enough to be full.
  std::int64_t first_channel(std::int64_t b) const {
    return std::min(c_.begin + b * isa_.lanes, pb_.C - isa_.lanes);
  }

  static bool spans_are_few(const WgradProblem& problem) {
    const auto extent = chunk_extent(problem);
    const auto spans = [&](std::size_t a) {
      return span_count(problem.axis[a], std::min<std::int64_t>(extent[a + 1], 4096));
    };
    return spans(1) * spans(2) <= 25;
  }

  void add_block(std::int64_t b, const TapIndex& first, std::int64_t rows, std::int64_t taps,
                 InPlaceWalk& walk) {
    const std::int64_t lanes = isa_.lanes, c = first_channel(b);
    const std::int64_t group = c / pb_.group_c(), k_count = pb_.group_k();
    const std::int64_t last_group = (c + lanes - 1) / pb_.group_c();
    const bool wide = (last_group + 1 - group) * k_count > lanes;
    const std::int64_t k = std::min(group * k_count, pb_.K - (wide ? 2 : 1) * lanes);
    view_.x = static_cast<const Acc*>(block_.x) + c;
    view_.dy = static_cast<const Acc*>(block_.dy) + k;
    view_.prefetch_lines = walk.share_lines(1);
    Acc* sums = sums_ + b * block_sums() + (first.t * pb_.axis[1].taps + first.r) * view_.sum_row +
                first.s * view_.sum_tap;
    list_picks(c % pb_.group_c(), group * k_count - k);
    for (std::int64_t j = 0; j < k_count; j += outputs_) {
      const std::int64_t outputs = std::min(outputs_, k_count - j);
      isa_.stream_group(static_cast<int>(rows), static_cast<int>(taps), static_cast<int>(outputs),
                        wide)(view_, pick_ + j * lanes, walk.runs(), walk.run_count(),
                              sums + j * lanes);
      view_.prefetch_lines = 0;
    }
  }

  // For lanes that begin with channel `row` of a group whose dy begins at `first`: the same for
  // nearly all blocks.
  void list_picks(std::int64_t row, std::int64_t first) {
    if (row == picked_row_ && first == picked_first_) return;
    picked_row_ = row;
    picked_first_ = first;
    for (std::int64_t j = 0; j < pb_.group_k(); ++j) {
      for (std::int64_t l = 0; l < isa_.lanes; ++l) {
        pick_[j * isa_.lanes + l] =
            static_cast<int>(first + (row + l) / pb_.group_c() * pb_.group_k() + j);
      }
    }
  }

  void flush(std::int64_t b, double* partial) const {
    const std::int64_t lanes = isa_.lanes, c = first_channel(b), k_count = pb_.group_k();
    const std::int64_t begin =
        c_.begin + b * lanes - c;  // lanes before it belong to the block before
    const std::int64_t end = std::min(lanes, c_.end - c);
    for (std::int64_t tap = 0; tap < pb_.taps(); ++tap) {
      const Acc* sums = sums_ + b * block_sums() + tap * k_count * lanes;
      double* out = partial + tap * pb_.group_c() * pb_.K;
      std::int64_t group = (c + begin) / pb_.group_c(), row = (c + begin) % pb_.group_c();
      for (std::int64_t l = begin; l < end; ++l) {
        double* cells = out + row * pb_.K + group * k_count;
        for (std::int64_t j = 0; j < k_count; ++j) {
          cells[j] += static_cast<double>(sums[j * lanes + l]);
        }
        if (++row == pb_.group_c()) {
          row = 0;
          ++group;
        }
      }
    }
  }

  const StreamingIsa<Acc>& isa_;
  const WgradProblem& pb_;
  const Block& block_;
  const Range c_, k_;
  Acc* sums_;
  std::int64_t outputs_ = 1, rows_ = 1;
  std::int64_t picked_row_ = -1, picked_first_ = -1;
  int pick_[2 * 16 * 16];  // [output][lane]: at most 2 vectors of outputs
  StreamView<Acc> view_{};
};

std::vector<Tile> tiles(const WgradProblem& problem) {
  std::vector<Tile> result;
  const std::int64_t step = tile_k(problem);
  for (std::int64_t k = 0; k < problem.K; k += step) {
    result.push_back(
        {{0, problem.taps()}, {0, problem.group_c()}, {k, std::min(k + step, problem.K)}});
  }
  return result;
}

std::int64_t workspace_bytes(const WgradProblem& problem) {
  const StreamShape shape = stream_shape(problem);
  const std::int64_t sums = sum_elements(problem);
  if (shape.x_in_place && problem.K >= kMostLanes) {  // no instruction set copies anything
    return sums * dtype_bytes(accumulator_dtype(problem.dtype));
  }
  const std::int64_t panels = (kMaxChunkPixels + shape.panel_pixels) * kMostLanes + sums;
  const std::int64_t group_sums = problem.taps() * problem.group_k() *
                                  (tile_k(problem) / problem.group_k() * problem.group_c() + 64);
  const std::int64_t direct = kMaxChunkPixels * tile_k(problem) * (problem.group_c() + 1);
  return std::max({panels, direct, group_sums}) * dtype_bytes(accumulator_dtype(problem.dtype));
}

template <const IsaSet& set>
void accumulate(const WgradProblem& problem, const ChunkGrid& grid, const Block& block,
                const ChunkRun& run, const Tile& tile, std::byte* workspace, double* partial) {
  with_scalar(problem.dtype, [&](auto scalar) {
    using Scalar = decltype(scalar);
    using Acc = std::conditional_t<std::is_same_v<Scalar, double>, double, float>;
    if constexpr (std::is_same_v<Scalar, Acc>) {
      if (GroupTile<Acc>::fits(streaming_isa<Acc>(set), problem)) {
        GroupTile<Acc> work(streaming_isa<Acc>(set), problem, block, tile,
                            reinterpret_cast<Acc*>(workspace));
        return add_chunks(work, problem, grid, block, run, tile, workspace, partial);
      }
    }
    StreamingTile<Scalar, Acc> work(set, problem, block, tile, reinterpret_cast<Acc*>(workspace));
    add_chunks(work, problem, grid, block, run, tile, workspace, partial);
  });
}

// Rough seconds on one core with `peak` vector operations a second. A multiply-add waits a little
// for its operands; a packed value of x or dy takes as long as a few of them.
template <const IsaSet& set>
double seconds(const WgradProblem& problem, double peak) {
  const bool wide = problem.dtype == DType::f64;
  const double lanes = wide ? set.stream64.lanes : set.stream32.lanes;
  const double vectors = std::ceil(static_cast<double>(problem.K) / lanes);
  const double c = static_cast<double>(problem.group_c());
  const StreamShape shape = stream_shape(problem);
  const bool groups = wide ? GroupTile<double>::fits(set.stream64, problem)
                           : GroupTile<float>::fits(set.stream32, problem);
  const bool lies = groups || (shape.x_in_place && static_cast<double>(problem.K) >= lanes);
  const bool spreads = problem.group_c() != 1 || problem.group_k() != 1;
  const double packing = lies ? 4 : 6 + c * (spreads ? 16 : 6);
  return static_cast<double>(term_count(problem)) * vectors *
         (static_cast<double>(problem.taps()) * c * 1.5 + packing) / peak;
}

std::string why_not_shape(const WgradProblem& problem) {
  if (problem.group_c() > kMostGroupC || problem.group_k() > kMostLanes) {
    return cat("groups of ", problem.group_c(), " to ", problem.group_k(),
               " channels are too wide, expected at most ", kMostGroupC, " to ", kMostLanes);
  }
  if (stream_shape(problem).panel_pixels > kMostPanelPixels) return "its taps are too far apart";
  return "";
}

}  // namespace

const Kernel kStreamingAvx512Kernel = {
    "streaming_avx512",
    "depthwise and small groups: up to 28 vectors of sums in registers; AVX-512",
    [](const WgradProblem& problem, const Machine& machine) {
      const std::string reason = lacks_avx512(machine);
      return reason.empty() ? why_not_shape(problem) : reason;
    },
    [](const WgradProblem& problem) { return seconds<kAvx512Isa>(problem, 3.5e9); },
    tiles,
    workspace_bytes,
    accumulate<kAvx512Isa>};

const Kernel kStreamingAvx2Kernel = {
    "streaming_avx2",
    "the same, up to 12 vectors of 8; AVX2 and FMA",
    [](const WgradProblem& problem, const Machine& machine) {
      const std::string reason = lacks_avx2(machine);
      return reason.empty() ? why_not_shape(problem) : reason;
    },
    [](const WgradProblem& problem) { return seconds<kAvx2Isa>(problem, 5e9); },
    tiles,
    workspace_bytes,
    accumulate<kAvx2Isa>};

const Kernel kStreamingKernel = {
    "streaming",
    "the same, up to 12 vectors of 4; any processor",
    [](const WgradProblem& problem, const Machine&) { return why_not_shape(problem); },
    [](const WgradProblem& problem) { return seconds<kPortableIsa>(problem, 3e9); },
    tiles,
    workspace_bytes,
    accumulate<kPortableIsa>};

}  // namespace convgrad
