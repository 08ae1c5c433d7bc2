// wgmma_taps.hpp - the filter gradient on the tensor cores of compute capability 9.0, fed by bulk
// copies: x stays in shared memory for all taps of a tile.
//
// A chunk is a box of output pixels in whole rows, or a piece of one row, and one run of k: its
// rows of dy follow each other in shared memory, `pitch` pixels each. x is copied as rows of the
// same pitch, all that the tile's taps see. So pixel i of dy meets x at i + r * dilation * pitch +
// s * dilation: a tap is a shift of the operand's first row, and the taps of one filter row, of
// which one instruction has several side by side along n, are panels that overlap. Columns of dy
// beyond the chunk lie outside dy, where bulk copies write zeros. With strides x is copied as
// planes of every stride-th row and column instead; taps_choice.hpp lays all of it out.
//
// A tile is 64 output channels (m), or 128, by taps and input channels (n), some to each warpgroup.
// Sums stay in registers through all chunks of a slice, up to TapsLayout::sums of them, and are
// stored as they are: the partial gradient of a short slice is float32, in the order of the
// registers. The next block of data takes them up again, so blocks change no bit. A longer slice
// adds its sums to float64 in device memory. Where a block of data has all of short slices, those
// of a tile, or eight of them, are a cluster of thread blocks: each adds a part of the sums of all,
// which are in shared memory, in the tree of reduce.hpp, and writes dw, or float64 partials.
//
// float32 comes as three bfloat16 tensors behind each other (terms.hpp). Tensor cores cut sums
// toward zero, so they sum no more than 4 steps of 16 pixels, the products of the largest terms
// apart from the others. These sums are added in registers, rounded to nearest. What is outside x
// is zero, which is not enough where the other factor is not finite: taps_careful.hpp.
#pragma once

#include "cuda/kernels/reduce.hpp"
#include "cuda/kernels/taps_careful.hpp"
#include "cuda/kernels/taps_layout.hpp"

namespace convgrad::cuda {

// Where clusters of so many slices write sums, as dw, one behind the other, rounded; or none does.
struct WrittenDw {
  void* dw = nullptr;
  DType dtype = DType::f64;
  int cluster = 0;
};

struct TapsParams {
  BulkTensor x, dy;
  BlockParams work;
  TapsLayout layout;
  std::int64_t first_image;  // of the block
  int images;                // of each term
  WrittenDw written;
};

// Panels of kWidth input channels, kPanels of them a warpgroup.
template <typename Scalar, int kWidth, int kPanels, int kGroups>
struct WgmmaTaps {
  using Element = typename TermsOf<Scalar>::Element;
  using Op = Wgmma16<Element, kWidth * kPanels>;
  using PanelOp = Wgmma16<Element, kWidth>;
  static constexpr int kTerms = TermsOf<Scalar>::kTerms;
  static constexpr int kGroupCount = kGroups, kPanelCount = kPanels;
  static constexpr int kConsumers = kGroups * kWarpgroup, kThreads = kConsumers + kWarpgroup;
  static constexpr int kLeastBlocks = 0;
  static constexpr int kRowX = kWidth * 2;  // bytes
  static constexpr int kVectors = Op::kElementsC / 4, kPanelVectors = PanelOp::kElementsC / 4;
  static constexpr std::int64_t kTileSums = std::int64_t{kGroups} * kVectors * kWarpgroup * 4;

  using Params = TapsParams;
  struct Regs {};
  struct Shared {
    alignas(kSwizzleBytes) unsigned char stages[kTapsStageBytes];
    // Of each warpgroup, for Careful: 16 pixels of dy and of x.
    struct Step {
      alignas(kSwizzleBytes) unsigned char dy[kStepPixels * kRowBytes];
      alignas(kSwizzleBytes) unsigned char x[kStepPixels * kRowBytes];
    } step[kGroups];
    BulkBarrier arrived[kMaxTapsStages], used[kMaxTapsStages];
  };
  struct alignas(16) Four {
    float sum[4];
  };

