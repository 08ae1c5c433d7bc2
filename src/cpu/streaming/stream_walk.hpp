// stream_walk.hpp - visits a chunk's pixels: a few rows or images at a time, as runs of outputs
// that see x with the same taps.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/isa/isa.hpp"
#include "cpu/shared/pack.hpp"
#include "cpu/streaming/stream_shape.hpp"
#include "engine/region.hpp"

namespace convgrad {

class StreamWalk {
 public:
  // rows and taps of the filter are visited together, at most.
  StreamWalk(const WgradProblem& problem, std::int64_t rows, std::int64_t taps)
      : pb_(problem), rows_(rows), taps_(taps) {}

  // Calls use(group) for the parts of a chunk: whole images, or some rows of one, such that a group
  // has at most group_bytes where a pixel of x or of dy has pixel_bytes.
  template <typename Use>
  void for_each_group(const PixelBox& box, std::int64_t pixel_bytes, std::int64_t group_bytes,
                      Use&& use) {
    // Images come before rows of one: a group of whole images has no border inside.
    const std::size_t axis = box[0].size() > 1 ? 0 : box[1].size() > 1 ? 1 : 2;
    std::int64_t x_pixels = box[0].size();
    for (const Range& range : input_box(pb_, box)) x_pixels *= range.size();
    const std::int64_t bytes = std::max(x_pixels, pixel_count(box)) * pixel_bytes;
    const std::int64_t size = box[axis].size();
    const std::int64_t step =
        ceil_div(size, std::clamp<std::int64_t>(bytes / group_bytes, 1, size));
    step_ = step;
    PixelBox group = box;
    for (std::int64_t at = box[axis].begin; at < box[axis].end; at += step) {
      group[axis] = {at, std::min(at + step, box[axis].end)};
      use(group);
    }
  }

  // Calls use(first tap, rows, taps) for all taps that see x from the group, in parts that are
  // summed together, with runs() of offsets from the first elements of the group's first image.
  template <typename Use>
  void for_each_part(const PixelBox& group, const Block& x, const Block& dy, Use&& use) {
    const std::int64_t R = pb_.axis[1].taps, S = pb_.axis[2].taps;
    for (std::int64_t t = 0; t < pb_.axis[0].taps; ++t) {
      for (std::int64_t r = 0; r < R; r += rows_) {
        for (std::int64_t s = 0; s < S; s += taps_) {
          const std::int64_t rows = std::min(rows_, R - r), taps = std::min(taps_, S - s);
          list_runs(group, {t, r, s}, rows, taps, x, dy);
          if (run_count_ > 0) use(TapIndex{t, r, s}, rows, taps);
        }
      }
    }
  }

  // Has the rows or images after a group fetched while its `sets` sets of lanes pass: those behind
  // it in its chunk, or the first of the next chunk, if there is one. share is which of the sets.
  // Lines are fetched in the order of memory: as a lane set reads them, apart, they came later.
  template <typename Element>
  void fetch_next(StreamView<Element>& view, const PixelBox& group, const PixelBox& box,
                  const PixelBox* next, const Block& block, std::int64_t share,
                  std::int64_t sets) const {
    const std::size_t axis = box[0].size() > 1 ? 0 : 2;
    const bool last = group[axis].end == box[axis].end;
    view.fetch_x_lines = view.fetch_dy_lines = 0;
    if (last && next == nullptr) return;
    PixelBox its = last ? *next : box;
    if (!last) its[axis].begin = group[axis].end;
    its[axis].end = its[axis].begin + step_;
    // A chunk begins with rows that the one before it may have seen, but perhaps long ago.
    const std::int64_t row = last || axis == 0 ? 0 : block.x_strides.spatial[1];
    const std::int64_t seen = row * (input_box(pb_, group)[1].end - input_box(pb_, its)[1].begin);
    const std::int64_t pixels = group[0].size() * group[2].size() * group[3].size();
    const auto fetch = [&](const Region& region, std::int64_t skipped, const char*& start,
                           long& lines) {
      skipped *= static_cast<std::int64_t>(sizeof(Element));
      const std::int64_t bytes = std::max<std::int64_t>(region.bytes() - skipped, 0);
      const std::int64_t each = ceil_div(bytes, 64 * pixels), before = each * share / sets;
      lines = each * (share + 1) / sets - before;
      start = reinterpret_cast<const char*>(region.piece()) + skipped + before * pixels * 64;
    };
    fetch(x_region(pb_, block, its, {0, pb_.C}), seen, view.fetch_x, view.fetch_x_lines);
    fetch(dy_region(pb_, block, its, {0, pb_.K}), 0, view.fetch_dy, view.fetch_dy_lines);
  }
  // Tells whether there are such rows, and whole ones.
  bool fetches(const PixelBox& group, Range k) const {
    return group[3].size() == pb_.axis[2].out && pb_.axis[0].in == 1 && k.size() == pb_.K;
  }

