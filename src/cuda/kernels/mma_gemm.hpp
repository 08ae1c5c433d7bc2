// mma_gemm.hpp - implicit GEMM on tensor cores.
//
// A tile of dw belongs to one tap: kRows input channels by kColumns output channels of a group. x
// at the pixels that the tap sees, and dy, go to shared memory as [pixel][channel], kDepth pixels a
// stage, several stages ahead; pixels that the tap sees outside x are zeros in both, so that
// nothing comes of them whatever dy is. Channels are contiguous and start at multiples of 16 bytes
// (pack.hpp sees to it). Each warp has 32 x 32 sums. After a chunk they are added to Sum<> pairs.
//
// Registers limit a warp's tile: 32 x 32 sums are 32 registers a lane for the chunk and 64 for the
// slice's pairs, 96 of the 128 that a block of 512 threads leaves each (a multiprocessor has 65536;
// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"). Shared memory
// limits stages: the wide tile's four are 64 KiB, and its tables 8 KiB, of the 99 that devices of
// compute capability 8.6 give a block.
#pragma once

#include "cuda/kernels/gemm_tile.hpp"
#include "cuda/kernels/mma_operand.hpp"

namespace convgrad::cuda {

inline constexpr int kWarpTile = 32;  // rows and columns of a warp

template <class Operand, int kWarpRows, int kWarpColumns, int kStages>
struct MmaGemm {
  using Element = typename Operand::Element;
  using Op = typename Operand::Op;
  using Acc = typename Operand::Acc;
  static constexpr int kRows = kWarpRows * kWarpTile, kColumns = kWarpColumns * kWarpTile;
  static constexpr int kThreads = kWarpRows * kWarpColumns * kWarp;
  static constexpr int kDepth = Operand::kDepth, kTerms = Operand::kTerms;
  static constexpr int kVector = 16 / static_cast<int>(sizeof(Element));
  static constexpr int kTilesM = kWarpTile / Op::kM, kTilesN = kWarpTile / Op::kN;
  using Sums = TileSums<Acc, kTilesM * kTilesN, Op::kElementsC>;
  static constexpr int kPitchX = kRows + Operand::kPad, kPitchDy = kColumns + Operand::kPad;

  using Params = GemmParams;
  struct Regs {
    typename Op::A a[kTilesM][kTerms];
    typename Op::B b[kTilesN][kTerms];
    Sums sums;
    typename Op::C slab[kTilesM * kTilesN];  // kSplit: the products of kK pixels
    SplitRange range;                        // kSplit
  };
  // Rows of 16-bit elements are swizzled (place()), others padded (Operand::kPad). The tables have
  // a whole chunk's offsets, which all channels of a pixel share: to locate a pixel takes a dozen
  // divisions.
  struct Shared {
    alignas(128) Element x[kStages][kDepth][kPitchX];
    alignas(128) Element dy[kStages][kDepth][kPitchDy];
    std::int64_t x_offset[kChunkPixels], dy_offset[kChunkPixels];  // -1: sees nothing
    std::uint32_t least_x, least_dy, rest;  // of all threads' ranges; rest: 2^32 - 1 less `most`
  };
  static_assert(kChunkPixels % kDepth == 0);  // tables have whole slabs

  using Walker = SlabWalker<MmaGemm>;
  CONVGRAD_HD static int slab_count(const Params&, const Box& box) {
    return ceil_div(box.pixels(), kDepth);
  }

  CONVGRAD_HD static void fill_table(const Params& p, const GemmTile& tile, const Walker& load,
                                     int thread, Shared& s) {
    const Box& box = load.box;
    const int pixels = box.pixels();
    for (int i = thread; i < load.slabs * kDepth; i += kThreads) {
      std::int64_t x = 0, dy = 0;
      const bool there = i < pixels && locate(p, tile, box, i, x, dy);
      s.x_offset[i] = there ? x : -1;
      s.dy_offset[i] = there ? dy : -1;
    }
  }

  // Where channel `at` is in a row of shared memory. ldmatrix reads 16 bytes of each of eight rows
  // at a time; rows are multiples of 128 bytes, so without a swizzle all eight would be in the same
  // four banks. A pad would do as well, but take up to 1/8 more memory for each stage.
  CONVGRAD_HD static int place(int pixel, int at) {
    return Operand::kByMatrix ? ((at / 8) ^ (pixel % 8)) * 8 + at % 8 : at;
  }

  template <int kWidth, int kPitch, class Block>
  CONVGRAD_HD static void issue_rows(Block& block, int thread, Element (&to)[kDepth][kPitch],
                                     const void* data, const std::int64_t* offsets, int channels) {
    constexpr int kPieces = kWidth / kVector, kLoads = kPieces * kDepth / kThreads;
    static_assert(kLoads * kThreads == kPieces * kDepth);
    const auto* from = static_cast<const Element*>(data);
    CONVGRAD_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const int e = i * kThreads + thread, pixel = e / kPieces, at = e % kPieces * kVector;
      const std::int64_t offset = offsets[pixel];
      const bool there = offset >= 0 && at < channels;
      block.copy_async(thread, &to[pixel][place(pixel, at)], there ? from + offset + at : from,
                       there);
    }
  }

