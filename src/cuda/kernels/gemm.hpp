// gemm.hpp - implicit GEMM, on tensor cores or by a thread's own multiply-adds.
//
// A tile of dw belongs to one tap: kRows input channels by kColumns output channels of a group. x
// at the pixels that the tap sees, and dy, go to shared memory as [pixel][channel], kDepth pixels a
// stage, several stages ahead; pixels that the tap sees outside x are zeros in both, so that
// nothing comes of them whatever dy is. Channels are contiguous and start at multiples of 16 bytes
// (pack.hpp sees to it). After a chunk its sums are added to Sum<> pairs.
//
// Registers limit a warp's tile: a sum takes one for the chunk and two for the slice's pair. Shared
// memory limits stages: the wide tile's four are 64 KiB, and its table 8 KiB, of the 99 that
// devices of compute capability 8.6 give a block.
#pragma once

#include "cuda/kernels/gemm_tile.hpp"
#include "cuda/kernels/mma.hpp"

namespace convgrad::cuda {

// Each dtype says what is in shared memory, and how it becomes the fragments of matrix
// instructions. kM x kN are the sums of a warp. kDepth is the pixels of a stage: enough
// instructions between two barriers, few enough that several stages fit shared memory. kPad is
// added to rows of shared memory where lanes read single elements: lanes that differ in k must meet
// other banks than lanes that differ in the channel. There are 32 banks of 4 bytes.

// Elements one by one, converted as a thread reads them.
template <typename Scalar>
struct SingleOperand {
  using Element = Scalar;
  using Acc = typename AccumulatorOf<Scalar>::type;
  static constexpr int kDepth = 16;
  static constexpr bool kByMatrix = false;
  template <class Fragment>
  CONVGRAD_HD static void set(Fragment& fragment, int e, Scalar value) {
    fragment.value[e] = convert<Acc>(value);
  }
};
// Every dtype without tensor cores. A lane's 8 x 4 sums (4 x 4 of float64) are four rows on end by
// four columns: it reads 16 bytes of float32 at a time, and what lanes share is broadcast.
template <typename Scalar, int kWarpM>
struct FmaOperand : SingleOperand<Scalar> {
  using Op = Fma<typename AccumulatorOf<Scalar>::type>;
  static constexpr int kM = kWarpM, kN = 16, kPad = 0;
};
// 16 bits by ldmatrix, which a swizzle serves. 64 sums and their pairs are 192 registers of 255.
template <typename Scalar>
struct Mma16Operand {
  using Element = Scalar;
  using Op = Mma16<Scalar>;
  using Acc = float;
  static constexpr int kM = 64, kN = 32, kDepth = 32, kPad = 0;
  static constexpr bool kByMatrix = true;
};
struct MmaF64Operand : SingleOperand<double> {
  using Op = MmaF64;
  // A half of a warp reads four values of k, 8 banks (32 bytes) apart, by four channels.
  static constexpr int kM = 32, kN = 32, kPad = 4;
};

// Returns the place of channel `at` in a row of 16-bit elements in shared memory. ldmatrix reads 16
// bytes of each of eight rows at a time; rows are multiples of 128 bytes, so without a swizzle all
// eight would be in the same four banks. A pad would do as well, but take up to 1/8 more memory.
CONVGRAD_HD int swizzled_channel(int pixel, int at) {
  return ((at / 8) ^ (pixel % 8)) * 8 + at % 8;
}

// Counts what of a task has not been loaded: chunks, of which the first one's next slab is this.
struct SlabsToLoad {
  int chunks, slab = 0, slabs = 0;
};

// A tile has kWarpRows x kWarpColumns warps, of kM x kN sums each.
template <class Operand, int kWarpRows, int kWarpColumns, int kStages>
struct Gemm {
  using Element = typename Operand::Element;
  using Op = typename Operand::Op;
  using Acc = typename Operand::Acc;
  static constexpr int kM = Operand::kM, kN = Operand::kN, kDepth = Operand::kDepth;
  static constexpr int kRows = kWarpRows * kM, kColumns = kWarpColumns * kN;
  static constexpr int kThreads = kWarpRows * kWarpColumns * kWarp;
  // A multiprocessor has 64 KiB registers: 128 for each of 512 threads, where sums leave enough.
  static constexpr int kSumBytes = kM * kN / kWarp * static_cast<int>(sizeof(Acc) + 8);
  static constexpr int kResident = (kSumBytes > 384 ? 256 : 512) / kThreads;
  static constexpr int kLeastBlocks = kResident;
  static constexpr int kTilesM = kM / Op::kM, kTilesN = kN / Op::kN;
  static constexpr int kElementBytes = sizeof(Element), kVector = 16 / kElementBytes;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  static constexpr bool kRuns = !Op::kOfTensorCores;
#else
  static constexpr bool kRuns = true;
#endif
  static constexpr int kPitchX = kRows + Operand::kPad, kPitchDy = kColumns + Operand::kPad;

