// mma_tile.hpp - divides a tile of dw among the warps of a thread block, and makes 16-bit elements
// in shared memory the fragments of matrix instructions.
#pragma once

#include "cuda/kernels/gemm_tile.hpp"
#include "cuda/kernels/mma.hpp"

namespace convgrad::cuda {

// Returns the place of channel `at` in a row of 16-bit elements in shared memory. ldmatrix reads 16
// bytes of each of eight rows at a time; rows are multiples of 128 bytes, so without a swizzle all
// eight would be in the same four banks. A pad would do as well, but take up to 1/8 more memory.
CONVGRAD_HD int swizzled_channel(int pixel, int at) {
  return ((at / 8) ^ (pixel % 8)) * 8 + at % 8;
}

// Queues the slabs of a task as they are loaded, some before they are multiplied.
struct SlabQueue {
  int chunks = 0;           // that have not been loaded to their end
  int slab = 0, slabs = 0;  // of the chunk: which is loaded next, and of how many
  // Bit i says that a slab is multiplied i slabs from now, bit i + 16 that it ends its chunk.
  unsigned waiting = 0;

  // The next slab has been loaded; `ahead` others are multiplied before it.
  CONVGRAD_HD void push(int ahead) {
    const bool ends = ++slab == slabs;
    waiting |= (ends ? 0x10001u : 1u) << ahead;
    if (!ends) return;
    slab = 0;
    --chunks;
  }
  CONVGRAD_HD bool empty() const { return (waiting & 1u) == 0; }
  // Tells whether the slab that has been multiplied was the last of its chunk.
  CONVGRAD_HD bool pop() {
    const bool ended = (waiting & 0x10000u) != 0;
    waiting = waiting >> 1 & 0x7fff7fffu;
    return ended;
  }
};

// A tile has kWarpRows x kWarpColumns warps, of kM x kN sums each.
template <class Op, typename Acc, int kWarpRows, int kWarpColumns, int kM, int kN>
struct MmaTile {
  static constexpr int kRows = kWarpRows * kM, kColumns = kWarpColumns * kN;
  static constexpr int kThreads = kWarpRows * kWarpColumns * kWarp;
  static constexpr int kTilesM = kM / Op::kM, kTilesN = kN / Op::kN;
  using Sums = TileSums<Acc, kTilesM * kTilesN, Op::kElementsC>;

  // These return the first row and column of a thread's warp.
  CONVGRAD_HD static int row_of(int thread) { return thread / kWarp % kWarpRows * kM; }
  CONVGRAD_HD static int column_of(int thread) { return thread / kWarp / kWarpRows * kN; }

  // These return row and column of a thread's first sum, and of element e of fragment i from there.
  // Places in fragments are what a lane adds plus what an element adds.
  CONVGRAD_HD static void first_place(int thread, int& row, int& column) {
    Op::c_place(thread % kWarp, 0, row, column);
    row += row_of(thread);
    column += column_of(thread);
  }
  CONVGRAD_HD static void step(int i, int e, int& row, int& column) {
    Op::c_place(0, e, row, column);
    row += i / kTilesN * Op::kM;
    column += i % kTilesN * Op::kN;
  }

  // Begins a task, if it has chunks in the block, in shared memory for all.
  template <class Block>
  CONVGRAD_HD static SlabQueue begin(Block& block, const GemmParams& p, std::int64_t task) {
    const ChunkWalker chunks(p.work, task);
    if (!chunks.done()) {
      block.each([&](int thread, auto&) {
        GemmTask& shared = block.shared.task;
        if (thread != 0) return;
        const GemmTile tile = gemm_tile(p, kRows, kColumns, task);
        shared = {tile, TapStart(p.work.shape, tile.tap), chunks.slice, chunks.box, chunks.box};
      });
    }
    SlabQueue queue;
    queue.chunks = chunks.left;
    return queue;
  }
  // Is called before the first slab of a chunk is loaded. A barrier must be between this and loads
  // before it.
  template <int kDepth, int kElementBytes, class Block>
  CONVGRAD_HD static void begin_chunk(Block& block, const GemmParams& p, SlabQueue& queue) {
    GemmTask& task = block.shared.task;
    queue.slabs = ceil_div(task.box.pixels(), kDepth);
    block.each([&](int thread, auto&) {
      block.shared.table.template fill<kThreads, kDepth, kElementBytes>(p, task, thread);
    });
    block.each_unsynced([&](int thread, auto&) {
      if (thread == 0) p.work.chunks.advance(task.box, p.work.apart);
    });
  }

  CONVGRAD_HD static auto address_of(const BlockParams& work, const GemmTask& task, int thread) {
    int row, column;
    first_place(opaque(thread), row, column);
    return sum_addresses<Acc>(work, task.tile, task.slice, row, column,
                              [](int sum, int& down, int& right) {
                                step(sum / Op::kElementsC, sum % Op::kElementsC, down, right);
                              });
  }

  // Calls sum_by_pixels() for a thread's sums.
  template <typename Scalar>
  CONVGRAD_HD static void resum(const GemmParams& p, const GemmTile& tile, const Box& box,
                                int thread, Sums& sums) {
    int row, column;
    first_place(opaque(thread), row, column);
    sum_by_pixels<Scalar>(p, tile, box, sums, [row, column](int i, int e, int& m, int& n) {
      step(i, e, m, n);
      m += row;
      n += column;
    });
  }

  // Loads Op::kK pixels from shared memory to fragments. Shared memory is [pixel][channel] and
  // fragments are [channel][pixel], with two pixels a register: ldmatrix transposes them on the way
  // (PTX ISA, "ldmatrix", .trans). Its four matrices are the four registers of one A, in the
  // manual's order, or those of two neighbouring B. x and dy are the first of these pixels, a
  // multiple of 8. A lane's other rows are 16 channels apart, by exclusive or in swizzled rows,
  // since the first ones are multiples of kM and kN: all follow from one number.
  template <int kTerms, class Block, typename Element, class A>
  CONVGRAD_HD static void load_a(Block& block, int thread, const Element (*x)[kRows], int term,
                                 A (&a)[kTilesM][kTerms]) {
    const int row = row_of(thread);
    CONVGRAD_UNROLL
    for (int i = 0; i < kTilesM; ++i) {
      block.load_transposed(thread % kWarp, a[i][term].word, [&](int lane) {
        const int pixel = lane / 16 * 8 + lane % 8;
        return *x + ((pixel * kRows + swizzled_channel(pixel, row + lane / 8 % 2 * 8)) ^ i * 16);
      });
    }
  }
  template <int kTerms, class Block, typename Element, class B>
  CONVGRAD_HD static void load_b(Block& block, int thread, const Element (*dy)[kColumns], int term,
                                 B (&b)[kTilesN][kTerms]) {
    static_assert(Op::kM == 16 && Op::kN == 8 && kM % 32 == 0 && kN == 32);
    const int column = column_of(thread);
    CONVGRAD_UNROLL
    for (int j = 0; j < kTilesN; j += 2) {
      std::uint32_t words[4];
      block.load_transposed(thread % kWarp, words, [&](int lane) {
        const int pixel = lane / 8 % 2 * 8 + lane % 8;
        return *dy + ((pixel * kColumns + swizzled_channel(pixel, column + lane / 16 * 8)) ^ j * 8);
      });
      CONVGRAD_UNROLL
      for (int i = 0; i < 4; ++i) b[j + i / 2][term].word[i % 2] = words[i];
    }
  }
};

}  // namespace convgrad::cuda
