// depthwise.hpp - computes depthwise and small groups: a value of x or dy that is in shared memory
// once serves all taps.
//
// A block of threads has a panel of output channels, kWide neighbours in each lane, and up to
// kR x kS taps of kC input channels of each one's group, summed in registers through a whole chunk.
// It goes through the chunks of one slice in steps: a few rows of a column of tiles, of one plane
// or of several small ones. The lines of x that a step adds to those of the one before, and its
// lines of dy, are copied into rings in shared memory (depthwise_lines.hpp) while the steps before
// are multiplied. Warps take strips of kStrip neighbouring pixels, and their sums are added in
// order after a chunk.
//
// A group's matrix is too small for a GEMM's tile, and each value of x meets few of dy: loading
// limits, so device memory is read once, 16 bytes at a time, and shared memory once for several
// taps and rows. Registers limit the taps: up to 7 x 7 sums a lane. Pairs would be twice as many,
// so each warp keeps those of its share of all taps.
//
// What is outside x or dy is copied as 0, which makes its product 0 unless the other factor is not
// finite. That leaves a sum that is not finite: so sums are looked at, which is less than all data,
// and a chunk with one is summed again by the definition. This is slow, and meant to be rare.
#pragma once

#include "cuda/kernels/depthwise_lines.hpp"

namespace convgrad::cuda {

struct DepthwiseParams {
  BlockParams work;
  int k_tiles, c_tiles, r_tiles, s_tiles;
  LineLayout layout;
  BulkLines bulk;
};

template <typename Scalar, int kR, int kS, int kC, int kWide>
struct Depthwise {
  using Acc = typename AccumulatorOf<Scalar>::type;
  static constexpr int kThreads = kWarp * kDepthwiseWarps;
  static constexpr int kX = kC * kWide;  // values of x that a lane reads together
  static constexpr int kSums = kR * kS * kX;
  static constexpr int kRows = strip_rows(kSums * sizeof(Acc));
  // Registers must suffice for so many blocks of a multiprocessor.
  static constexpr int kLeastBlocks = resident_blocks(kSums * sizeof(Acc));
  static constexpr int kRounds = ceil_div(kSums, kDepthwiseWarps);
  using Sums = TileSums<Acc, kX * kR, kS, kRounds>;

  using Params = DepthwiseParams;
  struct Regs {
    // Of this warp's pixels of the chunk for all taps of kX channels, but with the slice's pairs
    // only of its share of the block's: every kDepthwiseWarps-th.
    Sums sums;
  };
  // Steps' copies that are under way together arrive at barriers of their own.
  static constexpr int kBarriers = 4;
  static_assert(kBarriers > kLinesAhead);
  struct Shared {
    BulkBarrier arrived[kBarriers];
    union {
      alignas(kBulkAlignment) unsigned char rings[kRingBytes];
      Acc exchange[2][kDepthwiseWarps][kDepthwiseWarps][kWarp];  // two rounds of the warps' sums
    };
  };
  static int shared_bytes(const Params& p) {
    const auto least = static_cast<int>(sizeof(Shared::exchange));
    return kBulkAlignment + (p.layout.ring_bytes > least ? p.layout.ring_bytes : least);
  }
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static constexpr bool kInBulk = false;
#else
  static constexpr bool kInBulk = true;
#endif

  struct Tile {
    int t, r, s, c, k;  // the first of each; c within a group
  };
  CONVGRAD_HD static Tile tile_of(const Params& p, int number) {
    Tile tile;
    tile.k = take(number, p.k_tiles) * p.layout.panel;
    tile.c = take(number, p.c_tiles) * kC;
    tile.s = take(number, p.s_tiles) * kS;
    tile.r = take(number, p.r_tiles) * kR;
    tile.t = number;
    return tile;
  }

