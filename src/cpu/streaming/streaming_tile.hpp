// streaming_tile.hpp - does one tile's work of streaming, with several taps' sums in registers.
//
// The sums of several filter rows and their taps (all of 3x3 and 5x5) stay in registers, so that x
// and dy pass through once; over a chunk they are kept in the data's type and then added to the
// float64 partial. Where a lane's x and dy are side by side in memory, nothing is copied: a few
// rows at a time go through all lanes, and bfloat16 is widened in registers. Otherwise they are
// packed into panels [pixel][lane].
#pragma once

#include <algorithm>
#include <limits>
#include <span>

#include "cpu/isa/isa_set.hpp"
#include "cpu/shared/pack.hpp"
#include "cpu/streaming/lane_panels.hpp"
#include "cpu/streaming/stream_shape.hpp"
#include "cpu/streaming/stream_walk.hpp"

namespace convgrad {

template <typename Scalar, typename Acc>
class StreamingTile {
 public:
  StreamingTile(const IsaTable<Acc>& isa, const WgradProblem& problem, const Block& block,
                const Tile& tile, Acc* workspace)
      : isa_(isa.streaming),
        pb_(problem),
        block_(block),
        tile_(tile),
        reads_(reads_in_place(problem)),
        unit_(widens_in_place() ? 2 : 1),
        sums_(workspace),
        panels_(isa, problem, block, workspace + stream_sum_elements(problem)),
        taps_(equal_part(problem.axis[2].taps, isa_.sums / unit_)),
        rows_(equal_part(problem.axis[1].taps, isa_.sums / (unit_ * taps_))),
        vectors_(std::min<std::int64_t>(isa_.sums / (unit_ * rows_ * taps_), isa_.vectors)),
        walk_(problem, rows_, taps_) {
    list_lanes();
  }

  bool add_chunk(const PixelBox& box, const PixelBox* next, double* partial) {
    if (in_place_x()) {
      add_in_place(box, next, partial);
    } else {
      for (const Lanes& lanes : lane_sets()) add_panels(box, lanes, partial);
    }
    return true;
  }

 private:
  // Fewer channels than a vector has lanes are packed.
  bool in_place_dy() const {
    return widens_in_place() || (reads_.dy && tile_.k.size() >= isa_.lanes);
  }
  bool in_place_x() const { return widens_in_place() || (reads_.x && in_place_dy()); }
  // Tensors of bfloat16 are read in pairs of vectors.
  bool widens_in_place() const { return reads_.pairs && tile_.k.size() >= 2 * isa_.lanes; }

  // Taps of a row come first, then rows, each in equal parts; registers that are left take lanes.
  static std::int64_t equal_part(std::int64_t taps, std::int64_t most) {
    return ceil_div(taps, ceil_div(taps, std::min<std::int64_t>(most, kMostTaps)));
  }

