// simt_gemm.hpp - implicit GEMM without tensor cores, for every problem, dtype and layout.
//
// For each group, dw is a matrix of (tap, c) rows and k columns: the product of x, seen through the
// taps, and dy, over the pixels. A block of threads has a tile of it in registers and goes through
// the chunks of one slice, a slab of kDepth pixels at a time, through shared memory in two buffers:
// the next slab is loaded to registers while the present one is multiplied, so that the latency of
// device memory is behind arithmetic without cp.async, which compute capability 7.5 lacks.
//
// Rows of any taps share a tile, so that few channels fill it too (a stem's 3 channels by 49 taps).
// What a tap sees outside x is 0 in the slab, which makes its product 0 unless dy is not finite; a
// slab with such a dy is multiplied with those products left out one by one.
#pragma once

#include "cuda/kernels/chunk_walker.hpp"

namespace convgrad::cuda {

// Registers limit the tile: a thread's kThreadRows x kThreadColumns sums take one register each for
// the chunk and two for the slice (twice that for float64), and 255 is the most a thread can have.
// 8 x 4 float32 sums are 96 of them. For kThreadRows + kThreadColumns values that a thread reads
// from shared memory it does kThreadRows * kThreadColumns products, so larger is better until then.
template <typename Scalar, int kRows, int kColumns, int kThreadRows, int kThreadColumns>
struct SimtGemm {
  using Acc = typename AccumulatorOf<Scalar>::type;
  // Pixels of a slab: with channels first, those of float32 are a 32-byte sector of a row.
  static constexpr int kDepth = 8;
  static constexpr int kThreads = (kRows / kThreadRows) * (kColumns / kThreadColumns);
  static constexpr int kLoadsX = kRows * kDepth / kThreads;
  static constexpr int kLoadsDy = kColumns * kDepth / kThreads;
  static_assert(kChunkPixels % kDepth == 0);  // tables have whole slabs
  static_assert(kThreadRows % 4 == 0 && kThreadColumns % 4 == 0);
  static_assert(kLoadsX * kThreads == kRows * kDepth && kLoadsDy * kThreads == kColumns * kDepth);

  struct Params {
    BlockParams work;
    int row_tiles, column_tiles;  // of one group
  };

  struct Regs {
    TileSums<Acc, kThreadRows, kThreadColumns> sums;
    Acc x[kLoadsX], dy[kLoadsDy];  // the next slab, on its way
    bool inside[kLoadsX];
  };

  // Values are converted before they are stored, as several threads read each. Rows are not padded:
  // row_of() and column_of() give a warp's lanes neighbouring groups of 4, which are read as 16
  // bytes without conflicts between banks. The tables of offsets are for a chunk: their divisions
  // would cost more than the products if every load did them.
  struct Shared {
    alignas(16) Acc x[2][kDepth][kRows];
    alignas(16) Acc dy[2][kDepth][kColumns];
    unsigned char inside[2][kDepth][kRows];
    // Of each pixel of the chunk: where its first tap is in x, and the offsets of that and of dy.
    std::int64_t x_offset[kChunkPixels], dy_offset[kChunkPixels];
    int position[3][kChunkPixels];
    // Of each row of the tile: what its tap and channel add to both.
    std::int64_t row_offset[kRows];
    int row_position[3][kRows];
  };

  // Where a task's tile is in its group's matrix.
  struct Tile {
    int group, row, column;  // the first of each
  };

  CONVGRAD_HD static Tile tile_of(const Params& p, std::int64_t task) {
    const std::int64_t tile = p.work.tile_of(task);
    const std::int64_t in_group = static_cast<std::int64_t>(p.row_tiles) * p.column_tiles;
    Tile result;
    result.group = static_cast<int>(tile / in_group);
    result.row = static_cast<int>(tile % in_group / p.column_tiles) * kRows;
    result.column = static_cast<int>(tile % p.column_tiles) * kColumns;
    return result;
  }

  // Rows and columns of a thread's sums: groups of 4 neighbours, so that a warp's reads of shared
  // memory are contiguous. Lanes of a warp differ in rows first: lanes of one column read the same
  // dy, which shared memory broadcasts.
  CONVGRAD_HD static int row_of(int thread, int i) {
    return i / 4 * (kRows / (kThreadRows / 4)) + thread % (kRows / kThreadRows) * 4 + i % 4;
  }
  CONVGRAD_HD static int column_of(int thread, int j) {
    return j / 4 * (kColumns / (kThreadColumns / 4)) + thread / (kRows / kThreadRows) * 4 + j % 4;
  }

