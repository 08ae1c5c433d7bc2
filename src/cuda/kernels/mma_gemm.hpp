// mma_gemm.hpp - implicit GEMM on tensor cores.
//
// A tile of dw belongs to one tap: kRows input channels by kColumns output channels of a group. x
// at the pixels that the tap sees, and dy, go to shared memory as [pixel][channel], kDepth pixels a
// stage, several stages ahead; pixels that the tap sees outside x are zeros in both, so that
// nothing comes of them whatever dy is. Channels are contiguous and start at multiples of 16 bytes
// (pack.hpp sees to it). Each warp has 32 x 32 sums. After a chunk they are added to Sum<> pairs.
#pragma once

#include "cuda/kernels/gemm_tile.hpp"
#include "cuda/kernels/mma.hpp"

namespace convgrad::cuda {

inline constexpr int kMmaChunkPixels = 512;  // kMaxChunkPixels
inline constexpr int kWarpTile = 32;         // rows and columns of a warp

// How elements in shared memory become fragments. kTerms of them stand for one element.
template <typename Scalar>
struct Mma16Operand {  // float16 and bfloat16 by ldmatrix, 16-byte pieces swizzled
  using Element = Scalar;
  using Op = Mma16<Scalar>;
  using Acc = float;
  static constexpr int kDepth = 32, kTerms = 1, kPad = 0;
  static constexpr bool kByMatrix = true, kSplit = false;
};
struct MmaF64Operand {
  using Element = double;
  using Op = MmaF64;
  using Acc = double;
  static constexpr int kDepth = 16, kTerms = 1, kPad = 4;  // pads spread lanes over the banks
  static constexpr bool kByMatrix = false, kSplit = false;
  CONVGRAD_HD static void put(MmaF64::A (&fragment)[1], int, double value) {
    fragment[0].value[0] = value;
  }
};
struct MmaTf32Operand {
  using Element = float;
  using Op = MmaTf32;
  using Acc = float;
  static constexpr int kDepth = 16, kTerms = 1, kPad = 8;
  static constexpr bool kByMatrix = false, kSplit = false;
  template <class Fragment>
  CONVGRAD_HD static void put(Fragment (&fragment)[1], int e, float value) {
    fragment[0].word[e] = tf32_nearest(value);
  }
};
// float32 as three bfloat16 terms. Of the nine products of two values the six largest are added;
// what is left out is at most 2^-24 of the product. Tensor cores cut sums where additions round
// them, a little with every instruction: so six of them begin at zero, and are added to the sums
// by float32 additions.
struct MmaSplitOperand {
  using Element = float;
  using Op = Mma16<BFloat16>;
  using Acc = float;
  static constexpr int kDepth = 16, kTerms = 3, kPad = 4;
  static constexpr bool kByMatrix = false, kSplit = true;
  template <class Fragment>
  CONVGRAD_HD static void put(Fragment (&fragment)[3], int e, float value) {
    std::uint16_t terms[3];
    split_bf16(value, terms);
    CONVGRAD_UNROLL
    for (int t = 0; t < 3; ++t) {
      const std::uint32_t word = terms[t];
      std::uint32_t& to = fragment[t].word[e / 2];
      to = e % 2 == 0 ? word : to | word << 16;
    }
  }
};

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
  static constexpr int kPitchX = kRows + Operand::kPad, kPitchDy = kColumns + Operand::kPad;

  using Params = GemmParams;
  struct Regs {
    typename Op::A a[kTilesM][kTerms];
    typename Op::B b[kTilesN][kTerms];
    typename Op::C sum[kTilesM][kTilesN];
    typename Op::C slab[kTilesM][kTilesN];  // kSplit: the products of kK pixels
    Sum<Acc> total[kTilesM][kTilesN][Op::kElementsC];
    // Bits of the smallest nonzero and of the largest values that were split, as range() reads
    // them.
    std::uint32_t least_x, least_dy, most;
  };
  struct Shared {
    alignas(128) Element x[kStages][kDepth][kPitchX];
    alignas(128) Element dy[kStages][kDepth][kPitchDy];
    std::int64_t x_offset[kMmaChunkPixels], dy_offset[kMmaChunkPixels];  // -1: sees nothing
    std::uint32_t least_x, least_dy, rest;                               // of all threads
  };
  // The chunk and slab that is loaded, or used, next.
  struct Cursor {
    std::int64_t chunk;
    int slab, slabs;
  };

