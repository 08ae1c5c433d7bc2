// simt_gemm.hpp - implicit GEMM without tensor cores, for every problem, dtype and layout.
//
// For each group, dw is a matrix of (tap, c) rows and k columns: the product of x, seen through the
// taps, and dy, over the pixels. A block of threads has a tile of it in registers and goes through
// the chunks of one slice, a slab of kDepth pixels at a time, through shared memory in two buffers:
// the next slab is loaded to registers while the present one is multiplied, so that the latency of
// device memory is behind arithmetic without cp.async, which compute capability 7.5 lacks.
//
// Rows of any taps share a tile, so that few channels fill it too (a stem's 3 channels by 49 taps).
// What a tap sees outside x is 0 in the slab, which makes its product 0 unless dy is not finite
// (sum_again.hpp).
#pragma once

#include "cuda/kernels/sum_again.hpp"

namespace convgrad::cuda {

// Registers limit the tile: a thread's kThreadRows x kThreadColumns sums take one register each for
// the chunk and two for the slice (twice that for float64), and 255 is the most a thread can have.
// 8 x 4 float32 sums are 96 of them. For kThreadRows + kThreadColumns values that a thread reads
// from shared memory it does kThreadRows * kThreadColumns products, so larger is better until then.
template <typename Scalar, int kRows, int kColumns, int kThreadRows, int kThreadColumns>
struct SimtGemm {
  using Acc = typename AccumulatorOf<Scalar>::type;
  // A slab has so many pixels, with channels first two 32-byte sectors of a row of float32.
  static constexpr int kDepth = 16;
  static constexpr int kThreads = (kRows / kThreadRows) * (kColumns / kThreadColumns);
  // Registers must suffice for so many blocks of a multiprocessor: for 256 threads together.
  static constexpr int kLeastBlocks = 256 / kThreads;
  static constexpr std::int64_t kItem = sizeof(Scalar);
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
    Scalar x[kLoadsX], dy[kLoadsDy];  // the next slab, on its way: converted when it is stored
  };

  // A pixel of the chunk has the bytes to its first tap in x and to itself in dy, and the tile's
  // taps through which x is seen. A tile's rows are of at most kRows taps on end.
  struct alignas(16) Pixel {
    std::int64_t x;
    std::uint64_t taps;
    std::int64_t dy;
  };
  static_assert(kRows <= 64);
  // A row of the tile has what Pixel::x is added to, for its tap and channel, and its tap's bit;
  // none beyond dw.
  struct alignas(16) Row {
    const unsigned char* x;
    std::uint64_t tap;
  };

  // Values are converted before they are stored, as several threads read each. Rows are not padded:
  // row_of() and column_of() give a warp's lanes neighbouring groups of 4, which are read as 16
  // bytes without conflicts between banks. The tables are for a chunk: their divisions would cost
  // more than the products if every load did them.
  struct Shared {
    alignas(16) Acc x[2][kDepth][kRows];
    alignas(16) Acc dy[2][kDepth][kColumns];
    Pixel pixels[kChunkPixels];
    Row rows[kRows];
    const unsigned char* columns[kColumns];  // what Pixel::dy is added to, for a channel
  };

  // Says where a task's tile is in its group's matrix.
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

  // Rows and columns of a thread's sums are groups of 4 neighbours, so that a warp's reads of
  // shared memory are contiguous. Lanes of a warp differ in rows first: lanes of one column read
  // the same dy, which shared memory broadcasts.
  CONVGRAD_HD static int row_of(int thread, int i) {
    return i / 4 * (kRows / (kThreadRows / 4)) + thread % (kRows / kThreadRows) * 4 + i % 4;
  }
  CONVGRAD_HD static int column_of(int thread, int j) {
    return j / 4 * (kColumns / (kThreadColumns / 4)) + thread / (kRows / kThreadRows) * 4 + j % 4;
  }

  // Finds (pixel of the slab, row or column) of load number i of a thread: neighbours in memory
  // belong to neighbouring threads, whose loads then are few transactions.
  template <int kWidth>
  CONVGRAD_HD static void load_place(int thread, int i, int& pixel, int& at) {
    static_assert(kThreads % kWidth == 0);
    pixel = i * (kThreads / kWidth) + thread / kWidth;
    at = thread % kWidth;
  }

