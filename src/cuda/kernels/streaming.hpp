// streaming.hpp - depthwise and small groups: what is read of x and dy serves all taps.
//
// A block of threads has 32 output channels, one in each lane, and up to kR x kS taps of kC input
// channels of each one's group in registers. It goes through the chunks of one slice in strips of
// columns, and down a strip a unit at a time: a box of output pixels whose dy fits shared memory
// beside the rows of x that its taps see. Those are a ring: the rows that two units see stay there.
// Warps take runs of pixels of the unit in turn. After a chunk the warps' sums are added in order.
// Where dy is not finite, and at ragged ends, products are taken one by one, without padding's.
//
// A group's matrix is too small for a GEMM tile here, and each value of x is multiplied with few of
// dy: what limits is loading, so a value is loaded once for all taps. Registers limit the taps: up
// to 7 x 7 sums a lane. Pairs of all taps would be twice as many, so each warp keeps the pairs of
// an eighth of them, and warps' sums meet in shared memory once a chunk.
#pragma once

#include "cuda/kernels/stream_unit.hpp"

namespace convgrad::cuda {

template <typename Scalar, int kR, int kS, int kC>
struct Streaming {
  using Acc = typename AccumulatorOf<Scalar>::type;
  static constexpr int kThreads = kStreamLanes * kStreamWarps;
  static constexpr int kSums = kR * kS * kC;
  static constexpr int kRounds = (kSums + kStreamWarps - 1) / kStreamWarps;
  using Sums = TileSums<Acc, kC * kR, kS, kRounds>;
  using Load = StreamLoad<Scalar, kC>;

  using Params = StreamParams;
  struct Regs {
    // Sums of this warp's pixels of the chunk for all taps of kC channels; but pairs of the slice
    // only for every kStreamWarps-th of them: each warp keeps its share of the block's.
    Sums sums;
  };
  // The ring [image][row][column][channel], and behind it dy [image][row][column][channel] of the
  // unit. Rows of channels have an odd length (kStreamPitch). After a chunk the same memory has the
  // warps' sums.
  struct Shared {
    alignas(16) Acc memory[kStreamBytes / sizeof(Acc)];
  };

  // One run of kStreamRun pixels. Taps' rows are outermost: the values of a row are loaded once for
  // all its taps, and no more than one row's are in registers. x points into the ring's first row,
  // at the first one's first tap and the lane's first channel; `place` is the first tap's row.
  CONVGRAD_HD static void add_run(const Params& p, const Acc* x, int place, const Acc* dy,
                                  Regs& r) {
    const Shape& shape = p.work.shape;
    const int pitch = p.x_pitch(), line = p.unit.patch_columns * pitch;
    const bool dense = shape.axis[2].stride == 1 && shape.axis[2].dilation == 1;
    const int step = shape.axis[2].stride * pitch, apart = shape.axis[2].dilation * pitch;
    CONVGRAD_UNROLL
    for (int i = 0; i < kR; ++i) {
      const Acc* row = x + p.ring_place(place + i * shape.axis[1].dilation) * line;
      CONVGRAD_UNROLL
      for (int c = 0; c < kC; ++c) {
        const Acc* from = row + c;
        if (dense) {  // neighbouring pixels see the same values through neighbouring taps
          Acc values[kStreamRun + kS - 1];
          CONVGRAD_UNROLL
          for (int j = 0; j < kStreamRun + kS - 1; ++j) values[j] = from[j * pitch];
          CONVGRAD_UNROLL
          for (int s = 0; s < kS; ++s) {
            CONVGRAD_UNROLL
            for (int j = 0; j < kStreamRun; ++j)
              r.sums.chunk[c * kR + i][s] += values[j + s] * dy[j];
          }
        } else {
          CONVGRAD_UNROLL
          for (int s = 0; s < kS; ++s) {
            CONVGRAD_UNROLL
            for (int j = 0; j < kStreamRun; ++j)
              r.sums.chunk[c * kR + i][s] += from[j * step + s * apart] * dy[j];
          }
        }
      }
    }
  }

