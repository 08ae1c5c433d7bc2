// mma_gemm.hpp - implicit GEMM on tensor cores.
//
// A tile of dw belongs to one tap: kRows input channels by kColumns output channels of a group. x
// at the pixels that the tap sees, and dy, go to shared memory as [pixel][channel], kDepth pixels a
// stage, several stages ahead; pixels that the tap sees outside x are zeros in both, so that
// nothing comes of them whatever dy is. Channels are contiguous and start at multiples of 16 bytes
// (pack.hpp sees to it). After a chunk its sums are added to Sum<> pairs.
//
// Registers limit a warp's tile: a sum takes one for the chunk and two for the slice's pair. Pairs
// in device memory instead would leave room for 64 x 64 sums a warp; but to read and write them
// after each chunk, 16 bytes a sum, is as much again as a tile of 128 x 128 reads of x and dy for
// 512 pixels of 16 bits. Shared memory limits stages: the wide tile's four are 64 KiB, and its
// table 8 KiB, of the 99 that devices of compute capability 8.6 give a block.
#pragma once

#include "cuda/kernels/mma.hpp"
#include "cuda/kernels/mma_tile.hpp"

namespace convgrad::cuda {

// Each dtype says what is in shared memory, and how it becomes the fragments of matrix
// instructions. kM x kN are the sums of a warp. kDepth is the pixels of a stage: enough
// instructions between two barriers, few enough that several stages fit shared memory. kPad is
// added to rows of shared memory where lanes read single elements: lanes that differ in k must meet
// other banks than lanes that differ in the channel. There are 32 banks of 4 bytes.

// float16 and bfloat16 by ldmatrix, which a swizzle serves (mma_tile.hpp). For 16 pixels a warp
// reads kM + kN channels of shared memory, 32 bytes each, and multiplies for kM * kN / 64 cycles of
// a multiprocessor that reads 128 bytes in each: 64 x 32 takes 24 cycles of reading for 32 of
// multiplying, 32 x 32 would take 16 for 16. The 64 sums and their pairs are 192 registers of 255.
template <typename Scalar>
struct Mma16Operand {
  using Element = Scalar;
  using Op = Mma16<Scalar>;
  using Acc = float;
  static constexpr int kM = 64, kN = 32, kDepth = 32, kPad = 0;
  static constexpr bool kByMatrix = true;
};
struct MmaF64Operand {
  using Element = double;
  using Op = MmaF64;
  using Acc = double;
  // A half of a warp reads four values of k, 8 banks (32 bytes) apart, by four channels.
  static constexpr int kM = 32, kN = 32, kDepth = 16, kPad = 4;
  static constexpr bool kByMatrix = false;
  template <class Fragment>
  CONVGRAD_HD static void set(Fragment& fragment, int e, double value) {
    fragment.value[e] = value;
  }
};
struct MmaTf32Operand {
  using Element = float;
  using Op = MmaTf32;
  using Acc = float;
  // A warp reads four values of k, 8 banks apart, by eight channels.
  static constexpr int kM = 32, kN = 32, kDepth = 16, kPad = 8;
  static constexpr bool kByMatrix = false;
  template <class Fragment>
  CONVGRAD_HD static void set(Fragment& fragment, int e, float value) {
    fragment.word[e] = tf32_nearest(value);
  }
};

template <class Operand, int kWarpRows, int kWarpColumns, int kStages>
struct MmaGemm {
  using Element = typename Operand::Element;
  using Op = typename Operand::Op;
  using Acc = typename Operand::Acc;
  using Tile = MmaTile<Op, Acc, kWarpRows, kWarpColumns, Operand::kM, Operand::kN>;
  static constexpr int kRows = Tile::kRows, kColumns = Tile::kColumns, kThreads = Tile::kThreads;
  static constexpr int kTilesM = Tile::kTilesM, kTilesN = Tile::kTilesN;
  static constexpr int kDepth = Operand::kDepth;
  static constexpr int kElementBytes = sizeof(Element), kVector = 16 / kElementBytes;
  static constexpr int kPitchX = kRows + Operand::kPad, kPitchDy = kColumns + Operand::kPad;

  using Params = GemmParams;
  struct Regs {
    typename Op::A a[kTilesM][1];
    typename Op::B b[kTilesN][1];
    typename Tile::Sums sums;
  };
  struct Shared {
    alignas(128) Element x[kStages][kDepth][kPitchX];
    alignas(128) Element dy[kStages][kDepth][kPitchDy];
    PixelTable table;  // of the chunk that is being loaded
    GemmTask task;
  };

  template <int kWidth, int kPitch, class Block>
  CONVGRAD_HD static void issue_rows(Block& block, int thread, Element (&to)[kDepth][kPitch],
                                     const void* data, const std::int64_t* table, int channels) {
    // A thread's pieces are of the same channels, kStep pixels apart.
    constexpr int kPieces = kWidth / kVector, kStep = kThreads / kPieces;
    static_assert(kStep * kPieces == kThreads && kDepth % kStep == 0);
    static_assert(!Operand::kByMatrix || kStep % 8 == 0);
    const int pixel = thread / kPieces, at = thread % kPieces * kVector;
    const int to_channel = Operand::kByMatrix ? swizzled_channel(pixel, at) : at;
    const bool inside = at < channels;
    CONVGRAD_UNROLL
    for (int i = 0; i < kDepth; i += kStep) {
      const Piece piece(data, at * kElementBytes, table[pixel + i], inside);
      block.copy_async(thread, &to[pixel + i][to_channel], piece.from, piece.there);
    }
  }

