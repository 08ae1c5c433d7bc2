// streaming.hpp - computes depthwise and small groups: what is read of x and dy serves all taps.
//
// A block of threads has 32 output channels, one in each lane, and up to kR x kS taps of kC input
// channels of each one's group in registers. It goes through the chunks of one slice in strips of
// columns, and down a strip a unit at a time: a box of output pixels whose dy fits shared memory
// beside the rows of x that its taps see. Those are a ring: the rows that two units see stay there,
// and while a unit is multiplied, the next one is copied. Warps take runs of neighbouring columns
// of the unit in turn, and go down them. After a chunk the warps' sums are added in order.
//
// What is outside x or dy is 0 in shared memory, so nothing is checked for a product. Where other
// factors are not finite that is not enough: a chunk with a sum that is not finite is summed once
// more, without the products of padding and of pixels beyond the ends of rows.
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
  // [buffer][image][row][column][channel], as they are in device memory: threads convert what they
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
    int image, top, rows, column;
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

  // Adds for any strides and dilations; masked, only what is in x and the unit's columns.
  template <bool kMasked>
  CONVGRAD_HD static void add_any(const Params& p, const StreamTile& tile, const Band& band,
                                  Regs& r) {
    const Axis* axis = p.work.shape.axis;
    const int line = p.x_line(), end = p.unit.ring * line;
    const auto wrapped = [&](int at) { return at < end ? at : at - end; };
    const int d = axis[0].first_input(band.u.z) + tile.t * axis[0].dilation;
    const bool inside_d = d >= 0 && d < axis[0].in;
    const Scalar* dy = band.dy;
    int at = band.at;
    for (int row = 0; row < band.rows; ++row) {
      Acc factor[kStreamRun];
      CONVGRAD_UNROLL
      for (int j = 0; j < kStreamRun; ++j) factor[j] = convert<Acc>(dy[j * p.unit.dy.pitch]);
      CONVGRAD_UNROLL
      for (int i = 0; i < kR; ++i) {
        const Scalar* x = band.x + wrapped(at + i * axis[1].dilation * line);
        const int h =
            axis[1].first_input(band.u.p + band.top + row) + (tile.r + i) * axis[1].dilation;
        // opaque() keeps the addresses and positions of all taps from being kept in registers.
        const int stride = opaque(axis[2].stride), dilation = opaque(axis[2].dilation);
        const int step = stride * p.unit.x.pitch, apart = dilation * p.unit.x.pitch;
        const int w = axis[2].first_input(band.u.q + band.column) + tile.s * dilation;
        if (kMasked && (!inside_d || h < 0 || h >= axis[1].in)) continue;
        CONVGRAD_UNROLL
        for (int s = 0; s < kS; ++s) {
          CONVGRAD_UNROLL
          for (int j = 0; j < kStreamRun; ++j) {
            const int position = w + j * stride + s * dilation;
            const bool there =
                band.column + j < band.u.columns && position >= 0 && position < axis[2].in;
            if (kMasked && !there) continue;
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
                                   bool masked, int thread, const Scalar* memory, Regs& r) {
    const int lane = thread % kStreamLanes, stride = p.work.shape.axis[2].stride;
    if (tile.k + lane >= p.work.shape.K) return;
    const int width = ceil_div(u.columns, kStreamRun) * kStreamRun;
    Band band = {u, 0, 0, 0, thread / kStreamLanes * kStreamRun, nullptr, nullptr, 0};
    for (;; band.column += kStreamWarps * kStreamRun) {
      for (; band.column >= width; band.column -= width) {
        band.top += p.unit.band;
        if (band.top < u.rows) continue;
        band.top = 0;
        ++band.image;
      }
      if (band.image >= u.images) return;
      band.rows = least(p.unit.band, u.rows - band.top);
      band.x = memory + r.channel + band.column * stride * p.unit.x.pitch;
      band.at =
          p.ring_place(u.first + band.image * u.seen + band.top * p.work.shape.axis[1].stride) *
          p.x_line();
      band.dy = memory + p.dy_begin(u.buffer) + (band.image * u.rows + band.top) * p.dy_line() +
                band.column * p.unit.dy.pitch + lane;
      if (masked) {
        add_any<true>(p, tile, band, r);
      } else if (p.unit.fast) {
        add_fast(p, band, r);
      } else {
        add_any<false>(p, tile, band, r);
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
    CONVGRAD_UNROLL
    for (int round = 0; round < kRounds; ++round) {
      block.each([&](int thread, Regs& r) {
        const int warp = thread / kStreamLanes, lane = thread % kStreamLanes;
        CONVGRAD_UNROLL
        for (int i = 0; i < kStreamWarps; ++i) {
          const int v = round * kStreamWarps + i;
          if (v < kSums) exchange[round % 2][warp][i][lane] = r.sums.chunk[v / kS][v % kS];
        }
      });
      block.each_unsynced([&](int thread, Regs& r) {
        const int warp = thread / kStreamLanes, lane = thread % kStreamLanes;
        if (round * kStreamWarps + warp >= kSums) return;
        Acc sum = exchange[round % 2][0][warp][lane];
        CONVGRAD_UNROLL
        for (int i = 1; i < kStreamWarps; ++i) sum += exchange[round % 2][i][warp][lane];
        r.sums.total[round].add(sum);
      });
    }
  }

  // Begins to copy the unit, if any. It is one group always, as wait_copies() counts groups.
  template <class Block>
  CONVGRAD_HD static void issue(Block& block, const Params& p, const StreamTile& tile,
                                const Walker& load) {
    block.each_unsynced([&](int thread, Regs&) {
      if (!load.done()) {
        Scalar* memory = block.shared.memory;
        Load::x(block, p, tile, load.step, thread, memory);
        Load::dy(block, p, tile, load.step, thread, memory + p.dy_begin(load.step.buffer));
      }
      block.commit_copies(thread);
    });
  }

  // Adds the sums of a chunk to the slice's; false if it must be summed once more, masked.
  template <class Block>
  CONVGRAD_HD static bool end_chunk(Block& block, bool masked) {
    const bool again =
        !masked && block.each_any([](int, const Regs& r) { return !r.sums.all_finite(); });
    if (again) {
      // What has been copied of the next chunk will be copied again.
      block.each([&](int thread, Regs&) { block.template wait_copies<0>(thread); });
    } else {
      add_warps(block);
    }
    block.each_unsynced([](int, Regs& r) { r.sums.clear(); });
    return !again;
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const BlockParams& w = p.work;
    const ChunkWalker first(w, task);
    if (first.done()) return;
    const StreamTile tile = stream_tile(p, kR, kS, kC, task);
    block.each_unsynced([&](int thread, Regs& r) {
      r.sums.load(w.begins(first.slice), address_of(w, tile, first.slice, thread));
      r.sums.clear();
      r.channel = ((tile.k + thread % kStreamLanes) / w.shape.group_k - tile.group) * kC;
    });
    Walker load(p, first);
    int left = first.left;  // chunks, with that of `now`
    const bool ahead = p.unit.buffers > 1;
    bool loaded = false, masked = false;  // loaded: `now` is, while load is one ahead
    StreamStep now{};
    while (loaded || !load.done()) {
      issue(block, p, tile, load);
      if (!loaded) {
        now = load.step;
        load.next();
        loaded = ahead;
        if (ahead) continue;
      }
      block.each([&](int thread, Regs&) {
        if (ahead) {
          block.template wait_copies<1>(thread);
        } else {
          block.template wait_copies<0>(thread);
        }
      });
      block.each([&](int thread, Regs& r) {
        multiply(p, tile, now, masked, thread, block.shared.memory, r);
      });
      if (load.left != left) {
        masked = !end_chunk(block, masked);
        if (masked) {
          load.return_to(ChunkWalker(w, task), left);
          loaded = false;
          continue;
        }
        left = load.left;
      }
      loaded = ahead && !load.done();
      if (loaded) {
        now = load.step;
        load.next();
      }
    }
    block.each_unsynced(
        [&](int thread, Regs& r) { r.sums.store(address_of(w, tile, load.slice, thread)); });
  }
};

}  // namespace convgrad::cuda
