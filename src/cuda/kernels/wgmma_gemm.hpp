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
// pairs of the slice, 192 of 255. Shared memory limits the stages: six slabs of x and dy are 192
// KiB of the 227 that a block can have, so that one block is on a multiprocessor at a time.
//
// Copies are kStages - 1 slabs ahead. A slab's products may be under way while the next one's
// begin; the barrier of all threads after that lets the slab before be overwritten.
#pragma once

#include "cuda/kernels/gemm_tile.hpp"
#include "cuda/kernels/wgmma.hpp"

namespace convgrad::cuda {

// At most; 64 pixels by 64 channels are a panel of 8 KiB, four steps of k for the instruction.
inline constexpr int kSlabPixels = 64;
inline constexpr int kWgmmaRows = 128, kWgmmaColumns = 128;

// The output pixels of a slab along n, z, p, q.
struct Slab {
  int size[4];
  CONVGRAD_HD int pixels() const { return size[0] * size[1] * size[2] * size[3]; }
  // How many there are in a chunk.
  CONVGRAD_HD int count(const Box& box) const {
    int count = 1;
    for (int a = 0; a < 4; ++a) count *= ceil_div(box.size[a], size[a]);
    return count;
  }
  // The first pixel of one of them, q fastest; what it has beyond the chunk is outside dy.
  CONVGRAD_HD void first_pixel(const Box& box, int number, std::int64_t& n, int out[3]) const {
    for (int a = 3; a > 0; --a) {
      const int steps = ceil_div(box.size[a], size[a]);
      out[a - 1] = box.begin[a - 1] + number % steps * size[a];
      number /= steps;
    }
    n = box.n + static_cast<std::int64_t>(number) * size[0];
  }
};

template <typename Scalar>
struct WgmmaGemm {
  using Op = Wgmma16<Scalar>;
  static constexpr int kGroups = kWgmmaRows / Op::kM, kThreads = kGroups * kWarpgroup;
  static constexpr int kStages = 6;  // 32 KiB each
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
  // Panels of 64 channels, each a copy's box: what wgmma.hpp takes as operands. A barrier a stage
  // counts the bytes of its copies; arithmetic needs no other sign that they have arrived.
  struct Shared {
    alignas(kSwizzleBytes) Scalar x[kStages][kPanelsX][kSlabPixels][kPanel];
    alignas(kSwizzleBytes) Scalar dy[kStages][kPanelsDy][kSlabPixels][kPanel];
    BulkBarrier arrived[kStages];
  };
  using Walker = SlabWalker<WgmmaGemm>;
  CONVGRAD_HD static int slab_count(const Params& p, const Box& box) { return p.slab.count(box); }

  // Rows of a stage that no copy writes, as slabs of this problem are smaller: zeros, once a task.
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

  // One thread: the copies of a slab. Positions that are outside x or dy count among the bytes that
  // arrive, as zeros do; so every slab has the same number.
  template <class Block>
  CONVGRAD_HD static void copy_slab(Block& block, const Params& p, const GemmTile& tile,
                                    const Walker& load, int stage) {
    const BlockParams& w = p.work;
    Shared& s = block.shared;
    std::int64_t n;
    int out[3], in[3];
    p.slab.first_pixel(load.box, load.slab, n, out);
    tap_input(w.shape, tile, out, in);
    const int image = static_cast<int>(n - p.first_image);
    BulkBarrier& arrived = s.arrived[stage];
    block.expect_bulk(arrived, (kPanelsX + kPanelsDy) * p.slab.pixels() * kRowBytes);
    for (int panel = 0; panel < kPanelsX; ++panel) {
      const int channel = tile.group * p.x_pitch + tile.row + panel * kPanel;
      const int at[5] = {channel, in[2] - w.x.lo[2], in[1] - w.x.lo[1], in[0] - w.x.lo[0], image};
      block.copy_bulk(s.x[stage][panel], p.x, at, arrived);
    }
    for (int panel = 0; panel < kPanelsDy; ++panel) {
      const int channel = tile.group * p.dy_pitch + tile.column + panel * kPanel;
      const int at[5] = {channel, out[2] - w.dy.lo[2], out[1] - w.dy.lo[1], out[0] - w.dy.lo[0],
                         image};
      block.copy_bulk(s.dy[stage][panel], p.dy, at, arrived);
    }
  }