  // Is called once a task: the rows and columns of a tile are the same for all pixels. Columns
  // beyond the group are another's once more: their sums are not stored.
  CONVGRAD_HD static void fill_rows(const BlockParams& w, const Tile& tile, int thread, Shared& s) {
    const Shape& shape = w.shape;
    const int first = tile.row / shape.group_c;
    for (int m = thread; m < kRows; m += kThreads) {
      const int row = tile.row + m, tap = row / shape.group_c;
      const bool there = tap < shape.taps();
      const std::int64_t offset =
          there ? w.x.channel(tile.group, row % shape.group_c) +
                      shape.tap_t(tap) * shape.axis[0].dilation * w.x.spatial[0] +
                      shape.tap_r(tap) * shape.axis[1].dilation * w.x.spatial[1] +
                      shape.tap_s(tap) * shape.axis[2].dilation * w.x.spatial[2]
                : 0;
      s.rows[m].x = static_cast<const unsigned char*>(w.x.data) + offset * kItem;
      s.rows[m].tap = there ? std::uint64_t{1} << (tap - first) : 0;
    }
    for (int n = thread; n < kColumns; n += kThreads) {
      const int k = least(tile.column + n, shape.group_k - 1);
      s.columns[n] =
          static_cast<const unsigned char*>(w.dy.data) + w.dy.channel(tile.group, k) * kItem;
    }
  }

  // Returns the tile's taps through which an output position sees x.
  CONVGRAD_HD static std::uint64_t taps_inside(const Shape& shape, const Tile& tile,
                                               const int (&in)[3]) {
    const int first = tile.row / shape.group_c;
    const int end = least(ceil_div(tile.row + kRows, shape.group_c), shape.taps());
    int at[3] = {shape.tap_t(first), shape.tap_r(first), shape.tap_s(first)};
    std::uint64_t result = 0;
    CONVGRAD_NO_UNROLL
    for (int tap = first; tap < end; ++tap) {
      bool inside = true;
      for (int a = 0; a < 3; ++a) {
        const int position = in[a] + at[a] * shape.axis[a].dilation;
        inside = inside && position >= 0 && position < shape.axis[a].in;
      }
      result |= static_cast<std::uint64_t>(inside ? 1 : 0) << (tap - first);
      if (++at[2] < shape.axis[2].taps) continue;
      at[2] = 0;
      if (++at[1] < shape.axis[1].taps) continue;
      at[1] = 0;
      ++at[0];
    }
    return result;
  }

  // Is called once a chunk and fills pixels up to a whole slab, so that the loops over a slab have
  // constant bounds and unroll; those beyond the chunk see nothing, with the dy of its last pixel.
  CONVGRAD_HD static void fill_pixels(const BlockParams& w, const Tile& tile, const Box& box,
                                      int pixels, int thread, Shared& s) {
    const int slabs = ceil_div(pixels, kDepth);
    for (int i = thread; i < slabs * kDepth; i += kThreads) {
      int image, out[3], in[3];
      w.chunks.pixel(box, least(i, pixels - 1), image, out);
      const std::int64_t n = box.n + image;
      for (int a = 0; a < 3; ++a) in[a] = w.shape.axis[a].first_input(out[a]);
      s.pixels[i] = {w.x.pixel(n, in[0], in[1], in[2]) * kItem,
                     i < pixels ? taps_inside(w.shape, tile, in) : 0,
                     w.dy.pixel(n, out[0], out[1], out[2]) * kItem};
    }
  }