  CONVGRAD_HD static void fill_table(const Params& p, const GemmTile& tile, const Cursor& load,
                                     int thread, Shared& s) {
    const Box box = p.work.chunks.box(load.chunk);
    const int pixels = box.pixels();
    for (int i = thread; i < load.slabs * kDepth; i += kThreads) {
      std::int64_t x = 0, dy = 0;
      const bool there = i < pixels && locate(p, tile, box, i, x, dy);
      s.x_offset[i] = there ? x : -1;
      s.dy_offset[i] = there ? dy : -1;
    }
  }

  // Where channel `at` of a row of shared memory lies: pieces of 8 are swizzled for ldmatrix.
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

  // The next slab on its way into a stage, if there is one.
  template <class Block>
  CONVGRAD_HD static void issue(Block& block, const Params& p, const GemmTile& tile, Cursor& load,
                                std::int64_t end, int stage) {
    Shared& s = block.shared;
    if (load.chunk >= end) {
      block.each_alone([&](int thread, Regs&) { block.commit_copies(thread); });
      return;
    }
    if (load.slab == 0) {
      block.each([&](int thread, Regs&) { fill_table(p, tile, load, thread, s); });
    }
    block.each_alone([&](int thread, Regs&) {
      const int first = load.slab * kDepth;
      issue_rows<kRows>(block, thread, s.x[stage], p.work.x.data, s.x_offset + first,
                        p.x_pitch - tile.row);
      issue_rows<kColumns>(block, thread, s.dy[stage], p.work.dy.data, s.dy_offset + first,
                           p.dy_pitch - tile.column);
      block.commit_copies(thread);
    });
    next(p, load);
  }

  CONVGRAD_HD static void next(const Params& p, Cursor& cursor) {
    if (++cursor.slab < cursor.slabs) return;
    cursor = start(p, cursor.chunk + p.work.interleave);
  }
  CONVGRAD_HD static Cursor start(const Params& p, std::int64_t chunk) {
    const bool there = chunk < p.work.chunk_end;
    return {chunk, 0, there ? ceil_div(p.work.chunks.box(chunk).pixels(), kDepth) : 0};
  }

