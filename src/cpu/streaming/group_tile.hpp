// group_tile.hpp - does one tile's work of streaming for small groups that are read in place.
#pragma once

#include <algorithm>

#include "cpu/isa/isa_set.hpp"
#include "cpu/streaming/stream_shape.hpp"
#include "cpu/streaming/stream_walk.hpp"

namespace convgrad {

// Reads small groups in place: lanes are input channels, and each meets the output channels of its
// group, which are picked from a vector of dy (or two) in registers.
template <typename Acc>
class GroupTile {
 public:
  // Tells whether this instruction set can do so, by the shape of the problem alone.
  static bool fits(const StreamingIsa<Acc>& isa, const WgradProblem& problem) {
    if (isa.stream_group == nullptr || !is_in_layout(problem)) return false;
    const std::int64_t lanes = isa.lanes, picked = most_picked(isa, problem);
    return !is_depthwise(problem) && picked <= 2 * lanes && problem.C >= lanes &&
           problem.K >= (picked > lanes ? 2 : 1) * lanes && problem.axis[2].taps <= kMostTaps;
  }

  GroupTile(const IsaTable<Acc>& isa, const WgradProblem& problem, const Block& block,
            const Tile& tile, Acc* workspace)
      : isa_(isa.streaming),
        pb_(problem),
        block_(block),
        c_{tile.k.begin / problem.group_k() * problem.group_c(),
           tile.k.end / problem.group_k() * problem.group_c()},
        k_(tile.k),
        sums_(workspace),
        outputs_(std::min<std::int64_t>(
            {problem.group_k(),
             most_picked(isa_, problem) > isa_.lanes ? isa_.wide_outputs : kMostGroupOutputs,
             isa_.group_sums / problem.axis[2].taps})),
        walk_(problem, filter_rows(), problem.axis[2].taps) {}

  // A few rows of pixels go through all blocks of lanes before the next ones do: a pixel's channels
  // are neighbours in memory, and rows are still in the cache for the next block and the next taps.
  // The sums of all blocks are in memory meanwhile.
  bool add_chunk(const PixelBox& box, const PixelBox* next, double* partial) {
    const std::int64_t blocks = ceil_div(c_.size(), isa_.lanes);
    std::fill_n(sums_, blocks * block_sums(), Acc{0});
    set_x_distances(view_, pb_, block_.x_strides.spatial[1], block_.x_strides.spatial[2]);
    view_.dy_pixel = block_.dy_strides.spatial[2];
    view_.sum_tap = pb_.group_k() * isa_.lanes;
    view_.sum_row = pb_.axis[2].taps * view_.sum_tap;
    const std::int64_t pixel_bytes =
        std::max(c_.size(), k_.size()) * static_cast<std::int64_t>(sizeof(Acc));
    walk_.for_each_group(box, pixel_bytes, kGroupBytes, [&](const PixelBox& group) {
      const std::int64_t n = group[0].begin - block_.pixels[0].begin;
      x_ = static_cast<const Acc*>(block_.x) + n * block_.x_strides.n;
      dy_ = static_cast<const Acc*>(block_.dy) + n * block_.dy_strides.n;
      bool fetches = walk_.fetches(group, k_);  // with the first taps
      walk_.for_each_part(group, block_, block_,
                          [&](const TapIndex& first, std::int64_t rows, std::int64_t taps) {
                            for (std::int64_t b = 0; b < blocks; ++b) {
                              if (fetches)
                                walk_.fetch_next(view_, group, box, next, block_, b, blocks);
                              add_block(b, first, rows, taps);
                            }
                            fetches = false;
                          });
    });
    for (std::int64_t b = 0; b < blocks; ++b) flush(b, partial);
    return true;
  }

 private:
  // Counts the output channels of the groups that a vector of lanes sees: lanes that do not begin
  // with a group see a part of one more.
  static std::int64_t most_picked(const StreamingIsa<Acc>& isa, const WgradProblem& problem) {
    const std::int64_t lanes = isa.lanes, c = problem.group_c();
    const bool begins = lanes % c == 0 || c % lanes == 0;
    return (ceil_div(lanes, c) + (begins ? 0 : 1)) * problem.group_k();
  }

  // A group has at most so much of x or dy: both stay in the second cache for all taps and lanes.
  static constexpr std::int64_t kGroupBytes = 64 << 10;

  // All taps of a row come first: they share the loads of dy, and neighbouring taps the lines of x.
  std::int64_t filter_rows() const {
    return std::clamp<std::int64_t>(isa_.group_sums / (pb_.axis[2].taps * outputs_), 1,
                                    std::min<std::int64_t>(pb_.axis[1].taps, kMostGroupRows));
  }

  std::int64_t block_sums() const { return pb_.taps() * pb_.group_k() * isa_.lanes; }
  // The last block begins early enough to be full.
  std::int64_t first_channel(std::int64_t b) const {
    return std::min(c_.begin + b * isa_.lanes, pb_.C - isa_.lanes);
  }

  void add_block(std::int64_t b, const TapIndex& first, std::int64_t rows, std::int64_t taps) {
    const std::int64_t lanes = isa_.lanes, c = first_channel(b);
    const std::int64_t group = c / pb_.group_c(), k_count = pb_.group_k();
    const std::int64_t last_group = (c + lanes - 1) / pb_.group_c();
    const bool wide = (last_group + 1 - group) * k_count > lanes;
    const std::int64_t k = std::min(group * k_count, pb_.K - (wide ? 2 : 1) * lanes);
    view_.x = x_ + c;
    view_.dy = dy_ + k;
    Acc* sums = sums_ + b * block_sums() + (first.t * pb_.axis[1].taps + first.r) * view_.sum_row +
                first.s * view_.sum_tap;
    list_picks(c % pb_.group_c(), group * k_count - k);
    for (std::int64_t j = 0; j < k_count; j += outputs_) {
      const std::int64_t outputs = std::min(outputs_, k_count - j);
      isa_.stream_group(static_cast<int>(rows), static_cast<int>(taps), static_cast<int>(outputs),
                        wide)(view_, pick_ + j * lanes, walk_.runs(), walk_.run_count(),
                              sums + j * lanes);
      view_.fetch_x_lines = view_.fetch_dy_lines = 0;  // with the first outputs
    }
  }

  // Indices are made in memory and loaded by each call, which is nothing beside its hundreds of
  // pixels. They are for lanes that begin with channel `row` of a group whose dy begins at `first`,
  // which nearly all blocks have in common.
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

  // Sums are [tap][output of the group][lane], the partial has [tap][channel of the group][output].
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
  const std::int64_t outputs_;
  StreamWalk walk_;
  const Acc* x_ = nullptr;  // of the group of pixels
  const Acc* dy_ = nullptr;
  std::int64_t picked_row_ = -1, picked_first_ = -1;
  int pick_[2 * 16 * 16];  // [output][lane]: at most 2 vectors of outputs
  StreamView<Acc> view_{};
};

}  // namespace convgrad