  // Channels that are read together, as they are neighbours and begin at multiples of kCount. Of
  // words, halves are taken here: the compiler would take them apart first.
  template <int kCount>
  CONVGRAD_HD static void read(const unsigned char* from, Acc (&to)[kCount]) {
    if constexpr (sizeof(Scalar) == 2 && kCount % 2 == 0) {
      struct alignas(2 * kCount) Words {
        std::uint32_t word[kCount / 2];
      };
      const auto words = *reinterpret_cast<const Words*>(from);
      CONVGRAD_UNROLL
      for (int c = 0; c < kCount; c += 2) {
        convert_pair(words.word[c / 2], Scalar{}, to[c], to[c + 1]);
      }
    } else {
      struct alignas(sizeof(Scalar) * kCount < 16 ? sizeof(Scalar) * kCount : 16) Pixel {
        Scalar channel[kCount];
      };
      const auto pixel = *reinterpret_cast<const Pixel*>(from);
      CONVGRAD_UNROLL
      for (int c = 0; c < kCount; ++c) to[c] = convert<Acc>(pixel.channel[c]);
    }
  }
  // Reads neighbours `pitch` bytes apart.
  template <int kPixels, int kCount>
  CONVGRAD_HD static void read_row(const unsigned char* from, int pitch,
                                   Acc (&to)[kPixels][kCount]) {
    CONVGRAD_UNROLL
    for (int j = 0; j < kPixels; ++j) read(from + j * pitch, to[j]);
  }

  // A lane's strip: where its channels are in its first line of dy, and in x's line at slot 0.
  struct Strip {
    const unsigned char *x, *dy;
    int slot;  // of the line that the strip's first row sees through the first tap

    CONVGRAD_HD const unsigned char* x_line(const LineLayout& l, int i) const {
      const int at = slot + i;
      return x + (at < l.x_slots ? at : at - l.x_slots) * l.x.line_bytes;
    }
  };

  CONVGRAD_HD static void add(const Acc (&x)[kX], const Acc (&dy)[kWide], Sums& sums, int r,
                              int s) {
    CONVGRAD_UNROLL
    for (int e = 0; e < kX; ++e) sums.chunk[e * kR + r][s] += x[e] * dy[e % kWide];
  }

  // Adds without strides and dilations: rows see lines that others see through other taps.
  CONVGRAD_HD static void add_dense(const LineLayout& l, const Strip& strip, Sums& sums) {
    Acc dy[kRows][kStrip][kWide];
    CONVGRAD_UNROLL
    for (int down = 0; down < kRows; ++down) {
      read_row(strip.dy + down * l.dy.line_bytes, l.dy.pitch, dy[down]);
    }
    CONVGRAD_UNROLL
    for (int i = 0; i < kR + kRows - 1; ++i) {
      if (i >= l.row_taps + kRows - 1) break;
      Acc x[kStrip + kS - 1][kX];
      read_row(strip.x_line(l, i), l.x.pitch, x);
      CONVGRAD_UNROLL
      for (int down = 0; down < kRows; ++down) {
        const int r = i - down;
        if (r < 0 || r >= kR) continue;
        CONVGRAD_UNROLL
        for (int s = 0; s < kS; ++s) {
          CONVGRAD_UNROLL
          for (int j = 0; j < kStrip; ++j) add(x[j + s], dy[down][j], sums, r, s);
        }
      }
    }
  }

  // Adds one row, for columns with stride 2.
  CONVGRAD_HD static void add_twice(const LineLayout& l, const Strip& strip, Sums& sums) {
    Acc dy[kStrip][kWide];
    read_row(strip.dy, l.dy.pitch, dy);
    CONVGRAD_UNROLL
    for (int r = 0; r < kR; ++r) {
      if (r >= l.row_taps) break;
      const unsigned char* const line = strip.x_line(l, r * l.row_tap);
      CONVGRAD_UNROLL
      for (int i = 0; i < 2 * kStrip + kS - 2; ++i) {
        Acc x[kX];
        read(line + i * l.x.pitch, x);
        CONVGRAD_UNROLL
        for (int s = i % 2; s < kS; s += 2) {
          const int j = (i - s) / 2;
          if (i >= s && j < kStrip) add(x, dy[j], sums, r, s);
        }
      }
    }
  }