  // Begins to load the next slab into a stage, if there is one. Where there is none, an empty group
  // is committed: wait_copies() counts groups.
  template <class Block>
  CONVGRAD_HD static void issue(Block& block, const Params& p, const GemmTile& tile, Walker& load,
                                int stage) {
    Shared& s = block.shared;
    if (load.done()) {
      block.each_unsynced([&](int thread, Regs&) { block.commit_copies(thread); });
      return;
    }
    if (load.slab == 0) {
      block.each([&](int thread, Regs&) { fill_table(p, tile, load, thread, s); });
    }
    block.each_unsynced([&](int thread, Regs&) {
      const int first = load.slab * kDepth;
      issue_rows<kRows>(block, thread, s.x[stage], p.work.x.data, s.x_offset + first,
                        p.x_pitch - tile.row);
      issue_rows<kColumns>(block, thread, s.dy[stage], p.work.dy.data, s.dy_offset + first,
                           p.dy_pitch - tile.column);
      block.commit_copies(thread);
    });
    load.next();
  }

  // Op::kK pixels of a stage, from `first`, to fragments. Shared memory is [pixel][channel] and
  // fragments are [channel][pixel], with two pixels a register for 16-bit elements: ldmatrix
  // transposes these on the way (PTX ISA, "ldmatrix", .trans). Its four matrices are the four
  // registers of one A, in the manual's order, or those of two neighbouring B.
  template <class Block>
  CONVGRAD_HD static void load_fragments(Block& block, int thread, int stage, int first, Regs& r) {
    const Shared& s = block.shared;
    const int lane = thread % kWarp, warp = thread / kWarp;
    const int row = warp % kWarpRows * kWarpTile, column = warp / kWarpRows * kWarpTile;
    if constexpr (Operand::kByMatrix) {
      CONVGRAD_UNROLL
      for (int i = 0; i < kTilesM; ++i) {
        block.load_transposed(lane, r.a[i][0].word, [&](int from) {
          const int pixel = first + from / 16 * 8 + from % 8;
          return &s.x[stage][pixel][place(pixel, row + i * 16 + from / 8 % 2 * 8)];
        });
      }
      CONVGRAD_UNROLL
      for (int j = 0; j < kTilesN; j += 2) {
        std::uint32_t words[4];
        block.load_transposed(lane, words, [&](int from) {
          const int pixel = first + from / 8 % 2 * 8 + from % 8;
          return &s.dy[stage][pixel][place(pixel, column + j * 8 + from / 16 * 8)];
        });
        CONVGRAD_UNROLL
        for (int i = 0; i < 4; ++i) r.b[j + i / 2][0].word[i % 2] = words[i];
      }
    } else {
      CONVGRAD_UNROLL
      for (int i = 0; i < kTilesM; ++i) {
        CONVGRAD_UNROLL
        for (int e = 0; e < Op::kElementsA; ++e) {
          int m, k;
          Op::a_place(lane, e, m, k);
          const Element value = s.x[stage][first + k][row + i * Op::kM + m];
          Operand::set(r.a[i], e, value);
          if constexpr (Operand::kSplit) r.range.note(value, r.range.least_x);
        }
      }
      CONVGRAD_UNROLL
      for (int j = 0; j < kTilesN; ++j) {
        CONVGRAD_UNROLL
        for (int e = 0; e < Op::kElementsB; ++e) {
          int k, n;
          Op::b_place(lane, e, k, n);
          const Element value = s.dy[stage][first + k][column + j * Op::kN + n];
          Operand::set(r.b[j], e, value);
          if constexpr (Operand::kSplit) r.range.note(value, r.range.least_dy);
        }
      }
    }
  }

  // The products of one term of x with one of dy, for all 32 x 32 sums of each warp. Only registers
  // are read and written, so no barrier is needed.
  template <int kTermA, int kTermB, class Block>
  CONVGRAD_HD static void multiply_terms(Block& block) {
    block.template multiply<Op, kTilesM, kTilesN>(
        [](Regs& r, int i) -> const typename Op::A& { return r.a[i][kTermA]; },
        [](Regs& r, int j) -> const typename Op::B& { return r.b[j][kTermB]; },
        [](Regs& r, int i, int j) -> typename Op::C& {
          return Operand::kSplit ? r.slab[i * kTilesN + j] : r.sums.chunk[i * kTilesN + j];
        });
  }

