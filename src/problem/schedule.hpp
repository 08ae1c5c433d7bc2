// schedule.hpp - how the sum over output pixels is cut, by the shape alone.
//
// The output pixels (n,z,p,q) are cut into chunks of at most 512, each a box: a chunk splits one
// axis, is full in the axes inside it and single in those outside. float32 products are summed in
// float32 within a chunk only. Chunks are dealt out to slices; each slice has its own float64
// partial gradient, and the partials are added in a fixed binary tree. Slices come in contiguous
// partitions, which a process of several can own; within a partition, chunks go to `interleave`
// slices in turn. A block is what is in memory at a time: it follows from the memory limit, ends
// between two chunks, and leaves the sums of its slices for the next one. Nothing here looks at
// threads, memory limits, file blocks or processes, so none of them can change a bit of the result.
//
// For example, N = 8 images of 28x28 with a 3x3 filter, 64 to 64 channels: a chunk has 14 rows of
// an image (392 pixels; 18 would be 504, but chunks are as even as can be), so there are 16. With 4
// chunks each there are 4 slices. A limit that holds 3 images makes blocks of 3, 3 and 2 images; a
// job of images 0:4 owns the slices that lie in them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "convgrad/problem.hpp"

namespace convgrad {

struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// This is a box of output pixels n, z, p, q.
using PixelBox = std::array<Range, 4>;

inline constexpr std::int64_t kMaxChunkPixels = 512;
// Kernels that make longer sums of 16-bit numbers have chunks of up to this.
inline constexpr std::int64_t kMaxLongChunkPixels = 4096;

struct ChunkGrid {
  std::array<std::int64_t, 4> extent{};  // N, Z, P, Q
  std::size_t axis = 0;                  // the axis that chunks split
  std::int64_t step = 1;                 // extent of a chunk along it (the last may be shorter)
  std::int64_t pieces = 0;               // chunks along it
  std::int64_t count = 0;                // all chunks; 0 when dy or dw is empty

  PixelBox box(std::int64_t chunk) const;
};
// For kernels that make longer sums, a chunk is a box of neighbours in chunk_grid(problem), of at
// most `most_pixels` together.
ChunkGrid chunk_grid(const WgradProblem& problem, std::int64_t most_pixels = kMaxChunkPixels);
// Serves kernels that choose any size: chunks are as even as can be, of at most `most_pixels`.
// Along the axis that `fine` splits they are whole chunks of `fine`.
ChunkGrid even_chunk_grid(const WgradProblem& problem, std::int64_t most_pixels,
                          const ChunkGrid* fine = nullptr);
// Returns the longest chunk that leaves threads enough tasks.
std::int64_t long_chunk_pixels(const WgradProblem& problem);

// A slice's chunks begin, begin + step, ... below end.
struct ChunkRun {
  std::int64_t begin = 0, end = 0, step = 1;
};

// Changes whenever the cut of the sum or the order of its additions does, on the processor or on a
// device: partial gradients of different versions do not add up to the bits of one run.
inline constexpr int kScheduleVersion = 16;

// Chunks of a partition are dealt out so that a block of any size feeds all threads. Where there
// are as many images as partitions, partitions are whole images; else images are whole partitions.
struct SliceGrid {
  std::int64_t chunks = 0;
  std::int64_t unit = 1;  // chunks that no two partitions share: one, or an image's
  std::int64_t partitions = 1;
  std::int64_t interleave = 1;