  // Begins to load the next slab into a stage, if there is one.
  template <class Block>
  CONVGRAD_HD static void issue(Block& block, const Params& p, const GemmTile& tile, Walker& load,
                                int stage) {
    if (load.done()) return;
    block.each_unsynced([&](int thread, Regs&) {
      if (thread == 0) copy_slab(block, p, tile, load, stage);
    });
    load.next();
  }

  // Begins the products of a stage: rows of warpgroup g are panel g of x.
  template <class Block>
  CONVGRAD_HD static void compute(Block& block, int stage) {
    Shared& s = block.shared;
    block.template multiply_shared<Op, kSlabPixels / Op::kK>(
        kPanelBytes, [&](int group, int step) { return &s.x[stage][group][step * Op::kK][0]; },
        [&](int step) { return &s.dy[stage][0][step * Op::kK][0]; }, sum_of);
  }

  CONVGRAD_HD static typename Op::C& sum_of(Regs& r) { return r.sums.chunk[0]; }

  CONVGRAD_HD static void sum_place(int thread, int e, int& row, int& column) {
    Op::c_place(thread % kWarpgroup, e, row, column);
    row += thread / kWarpgroup * Op::kM;
  }

  CONVGRAD_HD static auto address_of(const Params& p, const GemmTile& tile, std::int64_t slice,
                                     int thread) {
    return [&p, tile, slice, thread = opaque(thread)](int e) {
      int row, column;
      sum_place(thread, e, row, column);
      return sum_at<float>(p.work, tile, slice, row, column);
    };
  }

  CONVGRAD_HD static bool all_finite(const Regs& r) {
    bool finite = true;
    Sums::each([&](int i, int e) { finite = finite && is_finite(r.sums.chunk[i][e]); });
    return finite;
  }

  // Sums are checked instead of the data, which no thread reads: a value that is not finite leaves
  // one that is not finite in every sum that it is a product of, padding's zeros included.
  template <class Block>
  CONVGRAD_HD static void end_chunk(Block& block, const Params& p, const GemmTile& tile,
                                    const Box& box) {
    if (block.each_any([](int, const Regs& r) { return !all_finite(r); })) {
      block.each_unsynced([&](int thread, Regs& r) {
        const int own = opaque(thread);
        sum_by_pixels<Scalar>(p, tile, box, r.sums, [&](int, int e, int& row, int& column) {
          sum_place(own, e, row, column);
        });
      });
    }
    block.each_unsynced([](int, Regs& r) { r.sums.end_chunk(); });
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    ChunkWalker use(p.work, task);
    if (use.done()) return;
    const GemmTile tile = gemm_tile(p, kWgmmaRows, kWgmmaColumns, task);
    block.each([&](int thread, Regs& r) {
      if (thread == 0) {
        for (BulkBarrier& barrier : block.shared.arrived) block.init_barrier(barrier);
      }
      clear_rest(p, thread, block.shared);
      block.fence_async_proxy();
      r.sums.load(address_of(p, tile, use.slice, thread));
      r.sums.clear();
    });
    Walker load(p, use);
    for (int stage = 0; stage < kStages - 1; ++stage) issue(block, p, tile, load, stage);
    int stage = 0;
    unsigned round = 0;  // of the stages, modulo 2
    for (; !use.done(); use.next()) {
      for (int slabs = slab_count(p, use.box); slabs > 0; --slabs) {
        block.each_unsynced(
            [&](int, Regs&) { block.wait_bulk(block.shared.arrived[stage], round); });
        compute(block, stage);
        block.template wait_multiplies<Op, 1>(sum_of);
        block.each([](int, Regs&) {});  // no products are under way in the stage before this one
        issue(block, p, tile, load, (stage + kStages - 1) % kStages);
        stage = (stage + 1) % kStages;
        if (stage == 0) round ^= 1u;
      }
      block.template wait_multiplies<Op, 0>(sum_of);
      end_chunk(block, p, tile, use.box);
    }
    block.each_unsynced(
        [&](int thread, Regs& r) { r.sums.store(address_of(p, tile, use.slice, thread)); });
  }
};

}  // namespace convgrad::cuda