  // Holds the stage that is next, and which time it is, modulo 2.
  struct Turn {
    int stages, stage = 0;
    unsigned round = 0;
    CONVGRAD_HD void next() {
      if (++stage < stages) return;
      stage = 0;
      round ^= 1u;
    }
  };

  // What the threads of a block know of their task.
  struct Task {
    const Params& p;
    TapsTask at;
    TapsTile tile;
    int group_first_c, group_first_k;  // channels of x and dy where the tile's groups begin

    CONVGRAD_HD Task(const Params& params, std::int64_t number)
        : p(params),
          at(p.work, p.layout, number),
          tile(taps_tile(p.layout, at.tile)),
          group_first_c(tile.group * static_cast<int>(p.work.x.group_stride)),
          group_first_k(tile.group * static_cast<int>(p.work.dy.group_stride)) {}

    CONVGRAD_HD std::int64_t sum_at(int group, int vector, int thread) const {
      return at.slice * p.layout.slice_sums + at.tile * kTileSums +
             ((static_cast<std::int64_t>(group) * kVectors + vector) * kWarpgroup + thread) * 4;
    }
    CONVGRAD_HD Four* sums(int group, int vector, int thread) const {
      return reinterpret_cast<Four*>(static_cast<float*>(p.work.partials) +
                                     sum_at(group, vector, thread));
    }
    CONVGRAD_HD double* totals(int group, int vector, int thread) const {
      void* const totals = static_cast<unsigned char*>(p.work.partials) + p.layout.total_bytes;
      return static_cast<double*>(totals) + sum_at(group, vector, thread);
    }
    // Loads vectors of sums from `vector` on, if there are any; else they are 0.
    template <int kCount>
    CONVGRAD_HD void load(int group, int vector, int thread, bool there,
                          float (&to)[kCount]) const {
      CONVGRAD_UNROLL
      for (int i = 0; i < kCount / 4; ++i) {
        const Four four = there ? *sums(group, vector + i, thread) : Four{};
        CONVGRAD_UNROLL
        for (int e = 0; e < 4; ++e) to[4 * i + e] = four.sum[e];
      }
    }
    // Stores vectors of sums from `vector` on; those of a long slice that end, to its totals.
    template <int kCount>
    CONVGRAD_HD void store(int group, int vector, int thread, bool ended, bool first_sum,
                           const float (&from)[kCount]) const {
      CONVGRAD_UNROLL
      for (int i = 0; i < kCount / 4; ++i) {
        const float* const four = from + 4 * i;
        if (!ended || !p.layout.has_totals) {
          *sums(group, vector + i, thread) = {four[0], four[1], four[2], four[3]};
          continue;
        }
        double* const to = totals(group, vector + i, thread);
        CONVGRAD_UNROLL
        for (int e = 0; e < 4; ++e) to[e] = (first_sum ? 0 : to[e]) + static_cast<double>(four[e]);
      }
    }
  };

  // Zeroes what no copy writes: dy's pixels up to a whole step, where x must be finite.
  CONVGRAD_HD static void clear_rest(const TapsLayout& l, int thread, Shared& s) {
    const auto clear = [&](int begin, int end) {
      for (int i = begin + thread * 16; i < end; i += kThreads * 16) {
        *reinterpret_cast<Four*>(s.stages + i) = Four{};
      }
    };
    for (int term = 0; term < l.stages * kTerms; ++term) {
      int at = term * l.term_bytes;
      for (int i = 0; i < l.x_copies; ++i, at += l.x_plane_bytes) {
        clear(at + l.x_box_bytes, at + l.x_plane_bytes);
      }
      for (int i = 0; i < l.dy_copies; ++i, at += l.dy_plane_bytes) {
        clear(at + l.dy_box_bytes, at + l.dy_plane_bytes);
      }
    }
  }