  // The same for one pixel, at (d, h, w) of its tile's first tap, without what is outside x.
  CONVGRAD_HD static void add_pixel(const Params& p, const Acc* x, int place, Acc dy, int d, int h,
                                    int w, Regs& r) {
    const Axis* axis = p.work.shape.axis;
    const int pitch = p.x_pitch(), line = p.unit.patch_columns * pitch;
    if (d < 0 || d >= axis[0].in) return;
    CONVGRAD_UNROLL
    for (int i = 0; i < kR; ++i) {
      const int below = i * axis[1].dilation;
      if (h + below < 0 || h + below >= axis[1].in) continue;
      const Acc* row = x + p.ring_place(place + below) * line;
      CONVGRAD_UNROLL
      for (int s = 0; s < kS; ++s) {
        const int column = s * axis[2].dilation;
        if (w + column < 0 || w + column >= axis[2].in) continue;
        CONVGRAD_UNROLL
        for (int c = 0; c < kC; ++c) {
          r.sums.chunk[c * kR + i][s] += row[column * pitch + c] * dy;
        }
      }
    }
  }

  // Every warp takes each kStreamWarps-th run: which sums a pixel's products are added to follows
  // from its place in the unit alone. Lanes of one group read the same x, which shared memory
  // broadcasts, others neighbouring channels.
  CONVGRAD_HD static void multiply(const Params& p, const StreamTile& tile, const StreamStep& u,
                                   int thread, const Shared& shared, Regs& r) {
    const Shape& shape = p.work.shape;
    const int warp = thread / kStreamLanes, lane = thread % kStreamLanes;
    if (tile.k + lane >= shape.K) return;
    const int pitch = p.x_pitch(), runs = ceil_div(u.columns, kStreamRun);
    const int channel = ((tile.k + lane) / shape.group_k - tile.group) * kC;
    const int first = u.first % p.unit.ring;
    const Acc* all_dy = shared.memory + p.patch_pixels() * pitch;
    for (int e = warp; e < u.images * u.rows * runs; e += kStreamWarps) {
      const int row = e / runs, column = e % runs * kStreamRun;
      const int image = row / u.rows, below = row % u.rows;
      const Acc* dy_row = all_dy + row * u.columns * kStreamPitch + lane;
      Acc dy[kStreamRun];
      bool plain = column + kStreamRun <= u.columns;
      CONVGRAD_UNROLL
      for (int j = 0; j < kStreamRun; ++j) {
        dy[j] = column + j < u.columns ? dy_row[(column + j) * kStreamPitch] : Acc{0};
        plain = plain && is_finite(dy[j]);
      }
      const int place = p.ring_place(first + below * shape.axis[1].stride);
      const Acc* x =
          shared.memory + channel +
          (image * p.unit.ring * p.unit.patch_columns + column * shape.axis[2].stride) * pitch;
      if (plain) {
        add_run(p, x, place, dy, r);
        continue;
      }
      const int d = shape.axis[0].first_input(u.z) + tile.t * shape.axis[0].dilation;
      const int h = shape.axis[1].first_input(u.p + below) + tile.r * shape.axis[1].dilation;
      const int w = shape.axis[2].first_input(u.q + column) + tile.s * shape.axis[2].dilation;
      for (int j = 0; j < kStreamRun && column + j < u.columns; ++j) {
        const int step = j * shape.axis[2].stride;
        add_pixel(p, x + step * pitch, place, dy_row[(column + j) * kStreamPitch], d, h, w + step,
                  r);
      }
    }
  }

  // A thread's pair number i is that of sum i * kStreamWarps + its warp, of its lane's channel.
  CONVGRAD_HD static auto address_of(const BlockParams& w, const StreamTile& tile,
                                     std::int64_t slice, int thread) {
    return [&w, tile, slice, thread = opaque(thread)](int i) -> Sum<Acc>* {
      const int v = i * kStreamWarps + thread / kStreamLanes, k = tile.k + thread % kStreamLanes;
      const int c = tile.c + v / (kR * kS), r = tile.r + v / kS % kR, s = tile.s + v % kS;
      const Axis* axis = w.shape.axis;
      const bool inside =
          v < kSums && c < w.shape.group_c && r < axis[1].taps && s < axis[2].taps && k < w.shape.K;
      if (!inside) return nullptr;
      const int tap = (tile.t * axis[1].taps + r) * axis[2].taps + s;
      return w.template sum_at<Acc>(slice, static_cast<std::int64_t>(tap) * w.shape.group_c + c, k);
    };
  }