  template <class Block>
  CONVGRAD_HD static void compute(Block& block, int stage) {
    CONVGRAD_UNROLL
    for (int first = 0; first < kDepth; first += Op::kK) {
      block.each_unsynced(
          [&](int thread, Regs& r) { load_fragments(block, thread, stage, first, r); });
      if constexpr (Operand::kSplit) {  // small ones first, while no large sum cuts their bits
        block.each_unsynced(
            [](int, Regs& r) { Sums::each([&](int i, int e) { r.slab[i][e] = 0; }); });
        multiply_terms<1, 1>(block);
        multiply_terms<0, 2>(block);
        multiply_terms<2, 0>(block);
        multiply_terms<0, 1>(block);
        multiply_terms<1, 0>(block);
      }
      multiply_terms<0, 0>(block);
      if constexpr (Operand::kSplit) {
        block.each_unsynced([](int, Regs& r) {
          Sums::each([&](int i, int e) { r.sums.chunk[i][e] += r.slab[i][e]; });
        });
      }
    }
  }

  // Row and column, within the tile, of element e of fragment i of a thread's sums.
  CONVGRAD_HD static void sum_place(int thread, int i, int e, int& row, int& column) {
    const int warp = thread / kWarp;
    Op::c_place(thread % kWarp, e, row, column);
    row += warp % kWarpRows * kWarpTile + i / kTilesN * Op::kM;
    column += warp / kWarpRows * kWarpTile + i % kTilesN * Op::kN;
  }

  CONVGRAD_HD static auto address_of(const Params& p, const GemmTile& tile, std::int64_t slice,
                                     int thread) {
    return [&p, tile, slice, thread = opaque(thread)](int sum) {
      int row, column;
      sum_place(thread, sum / Op::kElementsC, sum % Op::kElementsC, row, column);
      return sum_at<Acc>(p.work, tile, slice, row, column);
    };
  }

  // Where the chunk's values exceed what three terms hold, by all threads' ranges, its sums are
  // replaced by sums of float32 products. All threads take the same branch.
  template <class Block>
  CONVGRAD_HD static void replace_inexact(Block& block, const Params& p, const GemmTile& tile,
                                          const Box& box) {
    Shared& s = block.shared;
    block.each([&](int thread, Regs&) {
      if (thread == 0) s.least_x = s.least_dy = s.rest = 0xffffffffu;
    });
    block.each([&](int, Regs& r) {
      block.atomic_min(&s.least_x, r.range.least_x);
      block.atomic_min(&s.least_dy, r.range.least_dy);
      block.atomic_min(&s.rest, 0xffffffffu - r.range.most);
    });
    if (!SplitRange{s.least_x, s.least_dy, 0xffffffffu - s.rest}.exceeded()) return;
    block.each_unsynced([&](int thread, Regs& r) {
      const int own = opaque(thread);
      sum_by_pixels<Element>(p, tile, box, r.sums, [&](int i, int e, int& row, int& column) {
        sum_place(own, i, e, row, column);
      });
    });
  }

  template <class Block>
  CONVGRAD_HD static void end_chunk(Block& block, const Params& p, const GemmTile& tile,
                                    const Box& box) {
    if constexpr (Operand::kSplit) replace_inexact(block, p, tile, box);
    block.each_unsynced([](int, Regs& r) {
      r.sums.end_chunk();
      r.range.clear();
    });
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const ChunkWalker first(p.work, task);
    if (first.done()) return;
    const GemmTile tile = gemm_tile(p, kRows, kColumns, task);
    block.each_unsynced([&](int thread, Regs& r) {
      r.sums.load(p.work.begins(first.slice), address_of(p, tile, first.slice, thread));
      r.sums.clear();
      r.range.clear();
    });
    Walker load(p, first);
    for (int stage = 0; stage < kStages - 1; ++stage) {
      issue(block, p, tile, load, stage);
      block.each([](int, Regs&) {});  // before the next table
    }
    int stage = 0;
    for (ChunkWalker use = first; !use.done(); use.next()) {
      for (int slabs = slab_count(p, use.box); slabs > 0; --slabs) {
        block.each([&](int thread, Regs&) { block.template wait_copies<kStages - 2>(thread); });
        // Into the stage that all have left behind at this barrier: one barrier a stage suffices.
        issue(block, p, tile, load, (stage + kStages - 1) % kStages);
        compute(block, stage);
        stage = (stage + 1) % kStages;
      }
      end_chunk(block, p, tile, use.box);
    }
    block.each_unsynced(
        [&](int thread, Regs& r) { r.sums.store(address_of(p, tile, first.slice, thread)); });
  }
};

// Wide tiles read half as much of x and dy for each product, narrow ones waste less where channels
// are few.
template <typename Scalar>
using Mma16Wide = MmaGemm<Mma16Operand<Scalar>, 4, 4, 4>;
template <typename Scalar>
using Mma16Narrow = MmaGemm<Mma16Operand<Scalar>, 2, 2, 4>;
using MmaSplitGemm = MmaGemm<MmaSplitOperand, 2, 2, 4>;
using MmaTf32Gemm = MmaGemm<MmaTf32Operand, 2, 2, 4>;
// Three stages: a float64 takes as much memory as four 16-bit elements.
using MmaF64Gemm = MmaGemm<MmaF64Operand, 2, 2, 3>;

}  // namespace convgrad::cuda