  using Params = GemmParams;
  struct Regs {
    typename Op::A a[kTilesM];
    typename Op::B b[kTilesN];
    TileSums<Acc, kTilesM * kTilesN, Op::kElementsC> sums;
  };
  struct Shared {
    alignas(128) Element x[kStages][kDepth][kPitchX];
    alignas(128) Element dy[kStages][kDepth][kPitchDy];
    bool ends_chunk[kStages];  // whether a stage's slab does
    PixelTable table;          // of the chunk that is being loaded
    GemmTask task;
  };

  // These return the first row and column of a thread's warp.
  CONVGRAD_HD static int row_of(int thread) { return thread / kWarp % kWarpRows * kM; }
  CONVGRAD_HD static int column_of(int thread) { return thread / kWarp / kWarpRows * kN; }

  template <int kWidth, int kPitch, class Block>
  CONVGRAD_HD static void issue_rows(Block& block, Element (&to)[kDepth][kPitch], const void* data,
                                     const std::int64_t* table, int channels) {
    // A thread's pieces are of the same channels, kStep pixels apart.
    constexpr int kPieces = kWidth / kVector, kStep = kThreads / kPieces;
    static_assert(kStep * kPieces == kThreads && kDepth % kStep == 0);
    static_assert(!Operand::kByMatrix || kStep % 8 == 0);
    const int pixel = block.thread() / kPieces, at = block.thread() % kPieces * kVector;
    const int to_channel = Operand::kByMatrix ? swizzled_channel(pixel, at) : at;
    const bool inside = at < channels;
    CONVGRAD_UNROLL
    for (int i = 0; i < kDepth; i += kStep) {
      // The address is a multiple of 16 also where there is nothing.
      const std::int64_t entry = table[pixel + i], offset = entry & (PixelTable::kNothing - 1);
      const auto* const from =
          static_cast<const unsigned char*>(data) + at * kElementBytes + offset;
      block.copy_async(&to[pixel + i][to_channel], from, entry < PixelTable::kNothing && inside);
    }
  }

  // Begins to load the next slab into a stage, if there is one. Where there is none, an empty group
  // is committed: wait_copies() counts groups. A barrier must be between loads of two chunks.
  template <class Block>
  CONVGRAD_HD static void issue(Block& block, const Params& p, SlabsToLoad& load, int stage) {
    Shared& s = block.shared;
    if (load.chunks > 0) {
      if (load.slab == 0) {
        load.slabs = ceil_div(s.task.box.pixels(), kDepth);
        s.table.template fill<kThreads, kDepth, kElementBytes>(p, s.task, block.thread());
        block.sync();
        if (block.thread() == 0) {
          s.task.chunk += p.work.interleave;
          s.task.box = p.work.chunks.box(s.task.chunk);
        }
      }
      const int first = load.slab * kDepth;
      issue_rows<kRows>(block, s.x[stage], p.work.x.data, s.table.x + first,
                        static_cast<int>(p.work.x.group_stride) - s.task.tile.row);
      issue_rows<kColumns>(block, s.dy[stage], p.work.dy.data, s.table.dy + first,
                           static_cast<int>(p.work.dy.group_stride) - s.task.tile.column);
      const bool ends = ++load.slab == load.slabs;
      if (block.thread() == 0) s.ends_chunk[stage] = ends;
      if (ends) {
        load.slab = 0;
        --load.chunks;
      }
    }
    block.commit_copies();
  }

  // Loads Op::kK pixels of a stage, from `first`, to fragments. Shared memory is [pixel][channel]
  // and fragments are [channel][pixel], with two 16-bit pixels a register: ldmatrix transposes them
  // on the way (PTX ISA, "ldmatrix", .trans). Its four matrices are the four registers of one A, in
  // the manual's order, or those of two neighbouring B. `first` is a multiple of 8. A lane's other
  // rows are 16 channels apart, by exclusive or in swizzled rows, since the first ones are
  // multiples of kM and kN: all follow from one number.
  template <class Block>
  CONVGRAD_HD static void load_by_matrix(Block& block, int stage, int first, Regs& r) {
    static_assert(!Operand::kByMatrix || (Op::kM == 16 && Op::kN == 8 && kM % 32 == 0 && kN == 32));
    const Element* const x = block.shared.x[stage][first];
    const Element* const dy = block.shared.dy[stage][first];
    const int lane = block.thread() % kWarp;
    CONVGRAD_UNROLL
    for (int j = 0; j < kTilesN; j += 2) {
      std::uint32_t words[4];
      const int pixel = lane / 8 % 2 * 8 + lane % 8;
      const int channel = swizzled_channel(pixel, column_of(block.thread()) + lane / 16 * 8);
      block.load_transposed(words, dy + ((pixel * kColumns + channel) ^ j * 8));
      CONVGRAD_UNROLL
      for (int i = 0; i < 4; ++i) r.b[j + i / 2].word[i % 2] = words[i];
    }
    CONVGRAD_UNROLL
    for (int i = 0; i < kTilesM; ++i) {
      const int pixel = lane / 16 * 8 + lane % 8;
      const int channel = swizzled_channel(pixel, row_of(block.thread()) + lane / 8 % 2 * 8);
      block.load_transposed(r.a[i].word, x + ((pixel * kRows + channel) ^ i * 16));
    }
  }