  const StreamRun* runs() const { return runs_; }
  std::int64_t run_count() const { return run_count_; }

 private:
  struct Columns {
    Range q, taps;
  };

  static unsigned char bits(Range range) {
    return static_cast<unsigned char>((1 << range.end) - (1 << range.begin));
  }

  // Returns those of the taps that see x from an output position.
  static Range taps_inside(const SpatialAxis& axis, std::int64_t output, Range taps) {
    return intersect(
        indices_inside(input_position(axis, output, 0), axis.dilation, axis.taps, axis.in), taps);
  }

  // Lists neighbouring outputs of a row that see x with the same of the taps.
  void list_columns(Range q, Range taps) {
    const SpatialAxis& axis = pb_.axis[2];
    column_count_ = 0;
    for (std::int64_t end = q.begin; q.begin < q.end; q.begin = end) {
      const Range seen = taps_inside(axis, q.begin, taps);
      if (seen == taps) {  // up to the last output that sees x with the last of them
        const std::int64_t reach = axis.in - 1 - input_position(axis, 0, taps.end - 1);
        end = std::min(q.end, reach / axis.stride + 1);
      } else {
        while (end < q.end && taps_inside(axis, end, taps) == seen) ++end;
      }
      if (seen.size() > 0) columns_[column_count_++] = {{q.begin, end}, seen};
    }
  }

  // Lists the runs of the first image, in the order of its pixels, then those of the others. Groups
  // with as many whole images have the same runs, where panels are as wide.
  void list_runs(const PixelBox& group, const TapIndex& first, std::int64_t rows, std::int64_t taps,
                 const Block& x, const Block& dy) {
    const Listed wanted = {{group[0].size(), group[1].begin, group[1].end, group[2].begin,
                            group[2].end, group[3].begin, group[3].end, first.t, first.r, first.s,
                            x.x_strides.spatial[2], dy.dy_strides.spatial[2]}};
    if (wanted == listed_) return;
    listed_ = wanted;
    run_count_ = 0;
    list_columns(group[3], {first.s, first.s + taps});
    for (std::int64_t z = group[1].begin; z < group[1].end; ++z) {
      const std::int64_t d = input_position(pb_.axis[0], z, first.t);
      if (!is_inside(pb_.axis[0], d)) continue;
      for (std::int64_t p = group[2].begin; p < group[2].end; ++p) {
        const Range seen = taps_inside(pb_.axis[1], p, {first.r, first.r + rows});
        if (seen.size() == 0) continue;
        const std::int64_t h = input_position(pb_.axis[1], p, seen.begin);
        for (std::int64_t i = 0; i < column_count_; ++i) {
          const Columns& columns = columns_[i];
          const std::int64_t w = input_position(pb_.axis[2], columns.q.begin, columns.taps.begin);
          runs_[run_count_++] = {x_offset(x, x.pixels[0].begin, d, h, w),
                                 dy_offset(dy, dy.pixels[0].begin, z, p, columns.q.begin),
                                 static_cast<int>(columns.q.size()),
                                 bits({seen.begin - first.r, seen.end - first.r}),
                                 bits({columns.taps.begin - first.s, columns.taps.end - first.s})};
        }
      }
    }
    const std::int64_t of_an_image = run_count_;
    for (std::int64_t n = 1; n < group[0].size(); ++n) {
      for (std::int64_t i = 0; i < of_an_image; ++i, ++run_count_) {
        runs_[run_count_] = runs_[i];
        runs_[run_count_].x += n * x.x_strides.n;
        runs_[run_count_].dy += n * dy.dy_strides.n;
      }
    }
  }

  const WgradProblem& pb_;
  const std::int64_t rows_, taps_;
  using Listed = std::array<std::int64_t, 12>;
  Listed listed_{};        // what runs_ are of: no images, at first
  std::int64_t step_ = 1;  // rows or images of a group
  std::int64_t run_count_ = 0, column_count_ = 0;
  StreamRun runs_[kMaxChunkPixels];
  Columns columns_[kMaxChunkPixels];
};

}  // namespace convgrad
