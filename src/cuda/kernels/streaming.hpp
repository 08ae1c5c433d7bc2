// streaming.hpp - computes depthwise and small groups: what is read of x and dy serves all taps.
//
// A block of threads has 32 output channels, one in each lane, and up to kR x kS taps of kC input
// channels of each one's group in registers. It goes through the chunks of one slice in strips of
// columns, and down a strip a unit at a time: a box of output pixels whose dy fits shared memory
// beside the rows of x that its taps see. Those are a ring: the rows that two units see stay there,
// and while a unit is multiplied, the next one is copied. Warps take runs of neighbouring columns
// of the unit in turn, and go down them. After a chunk the warps' sums are added in order.
//
// What is outside x or dy is 0 in shared memory, so nothing is checked for a product
// (sum_again.hpp).
//
// A group's matrix is too small for a GEMM tile here, and each value of x is multiplied with few of
// dy: what limits is loading, so a value is loaded once for all taps. Registers limit the taps: up
// to 7 x 7 sums a lane. Pairs of all taps would be twice as many, so each warp keeps the pairs of
// its share of them, and warps' sums meet in shared memory once a chunk.
#pragma once

#include "cuda/kernels/stream_unit.hpp"

namespace convgrad::cuda {

template <typename Scalar, int kR, int kS, int kC>
struct Streaming {
  using Acc = typename AccumulatorOf<Scalar>::type;
  static constexpr int kThreads = kStreamLanes * kStreamWarps;
  static constexpr int kSums = kR * kS * kC;
  // Registers must suffice for so many blocks of a multiprocessor.
  static constexpr int kLeastBlocks = kSums * sizeof(Acc) <= 36    ? 4
                                      : kSums * sizeof(Acc) <= 144 ? 3
                                                                   : 2;
  static constexpr int kRounds = (kSums + kStreamWarps - 1) / kStreamWarps;
  using Sums = TileSums<Acc, kC * kR, kS, kRounds>;
  using Load = StreamLoad<Scalar, kS, kC>;
  using Walker = StreamWalker<kR>;

  using Params = StreamParams;
  struct Regs {
    // These are sums of this warp's pixels of the chunk for all taps of kC channels, but pairs of
    // the slice only for every kStreamWarps-th of them: each warp keeps its share of the block's.
    Sums sums;
    int channel;  // the first of the lane's group in a pixel of the ring
  };
  // memory has the ring [row][column][channel], and behind it dy
  // [buffer][row][column][channel], as they are in device memory: threads convert what they
  // read. exchange has two rounds of the warps' sums.
  struct Shared {
    alignas(16) Scalar memory[kStreamBytes / sizeof(Scalar)];
    Acc exchange[2][kStreamWarps][kStreamWarps][kStreamLanes];
  };

  // A lane multiplies these kC channels of a pixel of x. They are read together, as they are
  // neighbours and begin at multiples of kC (choices.cpp).
  struct alignas(sizeof(Scalar) * kC < 16 ? sizeof(Scalar) * kC : 16) Pixel {
    Scalar channel[kC];
  };
  CONVGRAD_HD static void read(const Scalar* from, Acc (&to)[kC]) {
    const Pixel pixel = *reinterpret_cast<const Pixel*>(from);
    CONVGRAD_UNROLL
    for (int c = 0; c < kC; ++c) to[c] = convert<Acc>(pixel.channel[c]);
  }

  // A run of pixels without stride and dilation sees these of a row; neighbouring pixels see the
  // same values through neighbouring taps.
  static constexpr int kSeen = kStreamRun + kS - 1;
  using RunRow = Acc[kSeen][kC];
  CONVGRAD_HD static void read_row(const Scalar* x, RunRow& values) {
    CONVGRAD_UNROLL
    for (int j = 0; j < kSeen; ++j) read(x + j * kStreamLanes, values[j]);
  }
  CONVGRAD_HD static void add_row(const RunRow& values, int i, const Acc* dy, Regs& r) {
    CONVGRAD_UNROLL
    for (int s = 0; s < kS; ++s) {
      CONVGRAD_UNROLL
      for (int j = 0; j < kStreamRun; ++j) {
        CONVGRAD_UNROLL
        for (int c = 0; c < kC; ++c) r.sums.chunk[c * kR + i][s] += values[j + s][c] * dy[j];
      }
    }
  }