  // kDepth pixels of one stage from shared memory to fragments, Op::kK of them from `first`.
  template <class Block>
  CONVGRAD_HD static void load_fragments(Block& block, int thread, int stage, int first, Regs& r) {
    const Shared& s = block.shared;
    const int lane = thread % kWarp, warp = thread / kWarp;
    const int row = warp % kWarpRows * kWarpTile, column = warp / kWarpRows * kWarpTile;
    if constexpr (Operand::kByMatrix) {
      CONVGRAD_UNROLL
      for (int i = 0; i < kTilesM; ++i) {
        block.load_transposed(lane, r.a[i][0].word, [&](int giver) {
          const int pixel = first + giver / 16 * 8 + giver % 8;
          return &s.x[stage][pixel][place(pixel, row + i * 16 + giver / 8 % 2 * 8)];
        });
      }
      CONVGRAD_UNROLL
      for (int j = 0; j < kTilesN; j += 2) {
        std::uint32_t words[4];
        block.load_transposed(lane, words, [&](int giver) {
          const int pixel = first + giver / 8 % 2 * 8 + giver % 8;
          return &s.dy[stage][pixel][place(pixel, column + j * 8 + giver / 16 * 8)];
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
          Operand::put(r.a[i], e, value);
          if constexpr (Operand::kSplit) note(value, r.least_x, r.most);
        }
      }
      CONVGRAD_UNROLL
      for (int j = 0; j < kTilesN; ++j) {
        CONVGRAD_UNROLL
        for (int e = 0; e < Op::kElementsB; ++e) {
          int k, n;
          Op::b_place(lane, e, k, n);
          const Element value = s.dy[stage][first + k][column + j * Op::kN + n];
          Operand::put(r.b[j], e, value);
          if constexpr (Operand::kSplit) note(value, r.least_dy, r.most);
        }
      }
    }
  }

  // Zero becomes the largest number: it has no exponent to lose.
  CONVGRAD_HD static void note(float value, std::uint32_t& lowest, std::uint32_t& most) {
    const std::uint32_t bits = float_bits(value) & 0x7fffffffu;
    lowest = least(lowest, bits - 1);
    most = bits > most ? bits : most;
  }

  // Whether three terms might not be exact: 24 bits below the smallest values, and below their
  // products, must not underflow, and the largest must not overflow when it is rounded.
  CONVGRAD_HD static bool out_of_range(std::uint32_t least_x, std::uint32_t least_dy,
                                       std::uint32_t rest) {
    constexpr std::uint32_t kLowest = 127 - 102;
    const std::uint32_t x = least_x >> 23, dy = least_dy >> 23;  // biased exponents
    return rest <= 0xffffffffu - 0x7f000000u || x < kLowest || dy < kLowest ||
           x + dy < kLowest + 127;
  }

  // All goes on in registers: nothing else reads r.a, r.b, r.sum or r.slab.
  template <int kTermA, int kTermB, class Block>
  CONVGRAD_HD static void multiply_terms(Block& block) {
    block.template multiply<Op, kTilesM, kTilesN>(
        [](Regs& r, int i) -> const typename Op::A& { return r.a[i][kTermA]; },
        [](Regs& r, int j) -> const typename Op::B& { return r.b[j][kTermB]; },
        [](Regs& r, int i, int j) ->
        typename Op::C& { return Operand::kSplit ? r.slab[i][j] : r.sum[i][j]; });
  }

  template <class Block>
  CONVGRAD_HD static void compute(Block& block, int stage) {
    CONVGRAD_UNROLL
    for (int first = 0; first < kDepth; first += Op::kK) {
      block.each_alone(
          [&](int thread, Regs& r) { load_fragments(block, thread, stage, first, r); });
      if constexpr (Operand::kSplit) {  // small ones first
        block.each_alone([](int, Regs& r) {
          each_sum([&](int i, int j, int e) { r.slab[i][j].value[e] = 0; });
        });
        multiply_terms<1, 1>(block);
        multiply_terms<0, 2>(block);
        multiply_terms<2, 0>(block);
        multiply_terms<0, 1>(block);
        multiply_terms<1, 0>(block);
      }
      multiply_terms<0, 0>(block);
      if constexpr (Operand::kSplit) {
        block.each_alone([](int, Regs& r) {
          each_sum([&](int i, int j, int e) { r.sum[i][j].value[e] += r.slab[i][j].value[e]; });
        });
      }
    }
  }

  // f(i, j, e) for every element of a thread's fragments of sums.
  template <class F>
  CONVGRAD_HD static void each_sum(F&& f) {
    CONVGRAD_UNROLL
    for (int i = 0; i < kTilesM; ++i) {
      CONVGRAD_UNROLL
      for (int j = 0; j < kTilesN; ++j) {
        CONVGRAD_UNROLL
        for (int e = 0; e < Op::kElementsC; ++e) f(i, j, e);
      }
    }
  }

  CONVGRAD_HD static void clear(Regs& r) {
    each_sum([&](int i, int j, int e) { r.sum[i][j].value[e] = 0; });
    r.least_x = r.least_dy = 0xffffffffu;
    r.most = 0;
  }

  // Row and column, within the tile, of element e of a thread's fragment (i, j) of sums.
  CONVGRAD_HD static void sum_place(int thread, int i, int j, int e, int& row, int& column) {
    const int warp = thread / kWarp;
    Op::c_place(thread % kWarp, e, row, column);
    row += warp % kWarpRows * kWarpTile + i * Op::kM;
    column += warp / kWarpRows * kWarpTile + j * Op::kN;
  }

  // A chunk's sums once more, by float32 products, where three terms do not hold the values.
  CONVGRAD_HD static void add_plainly(const Params& p, const GemmTile& tile, std::int64_t chunk,
                                      int thread, Regs& r) {
    const Box box = p.work.chunks.box(chunk);
    const auto* x = static_cast<const Element*>(p.work.x.data);
    const auto* dy = static_cast<const Element*>(p.work.dy.data);
    clear(r);
    for (int pixel = 0; pixel < box.pixels(); ++pixel) {
      std::int64_t x_at, dy_at;
      if (!locate(p, tile, box, pixel, x_at, dy_at)) continue;
      each_sum([&](int i, int j, int e) {
        int row, column;
        sum_place(thread, i, j, e, row, column);
        if (tile.row + row >= p.x_pitch || tile.column + column >= p.dy_pitch) return;
        r.sum[i][j].value[e] += x[x_at + row] * dy[dy_at + column];
      });
    }
  }

  template <class Block>
  CONVGRAD_HD static void end_chunk(Block& block, const Params& p, const GemmTile& tile,
                                    std::int64_t chunk) {
    if constexpr (Operand::kSplit) {
      Shared& s = block.shared;
      block.each([&](int thread, Regs&) {
        if (thread == 0) s.least_x = s.least_dy = s.rest = 0xffffffffu;
      });
      block.each([&](int, Regs& r) {
        block.least_of(&s.least_x, r.least_x);
        block.least_of(&s.least_dy, r.least_dy);
        block.least_of(&s.rest, 0xffffffffu - r.most);
      });
      const bool careful = out_of_range(s.least_x, s.least_dy, s.rest);
      if (careful) {
        block.each_alone([&](int thread, Regs& r) { add_plainly(p, tile, chunk, thread, r); });
      }
    }
    block.each_alone([&](int, Regs& r) {
      each_sum([&](int i, int j, int e) { r.total[i][j][e].add(r.sum[i][j].value[e]); });
      clear(r);
    });
  }

  template <bool kStore>
  CONVGRAD_HD static void exchange(const Params& p, const GemmTile& tile, std::int64_t slice,
                                   int thread, Regs& r) {
    each_sum([&](int i, int j, int e) {
      int row, column;
      sum_place(thread, i, j, e, row, column);
      exchange_sum<kStore>(p.work, tile, slice, row, column, r.total[i][j][e]);
    });
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const std::int64_t slice = p.work.slice_of(task);
    std::int64_t begin, end;
    p.work.chunks_of(slice, begin, end);
    if (begin >= end) return;
    const GemmTile tile = gemm_tile(p, kRows, kColumns, task);
    block.each_alone([&](int thread, Regs& r) {
      exchange<false>(p, tile, slice, thread, r);
      clear(r);
    });
    Cursor load = start(p, begin), use = load;
    for (int stage = 0; stage < kStages - 1; ++stage) {
      issue(block, p, tile, load, end, stage);
      block.each([](int, Regs&) {});  // before the next table
    }
    for (int stage = 0; use.chunk < end; stage = (stage + 1) % kStages) {
      block.each([&](int thread, Regs&) { block.template wait_copies<kStages - 2>(thread); });
      // Into the stage that all have left behind at this barrier.
      issue(block, p, tile, load, end, (stage + kStages - 1) % kStages);
      compute(block, stage);
      const std::int64_t chunk = use.chunk;
      next(p, use);
      if (use.chunk != chunk) end_chunk(block, p, tile, chunk);
    }
    block.each_alone([&](int thread, Regs& r) { exchange<true>(p, tile, slice, thread, r); });
  }
};

template <typename Scalar>
using Mma16Wide = MmaGemm<Mma16Operand<Scalar>, 4, 4, 4>;
template <typename Scalar>
using Mma16Narrow = MmaGemm<Mma16Operand<Scalar>, 2, 2, 4>;
using MmaSplitGemm = MmaGemm<MmaSplitOperand, 2, 2, 4>;
using MmaTf32Gemm = MmaGemm<MmaTf32Operand, 2, 2, 4>;
using MmaF64Gemm = MmaGemm<MmaF64Operand, 2, 2, 3>;

}  // namespace convgrad::cuda