  // (pixel of the slab, row or column) of load number i of a thread: neighbours in memory belong to
  // neighbouring threads, whose loads then are few transactions. Which axis is contiguous depends
  // on the layout.
  template <int kWidth>
  CONVGRAD_HD static void load_place(bool channels_last, int thread, int i, int& pixel, int& at) {
    const int e = i * kThreads + thread;
    pixel = channels_last ? e / kWidth : e % kDepth;
    at = channels_last ? e % kWidth : e / kDepth;
  }

  // Once a task: the rows of a tile are the same for all pixels.
  CONVGRAD_HD static void fill_rows(const BlockParams& w, const Tile& tile, int thread, Shared& s) {
    const Shape& shape = w.shape;
    for (int m = thread; m < kRows; m += kThreads) {
      const int row = tile.row + m, tap = row / shape.group_c;
      const bool there = tap < shape.taps();
      const int at[3] = {shape.tap_t(tap), shape.tap_r(tap), shape.tap_s(tap)};
      std::int64_t offset =
          (static_cast<std::int64_t>(tile.group) * shape.group_c + row % shape.group_c) *
          w.x.c_stride;
      for (int a = 0; a < 3; ++a) {
        const int reach = at[a] * shape.axis[a].dilation;
        s.row_position[a][m] = there ? reach : kNowhere;
        if (there) offset += reach * w.x.spatial[a];
      }
      s.row_offset[m] = offset;
    }
  }

  // Once a chunk. Pixels up to a whole slab, so that the loops over a slab have constant bounds and
  // unroll; those beyond the chunk are outside x for every tap.
  CONVGRAD_HD static void fill_pixels(const BlockParams& w, const Box& box, int pixels, int thread,
                                      Shared& s) {
    const int slabs = ceil_div(pixels, kDepth);
    for (int i = thread; i < slabs * kDepth; i += kThreads) {
      if (i >= pixels) {
        for (int a = 0; a < 3; ++a) s.position[a][i] = kNowhere;
        continue;
      }
      std::int64_t n;
      int out[3];
      box.pixel(i, n, out[0], out[1], out[2]);
      int in[3];
      for (int a = 0; a < 3; ++a) {
        in[a] = w.shape.axis[a].first_input(out[a]);
        s.position[a][i] = in[a];
      }
      s.x_offset[i] = w.x.pixel(n, in[0], in[1], in[2]);
      s.dy_offset[i] = w.dy.pixel(n, out[0], out[1], out[2]);
    }
  }

  // A slab to registers; store() puts it into shared memory after the products of the slab before.
  CONVGRAD_HD static void load(const BlockParams& w, const Tile& tile, const Shared& s, int pixels,
                               int first, int thread, Regs& r) {
    const auto* x = static_cast<const Scalar*>(w.x.data);
    const auto* dy = static_cast<const Scalar*>(w.dy.data);
    const bool last = w.shape.channels_last;
    CONVGRAD_UNROLL
    for (int i = 0; i < kLoadsX; ++i) {
      int pixel, m;
      load_place<kRows>(last, thread, i, pixel, m);
      const int at = first + pixel;
      bool inside = true;
      CONVGRAD_UNROLL
      for (int a = 0; a < 3; ++a) {
        const int position = s.position[a][at] + s.row_position[a][m];
        inside = inside && position >= 0 && position < w.shape.axis[a].in;
      }
      r.inside[i] = inside;
      r.x[i] = inside ? convert<Acc>(x[s.x_offset[at] + s.row_offset[m]]) : Acc{0};
    }
    CONVGRAD_UNROLL
    for (int i = 0; i < kLoadsDy; ++i) {
      int pixel, n;
      load_place<kColumns>(last, thread, i, pixel, n);
      const int at = first + pixel, k = tile.column + n;
      const bool there = at < pixels && k < w.shape.group_k;
      const std::int64_t channel = static_cast<std::int64_t>(tile.group) * w.shape.group_k + k;
      r.dy[i] = there ? convert<Acc>(dy[s.dy_offset[at] + channel * w.dy.c_stride]) : Acc{0};
    }
  }

  // To shared memory; true if some product with padding would not be 0.
  CONVGRAD_HD static bool store(const BlockParams& w, int thread, int buffer, const Regs& r,
                                Shared& s) {
    const bool last = w.shape.channels_last;
    CONVGRAD_UNROLL
    for (int i = 0; i < kLoadsX; ++i) {
      int pixel, m;
      load_place<kRows>(last, thread, i, pixel, m);
      s.x[buffer][pixel][m] = r.x[i];
      s.inside[buffer][pixel][m] = r.inside[i] ? 1 : 0;
    }
    bool finite = true;
    CONVGRAD_UNROLL
    for (int i = 0; i < kLoadsDy; ++i) {
      int pixel, n;
      load_place<kColumns>(last, thread, i, pixel, n);
      s.dy[buffer][pixel][n] = r.dy[i];
      finite = finite && is_finite(r.dy[i]);
    }
    return !finite && w.shape.padded;
  }