  // A warp's pixels of a unit are `rows` rows of kStreamRun columns.
  struct Band {
    const StreamStep& u;
    int top, rows, column;
    const Scalar *x, *dy;  // of the lane's channels: of the run's first column in the ring, of dy
    int at;                // of the first row of x, in the ring's elements
  };

  // Adds without strides and dilations. Rows of x stay in registers while the taps' rows pass them,
  // if there are registers for kR of them.
  static constexpr bool kKeep = kC == 1 && kR * sizeof(Acc) <= 24;
  CONVGRAD_HD static void add_fast(const Params& p, const Band& band, Regs& r) {
    const int line = p.x_line(), end = p.unit.ring * line, dy_line = p.dy_line();
    const auto wrapped = [&](int at) { return at < end ? at : at - end; };
    const Scalar* dy = band.dy;
    int at = band.at;
    RunRow values[kKeep ? kR : 1];
    if constexpr (kKeep) {
      CONVGRAD_UNROLL
      for (int i = 0; i < kR - 1; ++i, at = wrapped(at + line)) read_row(band.x + at, values[i]);
    }
    for (int row = 0; row < band.rows;) {
      // The loop takes as many rows as there are in registers, which then are where they have been.
      CONVGRAD_UNROLL
      for (int phase = 0; phase < (kKeep ? kR : 1); ++phase) {
        if (row >= band.rows) return;
        Acc factor[kStreamRun];
        CONVGRAD_UNROLL
        for (int j = 0; j < kStreamRun; ++j) factor[j] = convert<Acc>(dy[j * kStreamLanes]);
        if constexpr (kKeep) read_row(band.x + at, values[(phase + kR - 1) % kR]);
        CONVGRAD_UNROLL
        for (int i = 0; i < kR; ++i) {
          if constexpr (!kKeep) read_row(band.x + wrapped(at + i * line), values[0]);
          add_row(values[kKeep ? (phase + i) % kR : 0], i, factor, r);
        }
        dy += dy_line;
        at = wrapped(at + line);
        ++row;
      }
    }
  }

  // Adds for any strides and dilations.
  CONVGRAD_HD static void add_any(const Params& p, const Band& band, Regs& r) {
    const Axis* axis = p.work.shape.axis;
    const int line = p.x_line(), end = p.unit.ring * line;
    const auto wrapped = [&](int at) { return at < end ? at : at - end; };
    const Scalar* dy = band.dy;
    int at = band.at;
    for (int row = 0; row < band.rows; ++row) {
      Acc factor[kStreamRun];
      CONVGRAD_UNROLL
      for (int j = 0; j < kStreamRun; ++j) factor[j] = convert<Acc>(dy[j * p.unit.dy.pitch]);
      CONVGRAD_UNROLL
      for (int i = 0; i < kR; ++i) {
        const Scalar* x = band.x + wrapped(at + i * axis[1].dilation * line);
        // opaque() keeps the addresses of all taps from being kept in registers.
        const int step = opaque(axis[2].stride) * p.unit.x.pitch,
                  apart = opaque(axis[2].dilation) * p.unit.x.pitch;
        CONVGRAD_UNROLL
        for (int s = 0; s < kS; ++s) {
          CONVGRAD_UNROLL
          for (int j = 0; j < kStreamRun; ++j) {
            Acc value[kC];
            read(x + j * step + s * apart, value);
            CONVGRAD_UNROLL
            for (int c = 0; c < kC; ++c) r.sums.chunk[c * kR + i][s] += value[c] * factor[j];
          }
        }
      }
      dy += p.dy_line();
      at = wrapped(at + axis[1].stride * line);
    }
  }

