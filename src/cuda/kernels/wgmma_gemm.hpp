// wgmma_gemm.hpp - implicit GEMM on the tensor cores of compute capability 9.0, fed by bulk copies.
//
// A tile of dw belongs to one tap: 128 input channels by 128 output channels of a group, 64 x 128
// of them to each of two warpgroups. The pixels of a chunk are taken a slab at a time: a box of
// output pixels that one copy takes of dy, and the box of x that the tap sees from them, every
// stride-th position. What is outside x or dy is zero in shared memory. That is not enough where
// the other factor is not finite: a chunk with a sum that is not finite is summed once more, pixel
// by pixel, without those that the tap sees outside x. After a chunk its sums are added to Sum<>
// pairs.
//
// Registers limit the tile: 64 x 128 sums are 64 registers a thread for the chunk and 128 for the
// pairs of the slice, 192 of 240. Shared memory limits the stages: six slabs of x and dy are 192
// KiB of the 227 that a block can have, so that one block is on a multiprocessor at a time.
//
// One thread does nothing but copy, as many slabs ahead as there are stages. The warpgroups wait
// for what has arrived, and a slab's products are under way while the next one's begin. No barrier
// of all threads keeps them in step.
#pragma once

#include "cuda/kernels/gemm_tile.hpp"
#include "cuda/kernels/wgmma.hpp"

namespace convgrad::cuda {

// A slab has at most so many; 64 pixels by 64 channels are a panel of 8 KiB, four steps of k.
inline constexpr int kSlabPixels = 64;
inline constexpr int kWgmmaRows = 128, kWgmmaColumns = 128;

// Holds the output pixels of a slab along n, z, p, q.
struct Slab {
  int size[4];
  CONVGRAD_HD int pixels() const { return size[0] * size[1] * size[2] * size[3]; }
  // Calls f(n, {z, p, q}, last) for the first pixel of each slab of a chunk, q fastest; beyond the
  // chunk a slab is outside dy. Whether it is the last takes no register from one to the next.
  template <class F>
  CONVGRAD_HD void each(const Box& box, F&& f) const {
    for (int n = 0; n < box.size[0]; n += size[0]) {
      for (int z = 0; z < box.size[1]; z += size[1]) {
        for (int p = 0; p < box.size[2]; p += size[2]) {
          for (int q = 0; q < box.size[3]; q += size[3]) {
            const int at[3] = {box.begin[0] + z, box.begin[1] + p, box.begin[2] + q};
            f(box.n + n, at,
              n + size[0] >= box.size[0] && z + size[1] >= box.size[1] &&
                  p + size[2] >= box.size[2] && q + size[3] >= box.size[3]);
          }
        }
      }
    }
  }
};

template <typename Scalar>
struct WgmmaGemm {
  using Op = Wgmma16<Scalar>;
  // One thread of the producer's warpgroup works (Block::divide).
  static constexpr int kGroups = kWgmmaRows / Op::kM, kConsumers = kGroups * kWarpgroup;
  static constexpr int kThreads = kConsumers + kWarpgroup;
  static constexpr int kStages = 6;  // 32 KiB each
  static constexpr int kResident = 1;
  static constexpr int kPanelsX = kWgmmaRows / kPanel, kPanelsDy = kWgmmaColumns / kPanel;
  static constexpr int kPanelBytes = kSlabPixels * kRowBytes;
  static_assert(Op::kM == kPanel && Op::kN == kWgmmaColumns);
  using Sums = TileSums<float, 1, Op::kElementsC>;

  struct Params : GemmParams {
    BulkTensor x, dy;
    Slab slab;
    std::int64_t first_image;  // of the block
  };
  struct Regs {
    Sums sums;
  };
  // Panels of 64 channels, each a copy's box, are wgmma.hpp's operands. One barrier of each stage
  // counts the bytes that arrive, and one the warps that have used them.
  struct Shared {
    alignas(kSwizzleBytes) Scalar x[kStages][kPanelsX][kSlabPixels][kPanel];
    alignas(kSwizzleBytes) Scalar dy[kStages][kPanelsDy][kSlabPixels][kPanel];
    BulkBarrier arrived[kStages], used[kStages];
    // The producer says whether a stage's slab ends a chunk, 0 or 1, and which one, so that
    // consumers keep no walk in registers.
    int last[kStages];
    Box chunk[kStages];
  };
  // Holds the stage that is next, and which time it is, modulo 2.
  struct Turn {
    int stage = 0;
    unsigned round = 0;
    CONVGRAD_HD void next() {
      if (++stage < kStages) return;
      stage = 0;
      round ^= 1u;
    }
  };

  // Zeroes, once a task, rows of a stage that no copy writes, as slabs of this problem are smaller.
  CONVGRAD_HD static void clear_rest(const Params& p, int thread, Shared& s) {
    const int first = p.slab.pixels();
    for (int i = thread; i < (kSlabPixels - first) * kPanel; i += kThreads) {
      const int row = first + i / kPanel, column = i % kPanel;
      for (int stage = 0; stage < kStages; ++stage) {
        for (int panel = 0; panel < kPanelsX; ++panel) s.x[stage][panel][row][column] = Scalar{0};
        for (int panel = 0; panel < kPanelsDy; ++panel) s.dy[stage][panel][row][column] = Scalar{0};
      }
    }
  }