  // Loads a slab to registers; store() puts it in shared memory after the one before is multiplied.
  CONVGRAD_HD static void load(const Shared& s, int first, int thread, Regs& r) {
    CONVGRAD_UNROLL
    for (int i = 0; i < kLoadsX; ++i) {
      int pixel, m;
      load_place<kRows>(thread, i, pixel, m);
      const Pixel& at = s.pixels[first + pixel];
      const Row& row = s.rows[m];
      r.x[i] = (at.taps & row.tap) != 0 ? *in_global<Scalar>(row.x + at.x) : Scalar{};
    }
    CONVGRAD_UNROLL
    for (int i = 0; i < kLoadsDy; ++i) {
      int pixel, n;
      load_place<kColumns>(thread, i, pixel, n);
      r.dy[i] = *in_global<Scalar>(s.columns[n] + s.pixels[first + pixel].dy);
    }
  }

  CONVGRAD_HD static void store(int thread, int buffer, const Regs& r, Shared& s) {
    CONVGRAD_UNROLL
    for (int i = 0; i < kLoadsX; ++i) {
      int pixel, m;
      load_place<kRows>(thread, i, pixel, m);
      s.x[buffer][pixel][m] = convert<Acc>(r.x[i]);
    }
    CONVGRAD_UNROLL
    for (int i = 0; i < kLoadsDy; ++i) {
      int pixel, n;
      load_place<kColumns>(thread, i, pixel, n);
      s.dy[buffer][pixel][n] = convert<Acc>(r.dy[i]);
    }
  }

  // Pixels are outermost: each is an outer product of values in registers, and every sum gets its
  // products in the order of pixels, as on the processor.
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

  // Adds the slabs of a chunk whose tables are filled. One barrier a slab suffices: a slab is
  // stored in the buffer that was read before the last barrier.
  template <class Block>
  CONVGRAD_HD static void add_slabs(Block& block, int slabs) {
    Shared& s = block.shared;
    Regs& r = block.regs;
    const int thread = block.thread();
    load(s, 0, thread, r);
    store(thread, 0, r, s);
    block.sync();
    for (int slab = 0; slab < slabs; ++slab) {
      const bool more = slab + 1 < slabs;
      const int buffer = slab % 2;
      if (more) load(s, (slab + 1) * kDepth, thread, r);
      multiply(thread, buffer, s, r);
      if (more) store(thread, 1 - buffer, r, s);
      block.sync();
    }
  }

  template <class Block>
  CONVGRAD_HD static void add_chunk(Block& block, const BlockParams& w, const Tile& tile,
                                    const Box& box) {
    const Shape& shape = w.shape;
    Regs& r = block.regs;
    const int pixels = box.pixels(), slabs = ceil_div(pixels, kDepth);
    fill_pixels(w, tile, box, pixels, block.thread(), block.shared);
    block.sync();
    add_slabs(block, slabs);
    if (block.any(!r.sums.all_finite())) {
      const auto find = [&](int thread, int i, int j) {
        const int row = tile.row + row_of(thread, i), k = tile.column + column_of(thread, j);
        const int tap = row / shape.group_c;
        return DwElement{tile.group, tap, row % shape.group_c, k,
                         tap < shape.taps() && k < shape.group_k};
      };
      sum_again<Scalar>(w, box, block.thread(), r.sums, find);
    }
    r.sums.end_chunk();
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const BlockParams& w = p.work;
    ChunkWalker walk(w, task);
    if (walk.done()) return;
    Regs& r = block.regs;
    const Tile tile = tile_of(p, task);
    fill_rows(w, tile, block.thread(), block.shared);
    r.sums.load(w.begins(walk.slice), address_of(w, tile, walk.slice, block.thread()));
    r.sums.clear();
    for (; !walk.done(); walk.next()) add_chunk(block, w, tile, walk.box());
    r.sums.store(address_of(w, tile, walk.slice, block.thread()));
  }
};

// Tiles are wide, or narrow for matrices of few rows or columns, with so many rows and columns.
inline constexpr int kSimtWide = 64, kSimtNarrow = 32;
// float64 sums take two registers each, so a thread has half as many.
template <typename Scalar>
using SimtGemmWide = SimtGemm<Scalar, kSimtWide, kSimtWide, sizeof(Scalar) == 8 ? 4 : 8, 4>;
template <typename Scalar>
using SimtGemmNarrow = SimtGemm<Scalar, kSimtNarrow, kSimtNarrow, 4, 4>;

}  // namespace convgrad::cuda
