// mma_split_gemm.hpp - implicit GEMM on tensor cores for float32, each value as three bfloat16
// terms.
//
// Of the nine products of two values' terms the six largest are added; what is left out is at most
// 2^-24 of the product. Tensor cores cut sums where additions round them, a little with every
// instruction: so six of them begin at zero, the small ones first, and are added to the chunk's
// sums by float32 additions (docs/cuda.md, "Sums").
//
// The tile is that of mma_gemm.hpp. A slab of float32 is read to registers while the one before is
// multiplied, and split on the way to shared memory, once for all warps: three planes of bfloat16,
// in two buffers. So nothing is in shared memory twice, as it would be if cp.async left float32
// there.
//
// Registers limit the tile: 32 x 32 sums a warp take 32 for six products, 32 for the chunk and 64
// for the slice's pairs, fragments of all terms 48, and the slab on its way 24. Shared memory: the
// wide tile's planes are 72 KiB, and its table 8 KiB, of the 99 that devices of compute capability
// 8.6 give a block.
#pragma once

#include "cuda/kernels/mma_tile.hpp"

namespace convgrad::cuda {

// Holds the range of the values that have been split, as bits: smaller bits of float32 are smaller
// magnitudes. Every thread keeps that of the values it has split since the chunk began.
struct SplitRange {
  std::uint32_t least_x, least_dy;  // the smallest magnitudes but 0, less one; 2^32 - 1 if none
  std::uint32_t most;               // the largest magnitude of both

  CONVGRAD_HD void clear() {
    least_x = least_dy = 0xffffffffu;
    most = 0;
  }
  // Zero becomes the largest number: it has no exponent to lose.
  CONVGRAD_HD void note(float value, std::uint32_t& lowest) {
    const std::uint32_t bits = float_bits(value) & 0x7fffffffu;
    lowest = least(lowest, bits - 1);
    most = bits > most ? bits : most;
  }
  // Tells whether three terms might not be exact: 24 bits below the smallest values, and below
  // their products, must not underflow, and the largest must not overflow when it is rounded. The
  // third term's last bit is 2^-24 of the value: 2^-102 is the smallest whose 24 bits are normal
  // numbers (2^-126), and biased exponents have 127 added.
  CONVGRAD_HD bool exceeded() const {
    constexpr std::uint32_t kLowest = 127 - 102, kLargest = 0x7f000000u;
    const std::uint32_t x = least_x >> 23, dy = least_dy >> 23;
    return most >= kLargest || x < kLowest || dy < kLowest || x + dy < kLowest + 127;
  }
};

// kWarpRows x kWarpColumns warps of 32 x 32 sums each; slabs of kDepth pixels.
template <int kWarpRows, int kWarpColumns, int kDepth>
struct MmaSplitGemm {
  using Op = Mma16<BFloat16>;
  using Tile = MmaTile<Op, float, kWarpRows, kWarpColumns, 32, 32>;
  static constexpr int kRows = Tile::kRows, kColumns = Tile::kColumns, kThreads = Tile::kThreads;
  static constexpr int kTilesM = Tile::kTilesM, kTilesN = Tile::kTilesN;
  static constexpr int kTerms = 3;  // of a value
  static constexpr int kElementBytes = sizeof(float), kVector = 16 / kElementBytes;
  static constexpr int kLoadsX = kRows / kVector * kDepth / kThreads;
  static constexpr int kLoadsDy = kColumns / kVector * kDepth / kThreads;

  struct alignas(16) Vector {
    float value[kVector];
  };
  // Holds terms of four neighbouring channels, stored at once where there are 16-bit elements.
  struct [[gnu::may_alias]] alignas(8) Terms {
    std::uint32_t word[2];
  };
  using Params = GemmParams;
  struct Regs {
    typename Op::A a[kTilesM][kTerms];
    typename Op::B b[kTilesN][kTerms];
    typename Tile::Sums sums;
    typename Op::C slab[kTilesM * kTilesN];  // the products of kK pixels
    Vector x[kLoadsX], dy[kLoadsDy];         // the next slab, on its way
    SplitRange range;
  };
  struct Shared {
    alignas(128) std::uint16_t x[2][kTerms][kDepth][kRows];
    alignas(128) std::uint16_t dy[2][kTerms][kDepth][kColumns];
    PixelTable table;  // of the chunk that is being loaded
    GemmTask task;
    std::uint32_t least_x, least_dy, rest;  // of all threads' ranges; rest: 2^32 - 1 less `most`
  };

  // A thread's vectors of a slab are of the same channels, kStep pixels apart.
  template <int kWidth>
  struct Part {
    static constexpr int kPieces = kWidth / kVector, kStep = kThreads / kPieces;
    static_assert(kStep * kPieces == kThreads && kDepth % kStep == 0 && kStep % 8 == 0);
    int pixel, at;
    CONVGRAD_HD explicit Part(int thread)
        : pixel(thread / kPieces), at(thread % kPieces * kVector) {}
  };

  template <int kWidth, int kLoads>
  CONVGRAD_HD static void load_rows(int thread, const void* data, const std::int64_t* table,
                                    int channels, Vector (&to)[kLoads]) {
    const Part<kWidth> part(thread);
    const bool inside = part.at < channels;
    CONVGRAD_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const Piece piece(data, part.at * kElementBytes, table[part.pixel + i * part.kStep], inside);
      to[i] = piece.there ? *static_cast<const Vector*>(piece.from) : Vector{};
    }
  }

