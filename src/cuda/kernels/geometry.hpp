// geometry.hpp - describes to kernels one problem, one block of its tensors and the cut of its
// pixels, in plain numbers, the same on device and processor.
//
// Extents, taps and positions fit 32 bits (kMaxExtent, checked before anything is launched), as
// devices have no 64-bit integer units. Numbers of images, of elements and offsets need 64.
#pragma once

#include <cstdint>

#include "cuda/kernels/host_device.hpp"
#include "cuda/kernels/sum.hpp"
#include "problem/schedule_math.hpp"

namespace convgrad::cuda {

// Extents, and positions that a tap can reach, stay below this.
inline constexpr std::int64_t kMaxExtent = std::int64_t{1} << 29;

// A chunk has at most so many pixels, for which kernels' tables of offsets in shared memory have
// room; those of kernels without have up to kLongChunkPixels. schedule.hpp has the same numbers,
// but nvcc cannot read it (choices.cpp compares them).
inline constexpr int kChunkPixels = 512, kLongChunkPixels = 4096;

struct Axis {
  int in, out, taps, stride, dilation, pad;
  CONVGRAD_HD int first_input(int position) const { return position * stride - pad; }
};

struct Shape {
  Axis axis[3];  // d, h, w
  int groups, group_c, group_k;
  std::int64_t K;

  CONVGRAD_HD int taps() const { return axis[0].taps * axis[1].taps * axis[2].taps; }
};

// Views a block of x or dy in device memory. The element of image n, position (a, b, c) and channel
// k of a group is data[pixel(n, a, b, c) + group*group_stride + k*c_stride], all counted from the
// tensor's own origin, for lo <= position < hi only. For all kernels but Pack, c_stride is 1.
struct View {
  const void* data;
  std::int64_t base, n_stride, group_stride, c_stride, spatial[3];
  int lo[3], hi[3];

  CONVGRAD_HD std::int64_t pixel(std::int64_t n, int a, int b, int c) const {
    return base + n * n_stride + a * spatial[0] + b * spatial[1] + c * spatial[2];
  }
  CONVGRAD_HD std::int64_t channel(int group, int k) const { return group * group_stride + k; }
};

// A chunk is a box of output pixels n, z, p, q.
struct Box {
  std::int64_t n;  // first image
  int begin[3];    // first z, p, q
  int size[4];     // images, z, p, q

  CONVGRAD_HD int pixels() const { return size[0] * size[1] * size[2] * size[3]; }
};

// quotient() is i / divisor for i below kLongChunkPixels by a product, as devices have no
// instruction to divide: i * ceil(2^24 / divisor) / 2^24. Rounding up adds less than 1 / 4096, and
// i / divisor is at least 1 / divisor below the next integer. Divisors above 4096 give 0.
CONVGRAD_HD constexpr std::uint32_t reciprocal(std::int64_t divisor) {
  return static_cast<std::uint32_t>(((std::int64_t{1} << 24) + divisor - 1) / divisor);
}
CONVGRAD_HD constexpr int quotient(int i, std::uint32_t reciprocal) {
  return static_cast<int>(static_cast<std::uint64_t>(i) * reciprocal >> 24);
}
static_assert(kLongChunkPixels <= 1 << 12);

// Divides numbers below 2^31 by one that is known before a kernel starts, by a product (Granlund
// and Montgomery, Division by invariant integers using multiplication, 1994): magic is 2^(31 +
// shift) / value rounded up, which adds less than 2^-shift of a unit to n * magic / 2^(31 + shift).
struct Divisor {
  std::uint32_t value, magic;
  int shift;  // the least with value <= 2^shift

  CONVGRAD_HD std::uint32_t quotient(std::uint32_t n) const {
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(n) * magic) >> (31 + shift));
  }
  // Returns the remainder, and leaves the quotient.
  CONVGRAD_HD std::uint32_t take(std::uint32_t& n) const {
    const std::uint32_t rest = quotient(n), remainder = n - rest * value;
    n = rest;
    return remainder;
  }
};
inline Divisor divisor(std::int64_t value) {
  int shift = 0;
  while (std::int64_t{1} << shift < value) ++shift;
  const std::uint64_t power = std::uint64_t{1} << (31 + shift);
  const auto by = static_cast<std::uint64_t>(value);
  return {static_cast<std::uint32_t>(value), static_cast<std::uint32_t>((power + by - 1) / by),
          shift};
}

// The cut of all output pixels into chunks (ChunkGrid), so that boxes follow without 64-bit
// divisions: pieces of `full` pixels, q fastest. They are one pixel long on axes outside the one
// that chunks split, and the whole extent on those inside it.
struct Chunks {
  std::int64_t images;           // pixels along n
  int extent[3];                 // along z, p, q
  int full[4];                   // pixels of a chunk along n, z, p, q, but at the ends
  int pieces[3];                 // along z, p, q
  std::uint32_t reciprocals[3];  // of full[1], full[2], full[3]

