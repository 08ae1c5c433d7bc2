// region.hpp - the bytes of x and dy that one tile of one chunk reads, as contiguous pieces.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/integers.hpp"
#include "engine/kernel.hpp"

namespace convgrad {

// A region is walked in nested loops over contiguous pieces of memory.
class Region {
 public:
  Region() = default;
  // Takes positions begin, begin + step, ... below end of n, three spatial axes and channels, of a
  // tensor with these strides (in elements of item bytes), relative to first[] (n and the spatial
  // axes).
  Region(const void* data, std::int64_t item, const Strides& strides,
         const std::array<Range, 4>& box, const std::array<std::int64_t, 4>& step,
         const std::array<std::int64_t, 4>& first, Range channels)
      : data_(static_cast<const std::byte*>(data)) {
    std::array<Loop, 5> loops;
    for (std::size_t a = 0; a < 4; ++a) {
      const std::int64_t stride = a == 0 ? strides.n : strides.spatial[a - 1];
      data_ += (box[a].begin - first[a]) * stride * item;
      loops[a] = {ceil_div(box[a].size(), step[a]), stride * item * step[a]};
    }
    data_ += channels.begin * strides.c * item;
    loops[4] = {channels.size(), strides.c * item};
    std::sort(loops.begin(), loops.end(),
              [](const Loop& a, const Loop& b) { return a.stride > b.stride; });
    bytes_ = all_bytes_ = item;
    for (const Loop& loop : loops) all_bytes_ *= std::max<std::int64_t>(loop.count, 0);
    depth_ = 5;
    // Whatever is contiguous becomes part of the piece.
    while (depth_ > 0 && (loops[depth_ - 1].count == 1 || loops[depth_ - 1].stride == bytes_)) {
      bytes_ *= loops[--depth_].count;
    }
    for (std::size_t i = 0; i < depth_; ++i) loops_[i] = loops[i];
    done_ = all_bytes_ == 0;
  }

  std::int64_t bytes() const { return all_bytes_; }
  bool done() const { return done_; }
  const std::byte* piece() const { return data_ + offset_; }
  std::int64_t piece_bytes() const { return bytes_; }

  // Counts the pieces from this one on that begin piece_stride() bytes apart.
  std::int64_t pieces() const { return depth_ > 0 ? innermost().count - index_[depth_ - 1] : 1; }
  std::int64_t piece_stride() const { return depth_ > 0 ? innermost().stride : 0; }
  void advance_pieces() {
    if (depth_ > 0) {
      offset_ += innermost().stride * (pieces() - 1);
      index_[depth_ - 1] = innermost().count - 1;
    }
    advance();
  }

  void advance() {
    for (std::size_t i = depth_; i-- > 0;) {
      offset_ += loops_[i].stride;
      if (++index_[i] < loops_[i].count) return;
      offset_ -= loops_[i].stride * loops_[i].count;
      index_[i] = 0;
    }
    done_ = true;
  }

 private:
  struct Loop {
    std::int64_t count = 0, stride = 0;
  };
  const Loop& innermost() const { return loops_[depth_ - 1]; }

  const std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0, all_bytes_ = 0, offset_ = 0;
  std::size_t depth_ = 0;
  std::array<Loop, 5> loops_{};
  std::array<std::int64_t, 5> index_{};
  bool done_ = true;
};

inline std::array<std::int64_t, 4> begins_of(const std::array<Range, 4>& box) {
  return {box[0].begin, box[1].begin, box[2].begin, box[3].begin};
}

// These regions are what a chunk's products read of a block: dy's pixels, and x between the first
// and the last position that a tap sees.
inline Region dy_region(const WgradProblem& problem, const Block& block, const PixelBox& box,
                        Range k) {
  const std::array<std::int64_t, 4> first = begins_of(block.pixels);
  return {block.dy, dtype_bytes(problem.dtype), block.dy_strides, box, {1, 1, 1, 1}, first, k};
}
inline Region x_region(const WgradProblem& problem, const Block& block, const PixelBox& box,
                       Range c) {
  const std::array<Range, 3> input = input_box(problem, box);
  // A single tap reads one of `stride` positions; input begins with the first that is read. Those
  // side by side in memory are in the same lines, and stay in one piece.
  std::array<std::int64_t, 4> step = {1, 1, 1, 1};
  for (std::size_t a = 0; a < 3; ++a) {
    const SpatialAxis& axis = problem.axis[a];
    const bool apart = block.x_strides.spatial[a] > 1;
    if (axis.taps == 1 && axis.pad_before == 0 && apart) step[a + 1] = axis.stride;
  }
  return {block.x,
          dtype_bytes(problem.dtype),
          block.x_strides,
          {box[0], input[0], input[1], input[2]},
          step,
          begins_of({block.pixels[0], block.input[0], block.input[1], block.input[2]}),
          c};
}

// Hands out cache lines of regions, one after the other.
class LineCursor {
 public:
  void start(const Region& first, const Region& second) {
    regions_ = {first, second};
    current_ = 0;
    line_ = 0;
  }
  bool done() {
    while (current_ < 2 && regions_[current_].done()) ++current_;
    return current_ == 2;
  }
  std::int64_t bytes() const { return regions_[0].bytes() + regions_[1].bytes(); }
  // Returns at most `most` neighbouring lines; 0 when there are none left.
  std::int64_t next(std::int64_t most, const char** begin) {
    if (done()) return 0;
    Region& region = regions_[current_];
    const std::int64_t lines = ceil_div(region.piece_bytes(), kLineBytes);
    const std::int64_t count = std::min(most, lines - line_);
    *begin = reinterpret_cast<const char*>(region.piece() + line_ * kLineBytes);
    line_ += count;
    if (line_ == lines) {
      line_ = 0;
      region.advance();
    }
    return count;
  }

  static constexpr std::int64_t kLineBytes = 64;

 private:
  std::array<Region, 2> regions_;
  std::size_t current_ = 2;
  std::int64_t line_ = 0;
};

}  // namespace convgrad