  // Adds the warps' sums of the chunk: those of kStreamWarps elements at a time, as many as there
  // are warps to add them. In the order of warps, which fixes the bits.
  template <class Block>
  CONVGRAD_HD static void add_warps(Block& block) {
    Acc* memory = block.shared.memory;
    CONVGRAD_UNROLL
    for (int round = 0; round < kRounds; ++round) {
      block.each([&](int thread, Regs& r) {
        const int warp = thread / kStreamLanes, lane = thread % kStreamLanes;
        CONVGRAD_UNROLL
        for (int i = 0; i < kStreamWarps; ++i) {
          const int v = round * kStreamWarps + i;
          if (v < kSums) {
            memory[(warp * kStreamWarps + i) * kStreamPitch + lane] = r.sums.chunk[v / kS][v % kS];
          }
        }
      });
      block.each([&](int thread, Regs& r) {
        const int warp = thread / kStreamLanes, lane = thread % kStreamLanes;
        if (round * kStreamWarps + warp >= kSums) return;
        Acc sum = memory[warp * kStreamPitch + lane];
        CONVGRAD_UNROLL
        for (int i = 1; i < kStreamWarps; ++i) {
          sum += memory[(i * kStreamWarps + warp) * kStreamPitch + lane];
        }
        r.sums.total[round].add(sum);
      });
    }
  }

  template <class Block>
  CONVGRAD_HD static void add_unit(Block& block, const Params& p, const StreamTile& tile,
                                   const StreamStep& u) {
    block.each([&](int thread, Regs&) {
      Load::patch(p, tile, u, thread, block.shared.memory);
      Load::dy(p, tile, u, thread, block.shared.memory + p.patch_pixels() * p.x_pitch());
    });
    block.each([&](int thread, Regs& r) { multiply(p, tile, u, thread, block.shared, r); });
  }

  // Strips of columns are outside, rows inside: down a strip, the ring keeps the rows that two
  // units see, which are more than the columns that two strips see.
  template <class Block>
  CONVGRAD_HD static void add_chunk(Block& block, const Params& p, const StreamTile& tile,
                                    const Box& box) {
    StreamStep u;
    u.strip = box.begin[1];
    for (int n = 0; n < box.size[0]; n += p.unit.images) {
      u.n = box.n + n;
      u.images = least(p.unit.images, box.size[0] - n);
      for (u.z = box.begin[0]; u.z < box.begin[0] + box.size[1]; ++u.z) {
        for (int column = 0; column < box.size[3]; column += p.unit.columns) {
          u.q = box.begin[2] + column;
          u.columns = least(p.unit.columns, box.size[3] - column);
          u.end = 0;
          for (int row = 0; row < box.size[2]; row += p.unit.rows) {
            u.move_down(p.work.shape.axis[1], kR, row, least(p.unit.rows, box.size[2] - row));
            add_unit(block, p, tile, u);
          }
        }
      }
    }
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const BlockParams& w = p.work;
    ChunkWalker walk(w, task);
    if (walk.done()) return;
    const StreamTile tile = stream_tile(p, kR, kS, kC, task);
    block.each_unsynced([&](int thread, Regs& r) {
      r.sums.load(w.begins(walk.slice), address_of(w, tile, walk.slice, thread));
    });
    for (; !walk.done(); walk.next()) {
      block.each_unsynced([](int, Regs& r) { r.sums.clear(); });
      add_chunk(block, p, tile, walk.box);
      add_warps(block);
    }
    block.each_unsynced(
        [&](int thread, Regs& r) { r.sums.store(address_of(w, tile, walk.slice, thread)); });
  }
};

}  // namespace convgrad::cuda