  // Adds one row for any columns: each tap's are neighbours, column_tap behind the tap's before.
  CONVGRAD_HD static void add_any(const LineLayout& l, const Strip& strip, Sums& sums) {
    Acc dy[kStrip][kWide];
    read_row(strip.dy, l.dy.pitch, dy);
    CONVGRAD_UNROLL
    for (int r = 0; r < kR; ++r) {
      if (r >= l.row_taps) break;
      const unsigned char* from = strip.x_line(l, r * l.row_tap);
      CONVGRAD_UNROLL
      for (int s = 0; s < kS; ++s) {
        if (s >= l.column_taps) break;
        CONVGRAD_UNROLL
        for (int j = 0; j < kStrip; ++j) {
          Acc x[kX];
          read(from + j * l.x.pitch, x);
          add(x, dy[j], sums, r, s);
        }
        from += l.column_tap * l.x.pitch;
      }
    }
  }

  // Every warp takes each kDepthwiseWarps-th strip of a step: which sums a pixel's products are
  // added to follows from its place in the chunk alone.
  CONVGRAD_HD static void add_step(const LineLayout& l, const Box& box, const LineCursor& at,
                                   const unsigned char* x, const unsigned char* dy, int warp,
                                   Sums& sums) {
    const int strips = l.strips * l.row_units * l.planes;
    CONVGRAD_NO_UNROLL
    for (int i = warp; i < strips; i += kDepthwiseWarps) {
      const int unit_plane = l.by_strips.quotient(i), column = (i - unit_plane * l.strips) * kStrip;
      const int plane = l.by_units.quotient(unit_plane);
      const int row = (unit_plane - plane * l.row_units) * l.unit_rows;
      if (at.plane + plane >= box.size[0] * box.size[1] || at.row + row >= box.size[2] ||
          at.column + column >= box.size[3]) {
        continue;
      }
      Strip strip;
      const int first = column * (l.kind == LineKind::twice ? 2 : 1);
      strip.x = x + (plane * l.x.columns + first) * l.x.pitch;
      strip.dy =
          dy + (at.dy_slot + row) * l.dy.line_bytes + (plane * l.dy.columns + column) * l.dy.pitch;
      strip.slot = at.x_slot + row * l.row_step;
      if (strip.slot >= l.x_slots) strip.slot -= l.x_slots;
      if (l.kind == LineKind::dense) {
        add_dense(l, strip, sums);
      } else if (l.kind == LineKind::twice) {
        add_twice(l, strip, sums);
      } else {
        add_any(l, strip, sums);
      }
    }
  }

  // Says where the lane's channels of x are in the panel's. Those of no output channel read
  // others', whose sums are not stored: all lanes read what has been copied.
  CONVGRAD_HD static int x_channel(const BlockParams& w, const Tile& tile, int first, int k) {
    const int last = static_cast<int>(w.shape.K - 1) / kWide * kWide;
    return static_cast<int>(w.x.channel(least(k, last) / w.shape.group_k, tile.c)) - first;
  }

  template <class Block>
  CONVGRAD_HD static void copy_step(Block& block, const Params& p, const LineCopies<Scalar>& copies,
                                    const LineCursor& at, unsigned char* x, unsigned char* dy,
                                    unsigned step) {
    if constexpr (kInBulk) {
      if (p.bulk.used) {
        BulkBarrier& arrived = block.shared.arrived[step % kBarriers];
        return copies.copy_step_in_bulk(block, p.bulk, at, x, dy, arrived);
      }
    }
    copies.copy_step(block, at, x, dy);
  }

