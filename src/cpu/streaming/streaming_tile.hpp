// streaming_tile.hpp - one tile's work of streaming: the sums of several taps in registers.
//
// The sums of several filter rows and their taps (all of 3x3 and 5x5) stay in registers, so that x
// and dy pass through once; over a chunk they are kept in the data's type and then added to the
// float64 partial. Where a lane's x and dy are side by side in memory, nothing is
// copied: a few rows at a time go through all lanes, in spans of outputs that see x with the same
// taps, while the next rows are fetched. Otherwise x is packed into panels [pixel][lane] with zeros
// for padding, dy into panels [pixel][lane].
#pragma once

#include <algorithm>
#include <span>

#include "cpu/isa/isa_set.hpp"
#include "cpu/shared/pack.hpp"
#include "cpu/streaming/in_place_walk.hpp"
#include "cpu/streaming/lane_panels.hpp"
#include "cpu/streaming/stream_shape.hpp"
#include "engine/region.hpp"

namespace convgrad {

template <typename Scalar, typename Acc>
class StreamingTile {
 public:
  StreamingTile(const IsaTable<Acc>& isa, const WgradProblem& problem, const Block& block,
                const Tile& tile, Acc* workspace)
      : packer_(isa.outer_product),
        isa_(isa.streaming),
        pb_(problem),
        block_(block),
        tile_(tile),
        shape_(stream_shape(problem)),
        sums_(workspace),
        panels_(isa, problem, block, workspace + stream_sum_elements(problem)) {
    // Taps of a row first, then rows, each in equal parts; what registers are left then takes more
    // lanes.
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
    if (in_place_x()) {
      add_in_place(next, partial);
      return true;
    }
    if (has_padding() && !dy_is_finite()) return false;
    panels_.start(box, input_box(pb_, box));
    // dy's panel serves all channels of a group, x's panel all taps.
    for (const Lanes& lanes : lane_sets()) {
      use_lanes(lanes, sums_);
      panels_.use_lanes(k_, width());
      load_dy();
      for (std::int64_t c = tile_.c.begin; c < tile_.c.end; ++c) {
        std::fill_n(lane_sums_, pb_.taps() * width(), Acc{0});
        panels_.pack_x(c);
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

  // Only rows and columns are padded in a panel: outputs whose depth is outside x are left out.
  bool has_padding() const { return sees_padding(pb_.axis[1]) || sees_padding(pb_.axis[2]); }

  // Output channels that are worked on together: whole vectors, and what is then left as the last
  // lanes of a vector that begins earlier, or, packed, as the first of one with zeros.
  struct Lanes {
    Range k;
    std::int64_t vectors;
    std::int64_t first;  // lanes before it belong to the one before
  };
  // A vector that begins earlier adds nothing twice: flush() leaves its first lanes out. It reads
  // no memory behind the tensor, and needs no mask in the innermost loop.
  void list_lanes() {
    const std::int64_t lanes = isa_.lanes, end = tile_.k.end;
    for (std::int64_t k = tile_.k.begin; k < end;) {
      const std::int64_t left = end - k;
      Lanes& next = lanes_[lanes_count_++];
      if (left >= lanes || !in_place_dy()) {
        const std::int64_t vectors = std::clamp<std::int64_t>(left / lanes, 1, vectors_);
        next = {{k, std::min(k + vectors * lanes, end)}, vectors, 0};
      } else {
        next = {{end - lanes, end}, 1, lanes - left};
      }
      k = next.k.end;
    }
  }
  std::span<const Lanes> lane_sets() const { return {lanes_.data(), lanes_count_}; }
  void use_lanes(const Lanes& lanes, Acc* sums) {
    k_ = lanes.k;
    width_vectors_ = lanes.vectors;
    first_lane_ = lanes.first;
    lane_sums_ = sums;
    view_.sum_tap = width();
    view_.sum_row = pb_.axis[2].taps * width();
  }

  // Adds lane_sums_ to the partial of channel c. Once for a chunk of at most 512 pixels: that is
  // where sums of floats must end.
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
  // dy of the chunk's rows and of k_, in place or as a panel.
  void load_dy() {
    if (!in_place_dy()) {
      panels_.pack_dy();
      view_.dy = panels_.dy();
      view_.dy_pixel = width();
    } else if constexpr (std::is_same_v<Scalar, Acc>) {
      view_.dy = static_cast<const Acc*>(block_.dy) + k_.begin;
      view_.dy_pixel = block_.dy_strides.spatial[2];
    }
  }

  // ---- x in place

  template <typename Use>
  void for_each_lanes(Use&& use) {
    Acc* sums = sums_;
    for (const Lanes& lanes : lane_sets()) {
      use_lanes(lanes, sums);
      use();
      sums += pb_.taps() * width();
    }
  }

  // A few rows go through all lanes before the next ones do, since a pixel's channels are
  // neighbours in memory: one vector of channels over all rows took 5.7 ms where this takes 5.0
  // (docs/measurements/performance.md). The sums of all lanes are in memory meanwhile.
  void add_in_place(const PixelBox* next, double* partial) {
    if constexpr (std::is_same_v<Scalar, Acc>) {
      for_each_lanes([&] { std::fill_n(lane_sums_, pb_.taps() * width(), Acc{0}); });
      set_x_distances(view_, pb_, block_.x_strides.spatial[1], block_.x_strides.spatial[2]);
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

  void add_panel() {
    const SpatialAxis &ad = pb_.axis[0], &ah = pb_.axis[1], &aw = pb_.axis[2];
    set_x_distances(view_, pb_, panels_.x_row(), width());
    for (std::int64_t t = 0; t < ad.taps; ++t) {
      run_count_ = 0;
      for_each_row(box_, [&](std::int64_t n, std::int64_t z, std::int64_t p) {
        const std::int64_t d = input_position(ad, z, t);
        if (!is_inside(ad, d)) return;
        const std::int64_t dy =
            in_place_dy() ? dy_offset(block_, n, z, p, box_[3].begin) : panels_.dy_row(n, z, p);
        runs_[run_count_++] = {panels_.x_rows(n, d, p), dy, box_[3].size(), nullptr, nullptr};
      });
      if (run_count_ == 0) continue;
      for (std::int64_t r = 0; r < ah.taps; r += rows_) {
        for (std::int64_t s = 0; s < aw.taps; s += taps_) {
          view_.x = panels_.x() + r * view_.x_row + s * view_.x_tap;
          stream({t, r, s}, std::min(rows_, ah.taps - r), std::min(taps_, aw.taps - s), runs_,
                 run_count_);
        }
      }
    }
  }

  // The runs, for the taps from `first` on. The function for a shape is looked up for each call:
  // the last taps of a filter may be fewer.
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
  LanePanels<Scalar, Acc> panels_;
  Acc* lane_sums_ = nullptr;                        // [tap][lane] of the lanes chosen now
  std::int64_t rows_ = 1, taps_ = 1, vectors_ = 1;  // in registers at a time, at most
  PixelBox box_;
  Range k_;
  std::int64_t width_vectors_ = 1;
  std::int64_t first_lane_ = 0;  // those before it belong to the lanes chosen before
  std::size_t lanes_count_ = 0;
  std::array<Lanes, kMostLaneSets> lanes_;
  StreamView<Acc> view_{};
  std::int64_t run_count_ = 0;
  PanelRun runs_[kMaxChunkPixels];
};

}  // namespace convgrad