  // Begins the copies of a slab. Positions that are outside x or dy count among the bytes that
  // arrive, as zeros do; so every slab has the same number.
  template <class Block>
  CONVGRAD_HD static void copy_slab(Block& block, const Params& p, const GemmTile& tile,
                                    std::int64_t n, const int (&out)[3], const int (&first)[3],
                                    int stage) {
    const BlockParams& w = p.work;
    const Axis* axis = w.shape.axis;
    Shared& s = block.shared;
    const int image = static_cast<int>(n - p.first_image);
    BulkBarrier& arrived = s.arrived[stage];
    block.expect_bulk(arrived, (kPanelsX + kPanelsDy) * p.slab.pixels() * kRowBytes);
    CONVGRAD_UNROLL
    for (int panel = 0; panel < kPanelsX; ++panel) {
      const int channel =
          tile.group * static_cast<int>(w.x.group_stride) + tile.row + panel * kPanel;
      const int at[5] = {channel, first[2] + out[2] * axis[2].stride,
                         first[1] + out[1] * axis[1].stride, first[0] + out[0] * axis[0].stride,
                         image};
      block.copy_bulk(s.x[stage][panel], p.x, at, arrived);
    }
    CONVGRAD_UNROLL
    for (int panel = 0; panel < kPanelsDy; ++panel) {
      const int channel =
          tile.group * static_cast<int>(w.dy.group_stride) + tile.column + panel * kPanel;
      const int at[5] = {channel, out[2] - w.dy.lo[2], out[1] - w.dy.lo[1], out[0] - w.dy.lo[0],
                         image};
      block.copy_bulk(s.dy[stage][panel], p.dy, at, arrived);
    }
  }

  // Fills a stage when the products of what was in it are done.
  template <class Block>
  CONVGRAD_HD static void produce(Block& block, const Params& p, const GemmTile& tile,
                                  ChunkWalker load) {
    TapStart start(p.work.shape, tile.tap);  // counted from the block's first x
    for (int a = 0; a < 3; ++a) start.at[a] -= p.work.x.lo[a];
    Turn turn;
    for (; !load.done(); load.next()) {
      const Box box = load.box();
      p.slab.each(box, [&](std::int64_t n, const int(&out)[3], bool last) {
        block.wait_bulk(block.shared.used[turn.stage], turn.round ^ 1u);
        block.shared.last[turn.stage] = last ? 1 : 0;
        if (last) block.shared.chunk[turn.stage] = box;
        copy_slab(block, p, tile, n, out, start.at, turn.stage);
        turn.next();
      });
    }
  }

  CONVGRAD_HD static void sum_place(int thread, int e, int& row, int& column) {
    Op::c_place(thread % kWarpgroup, e, row, column);
    row += thread / kWarpgroup * Op::kM;
  }

  CONVGRAD_HD static auto address_of(const Params& p, const GemmTile& tile, std::int64_t slice,
                                     int thread) {
    int row, column;
    sum_place(opaque(thread), 0, row, column);
    return sum_addresses<float>(
        p.work, tile, slice, row, column,
        [](int sum, int& down, int& right) { Op::c_place(0, sum, down, right); });
  }

  // Each thread looks at its own sums: nothing is shared in summing them once more.
  CONVGRAD_HD static void replace_infinite(const Params& p, const GemmTile& tile, const Box& box,
                                           int thread, Sums& sums) {
    if (sums.all_finite()) return;
    const int own = opaque(thread);
    sum_tile_again<Scalar>(p, tile, box, sums, [&](int, int e, int& row, int& column) {
      sum_place(own, e, row, column);
    });
  }

  // Rows of warpgroup g are panel g of x.
  template <class Block>
  CONVGRAD_HD static void consume(Block& block, const Params& p, const GemmTile& tile,
                                  std::int64_t slice, int chunks) {
    Shared& s = block.shared;
    Sums& sums = block.regs.sums;
    typename Op::C& products = sums.chunk[0];
    const int thread = block.thread(), group = thread / kWarpgroup;
    sums.load(p.work.begins(slice), address_of(p, tile, slice, thread));
    Turn turn;
    for (; chunks > 0; --chunks) {
      int before = -1;  // the stage of the products that are under way
      for (bool last = false; !last;) {
        block.wait_bulk(s.arrived[turn.stage], turn.round);
        last = s.last[turn.stage] != 0;
        block.template multiply_shared<Op, kSlabPixels / Op::kK, Op::kK * kRowBytes>(
            before < 0, kPanelBytes, s.x[turn.stage][group], s.dy[turn.stage], products);
        block.template wait_multiplies<Op, 1>(products);
        if (before >= 0) block.arrive_by_warps(s.used[before]);
        before = turn.stage;
        turn.next();
      }
      block.template wait_multiplies<Op, 0>(products);
      replace_infinite(p, tile, s.chunk[before], thread, sums);
      block.arrive_by_warps(s.used[before]);
      sums.add_chunk();
    }
    sums.store(address_of(p, tile, slice, thread));
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
    block.refuse();
#else
    const ChunkWalker first(p.work, task);
    if (first.done()) return;
    Shared& s = block.shared;
    const GemmTile tile = gemm_tile(p, kWgmmaRows, kWgmmaColumns, task);
    if (block.thread() == 0) {
      block.init_barriers(s.arrived, 1);
      block.init_barriers(s.used, kConsumers / kWarp);
      block.fence_barriers();
    }
    clear_rest(p, block.thread(), s);
    block.fence_async_proxy();
    block.sync();
    block.divide([&] { produce(block, p, tile, first); },
                 [&] { consume(block, p, tile, first.slice, first.left); });
#endif
  }
};

}  // namespace convgrad::cuda