  // step counts the block's steps.
  template <class Block>
  CONVGRAD_HD static void add_chunk(Block& block, const Params& p, const Tile& tile, const Box& box,
                                    unsigned& step) {
    const LineLayout& l = p.layout;
    const BlockParams& w = p.work;
    const Axis* axis = w.shape.axis;
    constexpr int kVector = kVectorBytes / static_cast<int>(sizeof(Scalar));
    // Panels of x begin with whole vectors.
    const int x_first =
        static_cast<int>(w.x.channel(tile.k / w.shape.group_k, tile.c)) / kVector * kVector;
    LineCopies<Scalar> copies{w, l, box, x_first, tile.k};
    for (int a = 0; a < 3; ++a) {
      const int tap = a == 0 ? tile.t : a == 1 ? tile.r : tile.s;
      copies.x_start[a] = axis[a].first_input(box.begin[a]) + tap * axis[a].dilation;
    }
    unsigned char *const x = block.shared.rings, *const dy = x + l.x_slots * l.x.line_bytes;
    const int warp = block.thread() / kWarp, own = block.thread() % kWarp * kWide;
    const int lane = own < l.panel ? own : 0;
    const int x_lane =
        x_channel(w, tile, x_first, tile.k + lane) * static_cast<int>(sizeof(Scalar));
    const int dy_lane = lane * static_cast<int>(sizeof(Scalar));
    LineCursor now{}, next{};
    int early = l.ahead;  // steps to copy before the first is added
    const bool bulk = kInBulk && p.bulk.used;
    unsigned copied = step;
    while (!now.done(box)) {
      if (early == 0) {
        if (!bulk && l.ahead > 0) block.template wait_copies<kLinesAhead - 1>();
        // All are done with the lines that are replaced, and have this step's if threads copy them.
        block.sync();
      }
      if (!next.done(box)) {
        copy_step(block, p, copies, next, x, dy, copied++);
        next.advance(l, box);
      }
      if (!bulk) block.commit_copies();
      if (early > 0) {
        --early;
        continue;
      }
      if constexpr (kInBulk) {
        if (bulk) block.wait_bulk(block.shared.arrived[step % kBarriers], step / kBarriers % 2);
      }
      ++step;
      if (l.ahead == 0) {
        block.template wait_copies<0>();
        block.sync();
      }
      add_step(l, box, now, x + x_lane, dy + dy_lane, warp, block.regs.sums);
      now.advance(l, box);
    }
  }

  // Sums the chunk once more by the definition, pixel by pixel from device memory.
  CONVGRAD_HD static void add_again(const BlockParams& w, const LineLayout& l, const Tile& tile,
                                    const Box& box, int thread, Sums& sums) {
    const int own = thread % kWarp * kWide, lane = own < l.panel ? own : 0, k = tile.k + lane;
    const TapStart start(w.shape,
                         (tile.t * w.shape.axis[1].taps + tile.r) * w.shape.axis[2].taps + tile.s);
    const auto* const from = static_cast<const Scalar*>(w.x.data) + x_channel(w, tile, 0, k);
    const int pixels = box.pixels(), R = w.shape.axis[1].dilation, S = w.shape.axis[2].dilation;
    sums.clear();
    CONVGRAD_NO_UNROLL
    for (int i = thread / kWarp; i < pixels && k < w.shape.K; i += kDepthwiseWarps) {
      int image, out[3], in[3];
      w.chunks.pixel(box, i, image, out);
      tap_input(w.shape, start, out, in);
      if (in[0] < w.x.lo[0] || in[0] >= w.x.hi[0]) continue;
      const std::int64_t n = box.n + image;
      const auto* const dy =
          static_cast<const Scalar*>(w.dy.data) + w.dy.pixel(n, out[0], out[1], out[2]) + k;
      Acc value[kWide];
      CONVGRAD_UNROLL
      for (int e = 0; e < kWide; ++e) value[e] = convert<Acc>(dy[e]);
      CONVGRAD_UNROLL
      for (int tap = 0; tap < kR * kS; ++tap) {
        const int row = in[1] + tap / kS * R, column = in[2] + tap % kS * S;
        if (row < w.x.lo[1] || row >= w.x.hi[1] || column < w.x.lo[2] || column >= w.x.hi[2] ||
            tap / kS >= l.row_taps || tap % kS >= l.column_taps) {
          continue;
        }
        const Scalar* const x = from + w.x.pixel(n, in[0], row, column);
        Acc both[kX];
        CONVGRAD_UNROLL
        for (int e = 0; e < kX; ++e) both[e] = convert<Acc>(x[e]);
        add(both, value, sums, tap / kS, tap % kS);
      }
    }
  }