  // Fills a stage with a chunk when the products of what was in it are done. Positions outside x or
  // dy count among the bytes that arrive, as zeros do; so every chunk has the same number.
  template <class Block>
  CONVGRAD_HD static void produce(Block& block, const Task& task, const TapsWalk& walk) {
    const Params& p = task.p;
    const TapsLayout& l = p.layout;
    const BlockParams& w = p.work;
    const Axis* axis = w.shape.axis;
    const int d = task.tile.t * axis[0].dilation - axis[0].pad - w.x.lo[0],
              h = task.tile.r * axis[1].dilation - axis[1].pad - w.x.lo[1],
              q = task.tile.s * axis[2].dilation - axis[2].pad - w.x.lo[2];
    Turn turn{l.stages};
    CONVGRAD_NO_UNROLL
    for (std::uint32_t n = 0; n < walk.left; ++n) {
      const Box box = w.chunks.box(walk.chunk + n * walk.step);
      const auto image = static_cast<int>(box.n - p.first_image);
      BulkBarrier& arrived = block.shared.arrived[turn.stage];
      block.wait_bulk(block.shared.used[turn.stage], turn.round ^ 1u);
      block.expect_bulk(arrived,
                        kTerms * (l.x_copies * l.x_box_bytes + l.dy_copies * l.dy_box_bytes));
      const auto copy_term = [&](unsigned char* to, int of_image) {
        CONVGRAD_NO_UNROLL
        for (int i = 0; i < l.x_copies; ++i) {
          const TapsLayout::Copy& copy = l.copies[i];
          const int at[5] = {task.group_first_c + task.tile.c + copy.channel,
                             box.begin[2] * axis[2].stride + q + copy.column,
                             box.begin[1] * axis[1].stride + h + copy.row,
                             box.begin[0] * axis[0].stride + d, of_image};
          block.copy_bulk(to + copy.at, p.x, at, arrived);
        }
        CONVGRAD_NO_UNROLL
        for (int i = 0; i < l.dy_copies; ++i) {
          const int at[5] = {task.group_first_k + task.tile.k + i * kPanelChannels,
                             box.begin[2] - w.dy.lo[2], box.begin[1] - w.dy.lo[1],
                             box.begin[0] - w.dy.lo[0], of_image};
          block.copy_bulk(to + l.x_copies * l.x_plane_bytes + i * l.dy_plane_bytes, p.dy, at,
                          arrived);
        }
      };
      CONVGRAD_NO_UNROLL
      for (int term = 0; term < kTerms; ++term) {
        copy_term(block.shared.stages + turn.stage * l.stage_bytes + term * l.term_bytes,
                  image + term * p.images);
      }
      turn.next();
    }
  }

  // Looks at a thread's sums. Zero times a sum is 0 or NaN, one instruction each, in four chains.
  CONVGRAD_HD static bool all_finite(const typename Op::C& sums) {
    float zero[4] = {};
    CONVGRAD_UNROLL
    for (int e = 0; e < Op::kElementsC; ++e) zero[e % 4] += sums[e] * 0;
    return is_finite((zero[0] + zero[1]) + (zero[2] + zero[3]));
  }

  // Where a warpgroup's operands are: in the first stage, and the next ones.
  struct Operands {
    std::uint64_t first_a, first_b, a = 0, b = 0;

    template <class Block>
    CONVGRAD_HD void enter(Block& block, const TapsLayout& l, const Turn& turn) {
      block.wait_bulk(block.shared.arrived[turn.stage], turn.round);
      const auto stage = static_cast<std::uint32_t>(turn.stage * l.stage_bytes);
      a = operand_after(first_a, stage);
      b = operand_after(first_b, stage);
    }
    template <int kSteps, class Block>
    CONVGRAD_HD void begin(Block& block, typename Op::C& sums) {
      block.template begin_multiply<Op, kSteps>(a, kStepPixels * kRowBytes, b, kStepPixels * kRowX,
                                                sums);
      advance(kSteps);
    }
    CONVGRAD_HD void advance(int steps) {
      a = operand_after(a, steps * kStepPixels * kRowBytes);
      b = operand_after(b, steps * kStepPixels * kRowX);
    }
    // Adds the sums of some products of three terms.
    template <int kSteps, int kFirst, int kEnd, class Block>
    CONVGRAD_HD void add(Block& block, const TapsLayout& l, typename Op::C& sums) const {
      typename Op::C products;
      block.template begin_multiply<Op, kSteps, Onto::nothing, kFirst, kEnd>(
          a, kStepPixels * kRowBytes, b, kStepPixels * kRowX, products, l.term_bytes);
      block.template wait_multiplies<Op, 0>(products);
      CONVGRAD_UNROLL
      for (int e = 0; e < Op::kElementsC; ++e) sums[e] += products[e];
    }
  };