  // Every warp takes each kStreamWarps-th run: which sums a pixel's products are added to follows
  // from its place in the unit alone. Lanes of one group read the same x, which shared memory
  // broadcasts, others neighbouring channels.
  CONVGRAD_HD static void multiply(const Params& p, const StreamTile& tile, const StreamStep& u,
                                   int thread, const Scalar* memory, Regs& r) {
    const int lane = thread % kStreamLanes, stride = p.work.shape.axis[2].stride;
    if (tile.k + lane >= p.work.shape.K) return;
    const int width = ceil_div(u.columns, kStreamRun) * kStreamRun;
    Band band = {u, 0, 0, thread / kStreamLanes * kStreamRun, nullptr, nullptr, 0};
    for (;; band.column += kStreamWarps * kStreamRun) {
      for (; band.column >= width; band.column -= width) band.top += p.unit.band;
      if (band.top >= u.rows) return;
      band.rows = least(p.unit.band, u.rows - band.top);
      band.x = memory + r.channel + band.column * stride * p.unit.x.pitch;
      band.at = p.ring_place(u.first + band.top * p.work.shape.axis[1].stride) * p.x_line();
      band.dy = memory + p.dy_begin(u.buffer) + band.top * p.dy_line() +
                band.column * p.unit.dy.pitch + lane;
      if (p.unit.fast) {
        add_fast(p, band, r);
      } else {
        add_any(p, band, r);
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

  // Adds the warps' sums of the chunk, those of kStreamWarps elements at a time, as many as there
  // are warps to add them. The order of warps fixes the bits. A barrier a round suffices, as rounds
  // take two places in turn.
  template <class Block>
  CONVGRAD_HD static void add_warps(Block& block) {
    auto& exchange = block.shared.exchange;
    Sums& sums = block.regs.sums;
    const int warp = block.thread() / kStreamLanes, lane = block.thread() % kStreamLanes;
    CONVGRAD_UNROLL
    for (int round = 0; round < kRounds; ++round) {
      CONVGRAD_UNROLL
      for (int i = 0; i < kStreamWarps; ++i) {
        const int v = round * kStreamWarps + i;
        if (v < kSums) exchange[round % 2][warp][i][lane] = sums.chunk[v / kS][v % kS];
      }
      block.sync();
      if (round * kStreamWarps + warp >= kSums) continue;
      Acc sum = exchange[round % 2][0][warp][lane];
      CONVGRAD_UNROLL
      for (int i = 1; i < kStreamWarps; ++i) sum += exchange[round % 2][i][warp][lane];
      sums.total[round].add(sum);
    }
  }

  // Begins to copy the unit, if any. It is one group always, as wait_copies() counts groups.
  template <class Block>
  CONVGRAD_HD static void issue(Block& block, const Params& p, const StreamTile& tile,
                                const Walker& load) {
    if (!load.done()) {
      Scalar* memory = block.shared.memory;
      Load::x(block, p, tile, load.step, memory);
      Load::dy(block, p, tile, load.step, memory + p.dy_begin(load.step.buffer));
    }
    block.commit_copies();
  }

  // Sums the chunk with which so many are left once more, by the first warp alone.
  CONVGRAD_HD static void replace_infinite(const BlockParams& w, const StreamTile& tile,
                                           std::int64_t task, int left, int thread, Sums& sums) {
    ChunkWalker chunk(w, task);
    CONVGRAD_NO_UNROLL
    while (chunk.left > left) chunk.next();
    const Shape& shape = w.shape;
    const auto find = [&](int own, int i, int s_at) {
      const std::int64_t k = tile.k + own % kStreamLanes;
      const int c = tile.c + i / kR, r = tile.r + i % kR, s = tile.s + s_at;
      const int R = shape.axis[1].taps, S = shape.axis[2].taps;
      return DwElement{static_cast<int>(k / shape.group_k), (tile.t * R + r) * S + s, c,
                       static_cast<int>(k % shape.group_k),
                       own < kStreamLanes && k < shape.K && c < shape.group_c && r < R && s < S};
    };
    sum_again<Scalar>(w, chunk.box, thread, sums, find);
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const BlockParams& w = p.work;
    const ChunkWalker first(w, task);
    if (first.done()) return;
    Regs& r = block.regs;
    const int thread = block.thread();
    const StreamTile tile = stream_tile(p, kR, kS, kC, task);
    r.sums.load(w.begins(first.slice), address_of(w, tile, first.slice, thread));
    r.sums.clear();
    r.channel = ((tile.k + thread % kStreamLanes) / w.shape.group_k - tile.group) * kC;
    Walker load(p, first);
    issue(block, p, tile, load);
    while (!load.done()) {
      const StreamStep now = load.step;
      const int left = load.left;
      load.next();
      issue(block, p, tile, load);
      block.template wait_copies<1>();
      block.sync();
      multiply(p, tile, now, thread, block.shared.memory, r);
      block.sync();
      if (load.left == left) continue;
      if (block.any(!r.sums.all_finite())) {
        replace_infinite(w, tile, task, left, thread, r.sums);
      }
      add_warps(block);
      r.sums.clear();
    }
    r.sums.store(address_of(w, tile, load.slice, thread));
  }
};

}  // namespace convgrad::cuda