  template <int kWidth, int kLoads>
  CONVGRAD_HD static void store_rows(int thread, const Vector (&from)[kLoads],
                                     std::uint16_t (&to)[kTerms][kDepth][kWidth], SplitRange& range,
                                     std::uint32_t& lowest) {
    const Part<kWidth> part(thread);
    const int channel = swizzled_channel(part.pixel, part.at);
    CONVGRAD_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const float* value = from[i].value;
      std::uint32_t words[2][kTerms];
      CONVGRAD_UNROLL
      for (int h = 0; h < 2; ++h) split_bf16(value[2 * h], value[2 * h + 1], words[h]);
      CONVGRAD_UNROLL
      for (int v = 0; v < kVector; ++v) range.note(value[v], lowest);
      CONVGRAD_UNROLL
      for (int t = 0; t < kTerms; ++t) {
        *reinterpret_cast<Terms*>(&to[t][part.pixel + i * part.kStep][channel]) = {
            {words[0][t], words[1][t]}};
      }
    }
  }

  // Begins to load the next slab to registers, if there is one.
  template <class Block>
  CONVGRAD_HD static void load_slab(Block& block, const Params& p, SlabQueue& queue, int ahead) {
    if (queue.chunks == 0) return;
    if (queue.slab == 0) Tile::template begin_chunk<kDepth, kElementBytes>(block, p, queue);
    block.each_unsynced([&](int thread, Regs& r) {
      const Shared& s = block.shared;
      const int first = queue.slab * kDepth;
      load_rows<kRows>(thread, p.work.x.data, s.table.x + first, p.x_pitch - s.task.tile.row, r.x);
      load_rows<kColumns>(thread, p.work.dy.data, s.table.dy + first,
                          p.dy_pitch - s.task.tile.column, r.dy);
    });
    queue.push(ahead);
  }

  // Stores the loaded slab in shared memory.
  template <class Block>
  CONVGRAD_HD static void store_slab(Block& block, int buffer) {
    Shared& s = block.shared;
    block.each([&](int thread, Regs& r) {
      store_rows<kRows>(thread, r.x, s.x[buffer], r.range, r.range.least_x);
      store_rows<kColumns>(thread, r.dy, s.dy[buffer], r.range, r.range.least_dy);
    });
  }

  // Adds the products of one term of x with one of dy, for all sums of each warp. Only registers
  // are read and written, so no barrier is needed.
  template <int kTermA, int kTermB, class Block>
  CONVGRAD_HD static void multiply_terms(Block& block) {
    block.template multiply<Op, kTilesM, kTilesN>(
        [](Regs& r, int i) -> const typename Op::A& { return r.a[i][kTermA]; },
        [](Regs& r, int j) -> const typename Op::B& { return r.b[j][kTermB]; },
        [](Regs& r, int i, int j) -> typename Op::C& { return r.slab[i * kTilesN + j]; });
  }

  template <class Block>
  CONVGRAD_HD static void compute(Block& block, int buffer) {
    const Shared& s = block.shared;
    CONVGRAD_UNROLL
    for (int first = 0; first < kDepth; first += Op::kK) {
      block.each_unsynced([&](int thread, Regs& r) {
        CONVGRAD_UNROLL
        for (int t = 0; t < kTerms; ++t) {
          Tile::load_a(block, thread, s.x[buffer][t] + first, t, r.a);
          Tile::load_b(block, thread, s.dy[buffer][t] + first, t, r.b);
        }
        Tile::Sums::each([&](int i, int e) { r.slab[i][e] = 0; });
      });
      multiply_terms<1, 1>(block);  // small ones first, while no large sum cuts their bits
      multiply_terms<0, 2>(block);
      multiply_terms<2, 0>(block);
      multiply_terms<0, 1>(block);
      multiply_terms<1, 0>(block);
      multiply_terms<0, 0>(block);
      block.each_unsynced([](int, Regs& r) {
        Tile::Sums::each([&](int i, int e) { r.sums.chunk[i][e] += r.slab[i][e]; });
      });
    }
  }

  // Where the values of the task's chunk number `chunk` exceed what three terms hold, by all
  // threads' ranges, its sums are replaced by sums of float32 products. All threads take the same
  // branch.
  template <class Block>
  CONVGRAD_HD static void replace_inexact(Block& block, const Params& p, int chunk) {
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
    Box box = s.task.first;
    for (int i = 0; i < chunk; ++i) p.work.chunks.advance(box, p.work.apart);
    block.each_unsynced([&](int thread, Regs& r) {
      Tile::template resum<float>(p, s.task.tile, box, thread, r.sums);
    });
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    SlabQueue queue = Tile::begin(block, p, task);
    if (queue.chunks == 0) return;
    block.each_unsynced([&](int thread, Regs& r) {
      r.sums.load(p.work.begins(block.shared.task.slice),
                  Tile::address_of(p.work, block.shared.task, thread));
      r.sums.clear();
      r.range.clear();
    });
    load_slab(block, p, queue, 0);
    store_slab(block, 0);
    int chunk = 0;
    for (int buffer = 0; !queue.empty(); buffer = 1 - buffer) {
      load_slab(block, p, queue, 1);
      compute(block, buffer);
      if (queue.pop()) {
        replace_inexact(block, p, chunk++);
        block.each_unsynced([](int, Regs& r) {
          r.sums.end_chunk();
          r.range.clear();
        });
      }
      // It goes to the buffer that all left behind at the last barrier: one a slab suffices.
      if (!queue.empty()) store_slab(block, 1 - buffer);
    }
    block.each_unsynced([&](int thread, Regs& r) {
      r.sums.store(Tile::address_of(p.work, block.shared.task, thread));
    });
  }
};

// A wide tile's warps are all that a multiprocessor holds, so its slabs are long, to be read while
// one is multiplied. Two narrow tiles' fit at a time.
using MmaSplitWide = MmaSplitGemm<2, 4, 32>;
using MmaSplitNarrow = MmaSplitGemm<2, 2, 16>;

}  // namespace convgrad::cuda