  // Pixels are outermost: each is an outer product of values in registers, and every sum gets its
  // products in the order of pixels, as on the processor. Two copies of the code, since the masked
  // one has a branch in each row.
  template <bool kMasked>
  CONVGRAD_HD static void multiply(int thread, int buffer, const Shared& s, Regs& r) {
    CONVGRAD_UNROLL
    for (int pixel = 0; pixel < kDepth; ++pixel) {
      Acc x[kThreadRows], dy[kThreadColumns];
      CONVGRAD_UNROLL
      for (int i = 0; i < kThreadRows; ++i) x[i] = s.x[buffer][pixel][row_of(thread, i)];
      CONVGRAD_UNROLL
      for (int j = 0; j < kThreadColumns; ++j) dy[j] = s.dy[buffer][pixel][column_of(thread, j)];
      CONVGRAD_UNROLL
      for (int i = 0; i < kThreadRows; ++i) {
        if (kMasked && s.inside[buffer][pixel][row_of(thread, i)] == 0) continue;
        CONVGRAD_UNROLL
        for (int j = 0; j < kThreadColumns; ++j) r.sums.chunk[i][j] += x[i] * dy[j];
      }
    }
  }

  CONVGRAD_HD static auto address_of(const BlockParams& w, const Tile& tile, std::int64_t slice,
                                     int thread) {
    return [&w, tile, slice, thread = opaque(thread)](int i) {
      const int row = tile.row + row_of(thread, i / kThreadColumns);
      const int k = tile.column + column_of(thread, i % kThreadColumns);
      const bool inside = row < w.shape.taps() * w.shape.group_c && k < w.shape.group_k;
      const std::int64_t channel = static_cast<std::int64_t>(tile.group) * w.shape.group_k + k;
      return inside ? w.template sum_at<Acc>(slice, row, channel) : nullptr;
    };
  }

  template <class Block>
  CONVGRAD_HD static void add_chunk(Block& block, const BlockParams& w, const Tile& tile,
                                    const Box& box) {
    Shared& s = block.shared;
    const int pixels = box.pixels(), slabs = ceil_div(pixels, kDepth);
    block.each([&](int thread, Regs&) { fill_pixels(w, box, pixels, thread, s); });
    bool masked = block.each_any([&](int thread, Regs& r) {
      load(w, tile, s, pixels, 0, thread, r);
      return store(w, thread, 0, r, s);
    });
    // One barrier a slab: a slab is stored in the buffer that was read before the last barrier.
    for (int slab = 0; slab < slabs; ++slab) {
      const bool more = slab + 1 < slabs, now = masked;
      const int buffer = slab % 2;
      masked = block.each_any([&](int thread, Regs& r) {
        if (more) load(w, tile, s, pixels, (slab + 1) * kDepth, thread, r);
        if (now) {
          multiply<true>(thread, buffer, s, r);
        } else {
          multiply<false>(thread, buffer, s, r);
        }
        return more && store(w, thread, 1 - buffer, r, s);
      });
    }
    block.each_unsynced([&](int, Regs& r) { r.sums.end_chunk(); });
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const BlockParams& w = p.work;
    ChunkWalker walk(w, task);
    if (walk.done()) return;
    const Tile tile = tile_of(p, task);
    block.each_unsynced([&](int thread, Regs& r) {
      fill_rows(w, tile, thread, block.shared);
      r.sums.load(w.begins(walk.slice), address_of(w, tile, walk.slice, thread));
      r.sums.clear();
    });
    for (; !walk.done(); walk.next()) add_chunk(block, w, tile, walk.box);
    block.each_unsynced(
        [&](int thread, Regs& r) { r.sums.store(address_of(w, tile, walk.slice, thread)); });
  }
};

// Wide tiles, and narrow ones for matrices of few rows or columns. Rows and columns of a tile:
inline constexpr int kSimtWide = 64, kSimtNarrow = 32;
// float64 sums take two registers each, so a thread has half as many.
template <typename Scalar>
using SimtGemmWide = SimtGemm<Scalar, kSimtWide, kSimtWide, sizeof(Scalar) == 8 ? 4 : 8, 4>;
template <typename Scalar>
using SimtGemmNarrow = SimtGemm<Scalar, kSimtNarrow, kSimtNarrow, 4, 4>;

}  // namespace convgrad::cuda