  // A thread's pair number i is that of sum i * kDepthwiseWarps + its warp, of its lane's channels.
  CONVGRAD_HD static auto address_of(const Params& p, const Tile& tile, std::int64_t slice,
                                     int thread) {
    return [&p, tile, slice, thread = opaque(thread)](int i) -> Sum<Acc>* {
      const DwElement to = element(p, tile, thread, i * kDepthwiseWarps + thread / kWarp);
      if (!to.there) return nullptr;
      const Shape& shape = p.work.shape;
      return p.work.template sum_at<Acc>(
          slice, static_cast<std::int64_t>(to.tap) * shape.group_c + to.c,
          static_cast<std::int64_t>(to.group) * shape.group_k + to.k);
    };
  }
  // Is an element of dw, c and k within its group; `there` is false beyond dw.
  struct DwElement {
    int group, tap, c, k;
    bool there;
  };
  // Finds the element of the lane's sum number v.
  CONVGRAD_HD static DwElement element(const Params& p, const Tile& tile, int thread, int v) {
    const Shape& shape = p.work.shape;
    const int e = v / (kR * kS), r = tile.r + v / kS % kR, s = tile.s + v % kS;
    const int in_panel = thread % kWarp * kWide + e % kWide, k = tile.k + in_panel;
    const int c = tile.c + e / kWide, R = shape.axis[1].taps, S = shape.axis[2].taps;
    return {k / shape.group_k, (tile.t * R + r) * S + s, c, k % shape.group_k,
            v < kSums && in_panel < p.layout.panel && k < shape.K && c < shape.group_c && r < R &&
                s < S};
  }

  // Adds the warps' sums of the chunk, each warp those of an element at a time. The order of warps
  // fixes the bits. A barrier a round suffices, as rounds take two places in turn.
  template <class Block>
  CONVGRAD_HD static void add_warps(Block& block) {
    auto& exchange = block.shared.exchange;
    Sums& sums = block.regs.sums;
    const int warp = block.thread() / kWarp, lane = block.thread() % kWarp;
    CONVGRAD_UNROLL
    for (int round = 0; round < kRounds; ++round) {
      CONVGRAD_UNROLL
      for (int i = 0; i < kDepthwiseWarps; ++i) {
        const int v = round * kDepthwiseWarps + i;
        if (v < kSums) exchange[round % 2][warp][i][lane] = sums.chunk[v / kS][v % kS];
      }
      block.sync();
      if (round * kDepthwiseWarps + warp >= kSums) continue;
      Acc sum = exchange[round % 2][0][warp][lane];
      CONVGRAD_UNROLL
      for (int i = 1; i < kDepthwiseWarps; ++i) sum += exchange[round % 2][i][warp][lane];
      sums.total[round].add(sum);
    }
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const BlockParams& w = p.work;
    ChunkWalker walk(w, task);
    if (walk.done()) return;
    Sums& sums = block.regs.sums;
    const auto number = static_cast<int>(w.tile_of(task));
    bool first = w.begins(walk.slice);
    unsigned step = 0;
    if constexpr (kInBulk) {
      if (p.bulk.used) {
        if (block.thread() == 0) {
          block.init_barriers(block.shared.arrived, p.bulk.copiers());
          block.fence_barriers();
        }
        block.sync();
      }
    }
    while (true) {
      const Box box = walk.box();
      sums.clear();
      add_chunk(block, p, tile_of(p, number), box, step);
      const Tile tile = tile_of(p, opaque(number));  // is not kept in registers meanwhile
      // Is the barrier between the last step and the exchange in the same memory, too.
      if (block.any(!sums.all_finite())) add_again(w, p.layout, tile, box, block.thread(), sums);
      // Pairs wait in device memory until here: there are no registers for them in the loops.
      sums.load(first, address_of(p, tile, walk.slice, block.thread()));
      add_warps(block);
      sums.store(address_of(p, tile, walk.slice, block.thread()));
      first = false;
      walk.next();
      if (walk.done()) return;
      if constexpr (kInBulk) block.fence_async_proxy();  // bulk copies overwrite the exchange
      block.sync();
    }
  }
};

}  // namespace convgrad::cuda