  std::int64_t count() const { return partitions * interleave; }
  // Returns the chunks of one slice that lie in `within`.
  ChunkRun chunks_of(std::int64_t slice, Range within) const;
  // These are the chunks of a partition, and the slices of neighbouring ones.
  Range chunks_of_partition(std::int64_t partition) const;
  Range slices_of(Range some) const { return {some.begin * interleave, some.end * interleave}; }
};
SliceGrid slice_grid(const WgradProblem& problem, const ChunkGrid& grid);
// Returns the step that cuts `count` channels into the fewest equal tiles of at most `most`, or one
// more: a few tasks, a tile of a slice and `others` beside it each, are even in number, as 3 take
// two threads as long as 4, and 9 as long as 10.
std::int64_t tile_step(const WgradProblem& problem, const ChunkGrid& grid, std::int64_t count,
                       std::int64_t most, std::int64_t others);
// Makes `slices` slices, if chunks and images allow: in `partitions` partitions or more, of
// `most_interleave` at most.
SliceGrid deal_slices(const ChunkGrid& grid, std::int64_t slices, std::int64_t partitions,
                      std::int64_t most_interleave);

// The batch can be cut so that the parts add up to the bits of the whole. A part is made of whole
// partitions of slices. It begins and ends between images, so the batch can be cut where a
// partition begins with an image: everywhere, if there are at least as many partitions as images.

// The request is images [begin, end), or else part number `part` of `parts` (from 0).
struct BatchRange {
  std::optional<Range> images = {};
  std::int64_t part = 0, parts = 1;
};

// These images and partitions are summed. Both ranges are empty for a share without an image.
struct BatchPart {
  Range images, partitions;
};

// A cut is a partition that begins with an image; the last cut is the end of the batch.
struct BatchCut {
  std::int64_t image = 0, partition = 0;
};
// Cuts are in ascending order. An empty batch has one part, which is empty too.
std::vector<BatchCut> batch_cuts(const ChunkGrid& grid, const SliceGrid& slices);

// Shares are as even as the cuts allow, and the first has something whenever any has. Error(usage)
// that names the nearest cuts if images are asked for that are none.
BatchPart batch_part(const ChunkGrid& grid, const SliceGrid& slices, const BatchRange& range);

// The slices are added in a fixed binary tree: neighbours 0 and 1, 2 and 3, ..., then the sums of
// those, and so on; one without a neighbour goes up as it is. A node is the range of its slices.
// These are the largest nodes that lie within `part`, from left to right: at most two a level.
std::vector<Range> tree_nodes(std::int64_t slices, Range part);
// A node of more than one slice is the sum of these two.
std::array<Range, 2> tree_children(Range node);
// Returns the node and the one it is added to, left and right; none for the root. Each slice but
// the first begins the right one of exactly one pair.
std::optional<std::array<Range, 2>> tree_pair(std::int64_t slices, Range node);
// Counts the tree's levels, its slices included: at most so many sums wait for neighbours.
std::int64_t tree_levels(std::int64_t slices);

// x and dy come to memory in blocks: whole images, or rows of one when an image is too large, or a
// part of one when a row is. They are boxes of whole chunks, in the order of the chunks.
struct BlockGrid {
  ChunkGrid chunks;
  Range images;           // that are read: all, or those of a part of the batch
  std::size_t axis = 0;   // 0: images, 1: planes (z), 2: rows (p), 3: columns (q)
  std::int64_t step = 1;  // extent of a block along it
  std::int64_t pieces = 0;
  std::int64_t count = 0;

  PixelBox box(std::int64_t block) const;
  Range chunk_range(std::int64_t block) const;
};

// Returns the d, h and w that taps see from the pixels of a box, clipped to x, or {0, 0}.
std::array<Range, 3> input_box(const WgradProblem& problem, const PixelBox& box);

// Chooses the largest blocks whose x and dy together have at most budget_bytes. The smallest
// possible block needs smallest_bytes; if that is over the budget, count is -1. Blocks cover
// `images`, which chunks must not cross.
struct BlockChoice {
  BlockGrid grid;
  std::int64_t x_bytes = 0, dy_bytes = 0;  // of the largest block
  std::int64_t smallest_bytes = 0;
};
BlockChoice choose_blocks(const WgradProblem& problem, const ChunkGrid& grid,
                          std::int64_t budget_bytes, Range images);

// Returns the i below count for which first + i * step lies in [0, in).
inline Range indices_inside(std::int64_t first, std::int64_t step, std::int64_t count,
                            std::int64_t in) {
  const std::int64_t begin = first >= 0 ? 0 : (-first - 1) / step + 1;
  const std::int64_t end = first >= in ? 0 : (in - 1 - first) / step + 1;
  const std::int64_t low = std::min(begin, count);
  return {low, std::clamp(end, low, count)};
}

// Returns the output positions of one axis from which a tap sees x.
inline Range outputs_inside(const SpatialAxis& axis, std::int64_t tap) {
  return indices_inside(tap * axis.dilation - axis.pad_before, axis.stride, axis.out, axis.in);
}

}  // namespace convgrad