  // These output channels are worked on together: whole vectors, and what is then left as the last
  // lanes of a vector that begins earlier, or, packed, as the first of one with zeros.
  struct Lanes {
    Range k;
    std::int64_t vectors;
    std::int64_t first;  // lanes before it belong to the one before
  };
  // A vector that begins earlier adds nothing twice: flush() leaves its first lanes out. It reads
  // no memory behind the tensor, and needs no mask in the innermost loop.
  void list_lanes() {
    const std::int64_t lanes = unit_ * isa_.lanes, end = tile_.k.end;
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
  std::int64_t width(const Lanes& lanes) const { return lanes.vectors * unit_ * isa_.lanes; }
  std::int64_t sum_count(const Lanes& lanes) const { return pb_.taps() * width(lanes); }

  // Adds sums [tap][lane] to the partial of channel c, once for a chunk of at most 512 pixels:
  // there sums of floats must end.
  void flush(const Lanes& lanes, const Acc* sums, std::int64_t c, double* partial) const {
    std::array<Acc, 4 * kMostLanes> pairs;
    for (std::int64_t tap = 0; tap < pb_.taps(); ++tap, sums += width(lanes)) {
      double* out = partial + (tap * pb_.group_c() + c) * pb_.K + lanes.k.begin;
      const Acc* const in_order = unit_ == 1 ? sums : interleaved(lanes, sums, pairs.data());
      for (std::int64_t j = lanes.first; j < lanes.k.size(); ++j) {
        out[j] += static_cast<double>(in_order[j]);
      }
    }
  }
  // Brings the sums of even and odd lanes, a vector each, in the order of the lanes.
  const Acc* interleaved(const Lanes& lanes, const Acc* sums, Acc* out) const {
    for (std::int64_t pair = 0; pair < lanes.vectors; ++pair, sums += 2 * isa_.lanes) {
      for (std::int64_t j = 0; j < isa_.lanes; ++j) {
        *out++ = sums[j];
        *out++ = sums[isa_.lanes + j];
      }
    }
    return out - width(lanes);
  }

  // The sums of all lanes are in memory meanwhile.
  void add_in_place(const PixelBox& box, const PixelBox* next, double* partial) {
    if constexpr (!std::is_same_v<Scalar, Float16>) {
      StreamView<Scalar> view{};
      const auto for_each_lanes = [&](const auto& use) {
        Acc* sums = sums_;
        for (const Lanes& lanes : lane_sets()) {
          use(lanes, sums);
          sums += sum_count(lanes);
        }
      };
      for_each_lanes(
          [&](const Lanes& lanes, Acc* sums) { std::fill_n(sums, sum_count(lanes), Acc{0}); });
      const std::int64_t pixel_bytes = tile_.k.size() * static_cast<std::int64_t>(sizeof(Scalar));
      walk_.for_each_group(box, pixel_bytes, kGroupBytes, [&](const PixelBox& group) {
        bool fetches = walk_.fetches(group, tile_.k);  // with the first taps
        walk_.for_each_part(group, block_, block_,
                            [&](const TapIndex& first, std::int64_t rows, std::int64_t taps) {
                              std::int64_t share = 0;
                              for_each_lanes([&](const Lanes& lanes, Acc* sums) {
                                set(view, group, block_, block_, lanes.k.begin, lanes.k.begin);
                                if (fetches) {
                                  walk_.fetch_next(view, group, box, next, block_, share++,
                                                   static_cast<std::int64_t>(lanes_count_));
                                }
                                stream(view, lanes, first, rows, taps, sums);
                              });
                              view.fetch_x_lines = view.fetch_dy_lines = 0;
                              fetches = false;
                            });
      });
      for_each_lanes([&](const Lanes& lanes, Acc* sums) { flush(lanes, sums, 0, partial); });
    }
  }

  // dy's panel serves all channels of a group, x's panel all taps.
  void add_panels(const PixelBox& box, const Lanes& lanes, double* partial) {
    std::fill_n(sums_, pb_.group_c() * sum_count(lanes), Acc{0});
    panels_.use_lanes(lanes.k, width(lanes));
    StreamView<Acc> view{};
    // Rows of one image overlap, and are packed together.
    const std::int64_t bytes =
        box[0].size() > 1 ? kPanelBytes : std::numeric_limits<std::int64_t>::max();
    const std::int64_t pixel_bytes = width(lanes) * static_cast<std::int64_t>(sizeof(Acc));
    walk_.for_each_group(box, pixel_bytes, bytes, [&](const PixelBox& group) {
      panels_.start(group);
      if (!in_place_dy()) panels_.pack_dy();
      const Block& dy = in_place_dy() ? block_ : panels_.block();
      for (std::int64_t c = tile_.c.begin; c < tile_.c.end; ++c) {
        panels_.pack_x(c);
        set(view, group, panels_.block(), dy, 0, in_place_dy() ? lanes.k.begin : 0);
        walk_.for_each_part(group, panels_.block(), dy,
                            [&](const TapIndex& first, std::int64_t rows, std::int64_t taps) {
                              stream(view, lanes, first, rows, taps, sums_ + c * sum_count(lanes));
                            });
      }
    });
    for (std::int64_t c = tile_.c.begin; c < tile_.c.end; ++c) {
      flush(lanes, sums_ + c * sum_count(lanes), c, partial);
    }
  }

  template <typename Stored>
  void set(StreamView<Stored>& view, const PixelBox& group, const Block& x, const Block& dy,
           std::int64_t x_channel, std::int64_t dy_channel) const {
    set_x_distances(view, pb_, x.x_strides.spatial[1], x.x_strides.spatial[2]);
    view.x = static_cast<const Stored*>(x.x) + x_channel +
             (group[0].begin - x.pixels[0].begin) * x.x_strides.n;
    view.dy = static_cast<const Stored*>(dy.dy) + dy_channel +
              (group[0].begin - dy.pixels[0].begin) * dy.dy_strides.n;
    view.dy_pixel = dy.dy_strides.spatial[2];
  }

  // Streams the listed runs, for the taps from `first` on. The function for a shape is looked up
  // for each call: the last taps of a filter may be fewer.
  template <typename Stored>
  void stream(StreamView<Stored>& view, const Lanes& lanes, const TapIndex& first,
              std::int64_t rows, std::int64_t taps, Acc* sums) const {
    view.sum_tap = width(lanes);
    view.sum_row = pb_.axis[2].taps * view.sum_tap;
    Acc* const at =
        sums + (first.t * pb_.axis[1].taps + first.r) * view.sum_row + first.s * view.sum_tap;
    const int r = static_cast<int>(rows), s = static_cast<int>(taps);
    const int vectors = static_cast<int>(lanes.vectors);
    if constexpr (std::is_same_v<Stored, Acc>) {
      isa_.stream(r, s, vectors)(view, walk_.runs(), walk_.run_count(), at);
    } else {
      isa_.stream_bfloat16(r, s, vectors)(view, walk_.runs(), walk_.run_count(), at);
    }
  }

  // A group has at most so much of x or dy. In place, both are in the second cache while all lanes
  // read them; panels are for one set of lanes, in the first cache.
  static constexpr std::int64_t kGroupBytes = 64 << 10, kPanelBytes = 12 << 10;

  const StreamingIsa<Acc>& isa_;
  const WgradProblem& pb_;
  const Block& block_;
  const Tile& tile_;
  const InPlace reads_;
  const std::int64_t unit_;  // vectors of lanes that are loaded together
  Acc* sums_;
  LanePanels<Scalar, Acc> panels_;
  const std::int64_t taps_, rows_, vectors_;  // in registers at a time, at most; units of vectors
  StreamWalk walk_;
  std::size_t lanes_count_ = 0;
  std::array<Lanes, kMostLaneSets> lanes_;
};

}  // namespace convgrad
