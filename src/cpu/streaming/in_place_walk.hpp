// in_place_walk.hpp - visits a chunk's pixels in place: a few rows at a time, in spans of
// outputs that see x with the same taps, while the next rows are fetched into the cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/isa/isa.hpp"
#include "cpu/shared/pack.hpp"
#include "cpu/streaming/stream_shape.hpp"
#include "engine/region.hpp"

namespace convgrad {

class InPlaceWalk {
 public:
  // rows and taps of the filter are visited together, at most. c and k are the channels that are
  // read, in `vectors` vectors of lanes.
  InPlaceWalk(const WgradProblem& problem, const Block& block, Range c, Range k, std::int64_t rows,
              std::int64_t taps, std::int64_t vectors)
      : pb_(problem),
        block_(block),
        c_(c),
        k_(k),
        rows_(rows),
        taps_(taps),
        vectors_(std::max<std::int64_t>(vectors, 1)) {}

  // Calls use(first tap, rows, taps) for each part of the chunk, with runs() of offsets from the
  // block's first elements of channel 0. `next` is the chunk after it, or null.
  template <typename Use>
  void visit(const PixelBox& box, const PixelBox* next, Use&& use) {
    box_ = box;
    const std::int64_t groups = group_count();
    for (std::int64_t g = 0; g < groups; ++g) {
      const PixelBox group = group_of(box_, g, groups);
      if (g + 1 < groups) {
        fetch_rows(group_of(box_, g + 1, groups), group);
      } else if (next != nullptr) {
        fetch_rows(group_of(*next, 0, groups), group);
      } else {
        fetch_.start({}, {});
      }
      for (std::int64_t t = 0; t < pb_.axis[0].taps; ++t) {
        for_each_span(pb_.axis[1], group[2], [&](const TapSpan& rows) {
          for_each_span(pb_.axis[2], group[3],
                        [&](const TapSpan& columns) { visit_span(group, t, rows, columns, use); });
        });
      }
    }
  }

  const PanelRun* runs() const { return runs_; }
  std::int64_t run_count() const { return run_count_; }

  // Lines are fetched a few for each pixel rather than all at once, so that they do not keep the
  // loads of x and dy waiting. Gives each run its share of the lines to fetch, and returns the
  // lines for each pixel.
  std::int64_t share_lines(std::int64_t vectors) {
    const std::int64_t lines_a_pixel = lines_a_vector_ * vectors;
    for (std::int64_t i = 0; i < run_count_; ++i) {
      PanelRun& run = runs_[i];
      const std::int64_t lines = fetch_.next(run.pixels * lines_a_pixel, &run.prefetch);
      run.prefetch_end = run.prefetch + lines * LineCursor::kLineBytes;
    }
    return lines_a_pixel;
  }

 private:
  // Of x or dy at a time: both are in the second cache while all taps and lanes read them, and the
  // next group's rows, which are fetched meanwhile, as well.
  static constexpr std::int64_t kGroupBytes = 64 << 10;

  // Images before rows of one: a group of whole images has no border inside.
  // The axis that groups of rows split: the first with more than one position.
  std::size_t group_axis() const { return box_[0].size() > 1 ? 0 : box_[1].size() > 1 ? 1 : 2; }

  std::int64_t group_count() const {
    const std::int64_t most =
        std::max(x_region(pb_, block_, box_, c_).bytes(), dy_region(pb_, block_, box_, k_).bytes());
    return std::clamp<std::int64_t>(most / kGroupBytes, 1, box_[group_axis()].size());
  }
  PixelBox group_of(const PixelBox& box, std::int64_t g, std::int64_t groups) const {
    PixelBox group = box;
    Range& range = group[group_axis()];
    const std::int64_t size = range.size(), begin = range.begin;
    range = {begin + size * g / groups, begin + size * (g + 1) / groups};
    return group;
  }

  // Fetches what `next` reads and `current` does not, spread over the current pixels and lanes.
  void fetch_rows(const PixelBox& next, const PixelBox& current) {
    std::array<Range, 3> input = input_box(pb_, next);
    const std::array<Range, 3> seen = input_box(pb_, current);
    // Of the same image: filters overlap, so its first rows have just been read.
    if (next[0] == current[0] && next[1] == current[1] && next[2].begin >= current[2].begin) {
      input[1].begin = std::clamp(seen[1].end, input[1].begin, input[1].end);
    }
    const Region x = x_region(pb_, block_, next[0], input, c_);
    const Region dy = dy_region(pb_, block_, next, k_);
    std::int64_t pixels = 1;
    for (const Range& range : current) pixels *= range.size();
    lines_a_vector_ = ceil_div((x.bytes() + dy.bytes()) / LineCursor::kLineBytes,
                               std::max<std::int64_t>(pixels * vectors_, 1));
    fetch_.start(x, dy);
  }

  template <typename Use>
  void visit_span(const PixelBox& group, std::int64_t t, const TapSpan& rows,
                  const TapSpan& columns, Use&& use) {
    for (std::int64_t r = rows.taps.begin; r < rows.taps.end; r += rows_) {
      for (std::int64_t s = columns.taps.begin; s < columns.taps.end; s += taps_) {
        list_runs(group, {t, r, s}, rows.outputs, columns.outputs);
        if (run_count_ == 0) continue;
        use(TapIndex{t, r, s}, std::min(rows_, rows.taps.end - r),
            std::min(taps_, columns.taps.end - s));
      }
    }
  }

  // One run for each row: the outputs of a span see x with the same taps, so no tap needs a test.
  void list_runs(const PixelBox& group, const TapIndex& tap, Range p_range, Range q_range) {
    run_count_ = 0;
    const std::int64_t q = q_range.begin, w = input_position(pb_.axis[2], q, tap.s);
    for (std::int64_t n = group[0].begin; n < group[0].end; ++n) {
      for (std::int64_t z = group[1].begin; z < group[1].end; ++z) {
        const std::int64_t d = input_position(pb_.axis[0], z, tap.t);
        if (!is_inside(pb_.axis[0], d)) continue;
        for (std::int64_t p = p_range.begin; p < p_range.end; ++p) {
          const std::int64_t h = input_position(pb_.axis[1], p, tap.r);
          runs_[run_count_++] = {x_offset(block_, n, d, h, w), dy_offset(block_, n, z, p, q),
                                 q_range.size(), nullptr, nullptr};
        }
      }
    }
  }

  const WgradProblem& pb_;
  const Block& block_;
  const Range c_, k_;
  const std::int64_t rows_, taps_, vectors_;
  PixelBox box_;
  LineCursor fetch_;
  std::int64_t lines_a_vector_ = 0;
  std::int64_t run_count_ = 0;
  PanelRun runs_[kMaxChunkPixels];
};

}  // namespace convgrad