  // Chunks are fewer than 2^32 (too_large()).
  CONVGRAD_HD Box box(std::int64_t chunk) const {
    Box result;
    auto rest = static_cast<std::uint32_t>(chunk);
    for (int a = 3; a > 0; --a) {
      result.begin[a - 1] = take(rest, pieces[a - 1]) * full[a];
    }
    const std::int64_t n = static_cast<std::int64_t>(rest) * full[0], left = images - n;
    result.n = n;
    // At the ends of axes chunks are shorter.
    result.size[0] = left < full[0] ? static_cast<int>(left) : full[0];
    for (int a = 0; a < 3; ++a) {
      result.size[a + 1] = least(full[a + 1], extent[a] - result.begin[a]);
    }
    return result;
  }
  // Finds pixel number i of a chunk's box, q fastest; the image is counted within the box. Axes
  // inside the one that is cut are whole in every chunk, those outside have one pixel.
  CONVGRAD_HD void pixel(const Box& box, int i, int& image, int out[3]) const {
    int at = i;
    for (int a = 2; a >= 0; --a) {
      const int next = quotient(at, reciprocals[a]);
      out[a] = box.begin[a] + at - next * box.size[a + 1];
      at = next;
    }
    image = at;
  }
};

// Every kernel that adds to partial gradients gets this. A task is (slice, tile): tiles are inside,
// so that thread blocks that run at a time share a slice's pixels, which the L2 cache then holds.
struct BlockParams {
  Shape shape;
  View x, dy;
  Chunks chunks;
  std::int64_t chunk_count, unit, partitions, interleave;  // the slices
  std::int64_t chunk_begin, chunk_end;                     // of this block
  std::int64_t first_slice;                                // of this launch
  std::int64_t tiles;                                      // of the gradient
  std::int64_t dw_count;                                   // elements of a partial gradient
  void* partials;                                          // Sum<Acc> [slice][tap][c][k]

  CONVGRAD_HD std::int64_t tile_of(std::int64_t task) const { return task % tiles; }
  // Tells whether this block has the first chunk of a slice: its partial gradient is then written
  // without being read, and nobody has to set it to zero.
  CONVGRAD_HD bool begins(std::int64_t slice) const {
    return first_chunk(chunk_count, unit, partitions, interleave, slice) >= chunk_begin;
  }
  // Returns the sum of a slice's partial gradient for a row (tap, c) and an output channel k.
  template <typename Acc>
  CONVGRAD_HD Sum<Acc>* sum_at(std::int64_t slice, std::int64_t row, std::int64_t k) const {
    return static_cast<Sum<Acc>*>(partials) + slice * dw_count + row * shape.K + k;
  }
};

// Walks through the chunks that a slice has in the block, in the order in which a thread block
// takes them. It fixes the bits of the result: it follows from the problem, never from the device.
struct ChunkWalker {
  const BlockParams& work;
  std::int64_t slice, chunk;
  int left;  // chunks, the present one included

  CONVGRAD_HD ChunkWalker(const BlockParams& params, std::int64_t task)
      : work(params), slice(params.first_slice + task / params.tiles), left(0) {
    std::int64_t end;
    dealt_chunks(work.chunk_count, work.unit, work.partitions, work.interleave, slice,
                 work.chunk_begin, work.chunk_end, chunk, end);
    if (chunk < end) left = static_cast<int>(ceil_div(end - chunk, work.interleave));
  }
  CONVGRAD_HD bool done() const { return left == 0; }
  CONVGRAD_HD void next() {
    --left;
    chunk += work.interleave;
  }
  CONVGRAD_HD Box box() const { return work.chunks.box(chunk); }
};

// Holds where a tap sees x from the outputs at position 0.
struct TapStart {
  int at[3];

  // Divides, for which devices have no instruction: kernels do this once a chunk at most.
  CONVGRAD_HD TapStart(const Shape& shape, int tap) {
    const int R = shape.axis[1].taps, S = shape.axis[2].taps;
    const int taps[3] = {tap / (R * S), tap / S % R, tap % S};
    for (int a = 0; a < 3; ++a) at[a] = taps[a] * shape.axis[a].dilation - shape.axis[a].pad;
  }
  TapStart() = default;  // in shared memory
};

// Finds where a tap sees x from an output position; false if that is outside x on some axis.
CONVGRAD_HD bool tap_input(const Shape& shape, const TapStart& start, const int out[3], int in[3]) {
  bool inside = true;
  for (int a = 0; a < 3; ++a) {
    in[a] = out[a] * shape.axis[a].stride + start.at[a];
    inside = inside && in[a] >= 0 && in[a] < shape.axis[a].in;
  }
  return inside;
}

}  // namespace convgrad::cuda