  // Begins to load the next slab into a stage, if there is one. Where there is none, an empty group
  // is committed: wait_copies() counts groups.
  template <class Block>
  CONVGRAD_HD static void issue(Block& block, const Params& p, SlabQueue& queue, int stage,
                                int ahead = kStages - 1) {
    if (queue.chunks == 0) {
      block.each_unsynced([&](int thread, Regs&) { block.commit_copies(thread); });
      return;
    }
    if (queue.slab == 0) Tile::template begin_chunk<kDepth, kElementBytes>(block, p, queue);
    block.each_unsynced([&](int thread, Regs&) {
      Shared& s = block.shared;
      const int first = queue.slab * kDepth;
      issue_rows<kRows>(block, thread, s.x[stage], p.work.x.data, s.table.x + first,
                        p.x_pitch - s.task.tile.row);
      issue_rows<kColumns>(block, thread, s.dy[stage], p.work.dy.data, s.table.dy + first,
                           p.dy_pitch - s.task.tile.column);
      block.commit_copies(thread);
    });
    queue.push(ahead);
  }

  // Loads Op::kK pixels of a stage, from `first`, to fragments.
  template <class Block>
  CONVGRAD_HD static void load_fragments(Block& block, int thread, int stage, int first, Regs& r) {
    const Shared& s = block.shared;
    if constexpr (Operand::kByMatrix) {
      Tile::template load_b<1>(block, thread, s.dy[stage] + first, 0, r.b);
      Tile::template load_a<1>(block, thread, s.x[stage] + first, 0, r.a);
    } else {
      const int lane = thread % kWarp, row = Tile::row_of(thread), column = Tile::column_of(thread);
      int k, at;
      CONVGRAD_UNROLL
      for (int j = 0; j < kTilesN; ++j) {
        CONVGRAD_UNROLL
        for (int e = 0; e < Op::kElementsB; ++e) {
          Op::b_place(lane, e, k, at);
          Operand::set(r.b[j][0], e, s.dy[stage][first + k][column + j * Op::kN + at]);
        }
      }
      CONVGRAD_UNROLL
      for (int i = 0; i < kTilesM; ++i) {
        CONVGRAD_UNROLL
        for (int e = 0; e < Op::kElementsA; ++e) {
          Op::a_place(lane, e, at, k);
          Operand::set(r.a[i][0], e, s.x[stage][first + k][row + i * Op::kM + at]);
        }
      }
    }
  }

  template <class Block>
  CONVGRAD_HD static void compute(Block& block, int stage) {
    CONVGRAD_UNROLL
    for (int first = 0; first < kDepth; first += Op::kK) {
      block.each_unsynced(
          [&](int thread, Regs& r) { load_fragments(block, thread, stage, first, r); });
      block.template multiply<Op, kTilesM, kTilesN>(
          [](Regs& r, int i) -> const typename Op::A& { return r.a[i][0]; },
          [](Regs& r, int j) -> const typename Op::B& { return r.b[j][0]; },
          [](Regs& r, int i, int j) -> typename Op::C& { return r.sums.chunk[i * kTilesN + j]; });
    }
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    SlabQueue queue = Tile::begin(block, p, task);
    if (queue.chunks == 0) return;
    block.each_unsynced([&](int thread, Regs& r) {
      r.sums.load(p.work.begins(block.shared.task.slice),
                  Tile::address_of(p.work, block.shared.task, thread));
      r.sums.clear();
    });
    for (int stage = 0; stage < kStages - 1; ++stage) {
      issue(block, p, queue, stage, stage);
      block.each([](int, Regs&) {});  // before the next table
    }
    int stage = 0, free = kStages - 1;
    while (!queue.empty()) {
      block.each([&](int thread, Regs&) { block.template wait_copies<kStages - 2>(thread); });
      // All have left this stage behind at this barrier: one barrier a stage suffices.
      issue(block, p, queue, free);
      compute(block, stage);
      free = stage;
      stage = stage == kStages - 1 ? 0 : stage + 1;
      if (queue.pop()) block.each_unsynced([](int, Regs& r) { r.sums.end_chunk(); });
    }
    block.each_unsynced([&](int thread, Regs& r) {
      r.sums.store(Tile::address_of(p.work, block.shared.task, thread));
    });
  }
};

// Wide tiles read half as much of x and dy for each product, narrow ones waste less where channels
// are few.
template <typename Scalar>
using Mma16Wide = MmaGemm<Mma16Operand<Scalar>, 2, 4, 4>;
template <typename Scalar>
using Mma16Narrow = MmaGemm<Mma16Operand<Scalar>, 1, 2, 4>;
using MmaTf32Wide = MmaGemm<MmaTf32Operand, 2, 4, 4>;
using MmaTf32Narrow = MmaGemm<MmaTf32Operand, 2, 2, 4>;
// There are three stages, as a float64 takes as much memory as four 16-bit elements.
using MmaF64Gemm = MmaGemm<MmaF64Operand, 2, 2, 3>;

}  // namespace convgrad::cuda