  template <class Block>
  CONVGRAD_HD static void load_by_element(Block& block, int stage, int first, Regs& r) {
    const Shared& s = block.shared;
    const int lane = block.thread() % kWarp, row = row_of(block.thread()),
              column = column_of(block.thread());
    int k, at;
    CONVGRAD_UNROLL
    for (int j = 0; j < kTilesN; ++j) {
      CONVGRAD_UNROLL
      for (int e = 0; e < Op::kElementsB; ++e) {
        Op::b_place(lane, e, k, at);
        Operand::set(r.b[j], e, s.dy[stage][first + k][column + j * Op::kN + at]);
      }
    }
    CONVGRAD_UNROLL
    for (int i = 0; i < kTilesM; ++i) {
      CONVGRAD_UNROLL
      for (int e = 0; e < Op::kElementsA; ++e) {
        Op::a_place(lane, e, at, k);
        Operand::set(r.a[i], e, s.x[stage][first + k][row + i * Op::kM + at]);
      }
    }
  }

  template <class Block>
  CONVGRAD_HD static void compute(Block& block, int stage) {
    Regs& r = block.regs;
    CONVGRAD_UNROLL
    for (int first = 0; first < kDepth; first += Op::kK) {
      if constexpr (Operand::kByMatrix) {
        load_by_matrix(block, stage, first, r);
      } else {
        load_by_element(block, stage, first, r);
      }
      block.template multiply<Op>(r.sums.chunk, r.a, r.b);
    }
  }

  // Returns where a thread's sums are in a slice's partial gradient, for TileSums::load() and
  // store(); nullptr outside of dw. They are counted from the thread's first one by what fragment
  // and element add: numbers that are constants but for the length of a row.
  CONVGRAD_HD static auto address_of(const BlockParams& work, const GemmTask& task, int thread) {
    const Shape& shape = work.shape;
    const int own = opaque(thread);
    int row, column;
    Op::c_place(own % kWarp, 0, row, column);
    const int c = task.tile.row + row + row_of(own);
    const int k = task.tile.column + column + column_of(own);
    Sum<Acc>* const first = opaque(work.template sum_at<Acc>(
        task.slice, static_cast<std::int64_t>(task.tile.tap) * shape.group_c + c,
        static_cast<std::int64_t>(task.tile.group) * shape.group_k + k));
    return [=, rows = shape.group_c - c, columns = shape.group_k - k, K = shape.K](int sum) {
      const int i = sum / Op::kElementsC;
      int down, right;
      Op::c_place(0, sum % Op::kElementsC, down, right);
      down += i / kTilesN * Op::kM;
      right += i % kTilesN * Op::kN;
      Sum<Acc>* const at = first + down * K + right;
#if defined(__CUDACC__)
      __builtin_assume(at != nullptr && __isGlobal(at));
#endif
      return down < rows && right < columns ? at : nullptr;
    };
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    if constexpr (!kRuns) return block.refuse();
    const ChunkWalker chunks(p.work, task);
    if (chunks.done()) return;
    Shared& s = block.shared;
    Regs& r = block.regs;
    if (block.thread() == 0) {
      const GemmTile tile = gemm_tile(p, kRows, kColumns, task);
      s.task = {tile,        TapStart(p.work.shape, tile.tap), 0, chunks.slice, chunks.chunk,
                chunks.box()};
    }
    block.sync();
    SlabsToLoad load{chunks.left};
    r.sums.load(p.work.begins(s.task.slice), address_of(p.work, s.task, block.thread()));
    r.sums.clear();
    for (int stage = 0; stage < kStages - 1; ++stage) {
      issue(block, p, load, stage);
      block.sync();  // before the next table
    }
    int stage = 0;
    for (int left = chunks.left; left > 0;) {
      block.template wait_copies<kStages - 2>();
      // All have left the free stage behind at this barrier: one barrier a stage suffices.
      block.sync();
      issue(block, p, load, (stage + kStages - 1) % kStages);
      compute(block, stage);
      if (s.ends_chunk[stage]) {
        r.sums.end_chunk();
        --left;
      }
      stage = (stage + 1) % kStages;
    }
    r.sums.store(address_of(p.work, s.task, block.thread()));
  }
};

// Wide tiles read half as much for each product, narrow ones waste less where channels are few.
template <typename Scalar>
using Mma16Wide = Gemm<Mma16Operand<Scalar>, 2, 4, 4>;
template <typename Scalar>
using Mma16Narrow = Gemm<Mma16Operand<Scalar>, 1, 2, 4>;
// There are three stages, as a float64 takes as much memory as four 16-bit elements.
using MmaF64Gemm = Gemm<MmaF64Operand, 2, 2, 3>;
// 64 x 64 sums, and 32 x 32.
template <typename Scalar>
using SimtWide =
    Gemm<FmaOperand<Scalar, sizeof(Scalar) == 8 ? 32 : 64>, sizeof(Scalar) == 8 ? 2 : 1, 4, 3>;
template <typename Scalar>
using SimtNarrow = Gemm<FmaOperand<Scalar, 32>, 1, 2, 3>;

}  // namespace convgrad::cuda