  // Forms the products of `count` chunks, kSteps steps at a time. The first are begun apart: others
  // than products wrote their sums, and products overlap that only products precede (ptxas, C7515).
  template <int kSteps, class Block>
  CONVGRAD_HD static void multiply(Block& block, const TapsLayout& l, int count, Turn& turn,
                                   typename Op::C& sums) {
    Shared& s = block.shared;
    const int group = block.thread() / kWarpgroup;
    Operands at{block.operand(s.stages + l.a_at[group], kRowBytes, 0),
                block.operand(s.stages + l.b_at[group], kRowX, l.panel_bytes)};
    if constexpr (kTerms > 1) return add_products<kSteps>(block, l, at, count, turn, sums);
    at.enter(block, l, turn);
    at.template begin<kSteps>(block, sums);
    int left = l.steps - kSteps, used = turn.stage;
    CONVGRAD_NO_UNROLL
    for (;;) {
      const bool entered = left == 0;
      if (entered) {
        if (--count == 0) break;
        turn.next();
        at.enter(block, l, turn);
        left = l.steps;
      }
      at.template begin<kSteps>(block, sums);
      left -= kSteps;
      block.template wait_multiplies<Op, 1>(sums);
      if (entered) {
        block.arrive_by_warps(s.used[used]);
        used = turn.stage;
      }
    }
    block.template wait_multiplies<Op, 0>(sums);
    block.arrive_by_warps(s.used[used]);
    turn.next();
  }

  template <int kSteps, class Block>
  CONVGRAD_HD static void add_products(Block& block, const TapsLayout& l, Operands at, int count,
                                       Turn& turn, typename Op::C& sums) {
    CONVGRAD_NO_UNROLL
    for (; count > 0; --count) {
      at.enter(block, l, turn);
      CONVGRAD_NO_UNROLL
      for (int left = l.steps; left > 0; left -= kSteps) {
        at.template add<kSteps, 0, kLastProduct>(block, l, sums);
        at.template add<kSteps, kLastProduct, kProducts>(block, l, sums);
        at.advance(kSteps);
      }
      block.arrive_by_warps(block.shared.used[turn.stage]);
      turn.next();
    }
  }

  // Adds a cluster's sums by way of shared memory: a column of a warpgroup's, which is contiguous
  // in dw, is added and written by a warp of one of its blocks.
  template <class Block>
  CONVGRAD_HD static void write_dw(Block& block, const Task& task, int group, int thread,
                                   const typename Op::C& sums) {
    const TapsLayout& l = task.p.layout;
    block.sync_cluster();  // nobody multiplies any more
    // Lanes of a store are in all 32 banks with this pitch.
    constexpr int kPitch = Op::kM + 4;
    static_assert(kGroups * Op::kN * kPitch * 4 <= kTapsStageBytes);
    float* const columns =
        static_cast<float*>(static_cast<void*>(block.shared.stages)) + group * Op::kN * kPitch;
    CONVGRAD_UNROLL
    for (int e = 0; e < Op::kElementsC; ++e) {
      int row, column;
      Op::c_place(thread, e, row, column);
      columns[column * kPitch + row] = sums[e];
    }
    block.sync_cluster();
    constexpr int kWarps = kWarpgroup / kWarp;
    std::uint32_t slot = task.at.slice;
    const auto rank = static_cast<int>(l.cluster.take(slot));
    const int row = thread % kWarp * 2, blocks = static_cast<int>(l.cluster.value);
    CONVGRAD_NO_UNROLL
    for (int column = rank * kWarps + thread / kWarp; column < Op::kN; column += blocks * kWarps) {
      struct alignas(8) Two {
        float sum[2];
      };
      const auto& own = *reinterpret_cast<const Two*>(columns + column * kPitch + row);
      Two of_blocks[kMostBlocks];
      CONVGRAD_UNROLL
      for (int i = 0; i < kMostBlocks; ++i) {
        of_blocks[i] = i < blocks ? block.of_block(own, i) : Two{-0.0f, -0.0f};
      }
      CONVGRAD_UNROLL
      for (int e = 0; e < 2; ++e) {
        double parts[kMostBlocks];
        CONVGRAD_UNROLL
        for (int i = 0; i < kMostBlocks; ++i) parts[i] = of_blocks[i].sum[e];
        const std::int64_t at =
            taps_place(l, task.p.work.shape, task.tile, kWidth, group, row + e, column);
        if (at < 0) continue;
        write_as(task.p.written.dtype, add_neighbours(parts), task.p.written.dw,
                 slot * task.p.work.dw_count + at);
      }
    }
    block.sync_cluster();  // shared memory ends with its block
  }

  // Addresses are computed behind the products, whose sums leave no registers for them.
  template <class Block>
  CONVGRAD_HD static void consume(Block& block, const Params& p, std::int64_t number) {
    const TapsLayout& l = p.layout;
    const int thread = block.thread() % kWarpgroup, group = block.thread() / kWarpgroup;
    if (group >= l.warpgroups) return;
    Turn turn{l.stages};
    const auto part_behind = [&](std::uint32_t done) {
      const TapsTask task(p.work, l, opaque(number));
      return TapsSum(TapsWalk(p.work, l, task.slice), l.sums, done);
    };
    const std::uint32_t left = TapsWalk(p.work, l, TapsTask(p.work, l, number).slice).left;
    for (std::uint32_t done = 0; done < left;) {
      typename Op::C sums{};
      const TapsSum part = part_behind(done);
      if (part.before > 0) Task(p, opaque(number)).load(group, 0, thread, true, sums);
      constexpr int kOther = kTerms > 1 ? 2 : 5;
      switch (l.together) {
        case 3:
          multiply<3>(block, l, part.count, turn, sums);
          break;
        case 4:
          multiply<4>(block, l, part.count, turn, sums);
          break;
        case kOther:
          multiply<kOther>(block, l, part.count, turn, sums);
          break;
        default:
          if constexpr (kTerms == 1) multiply<7>(block, l, part.count, turn, sums);
      }
      const bool finite = !block.any_of_group(!all_finite(sums));
      const Task task(p, opaque(number));
      const TapsSum now = part_behind(done);
      const bool writes = p.written.cluster > 0;
      if (!finite) {
        TapsCareful<WgmmaTaps>{task, now, group, thread}.run(block);
        if (writes) task.load(group, 0, thread, true, sums);
      } else if (!writes) {
        task.store(group, 0, thread, now.ended, now.first, sums);
      }
      if (writes) write_dw(block, task, group, thread, sums);
      done += static_cast<std::uint32_t>(now.count);
    }
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t number) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
    block.refuse();
#else
    const TapsWalk walk(p.work, p.layout, TapsTask(p.work, p.layout, number).slice);
    if (walk.left == 0) return;
    Shared& s = block.shared;
    if (block.thread() == 0) {
      block.init_barriers(s.arrived, 1);
      block.init_barriers(s.used, p.layout.warpgroups * (kWarpgroup / kWarp));
      block.fence_barriers();
    }
    clear_rest(p.layout, block.thread(), s);
    block.fence_async_proxy();
    block.sync();
    block.divide([&] { produce(block, Task(p, number), walk); },
                 [&] { consume(block, p, number); });
#endif
  }
};

}  // namespace convgrad::cuda
