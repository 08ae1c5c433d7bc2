// streaming.hpp - computes depthwise and small groups: what is read of x and dy serves all taps.
//
// A block of threads has 32 output channels, one in each lane, and up to kR x kS taps of kC input
// channels of each one's group in registers. It goes through the chunks of one slice: warps take
// runs of neighbouring columns of a chunk in turn, and go down them row by row. After a chunk the
// warps' sums are added in order. Channels are contiguous (pack.hpp), so that lanes read neighbours
// from device memory; what other runs read once more is in the L1 cache, and no copy is needed.
//
// What is outside x or dy is 0 in registers, which makes its product 0 unless the other factor is
// not finite (sum_again.hpp).
//
// A group's matrix is too small for a GEMM tile here, and each value of x is multiplied with few of
// dy: what limits is loading, so a value is loaded once for all taps. Registers limit the taps: up
// to 7 x 7 sums a lane. Pairs of all taps would be twice as many, so each warp keeps the pairs of
// its share of them, and warps' sums meet in shared memory once a chunk.
#pragma once

#include "cuda/kernels/sum_again.hpp"

namespace convgrad::cuda {

inline constexpr int kStreamLanes = kWarp, kStreamWarps = 8;
// A warp multiplies so many neighbouring pixels of a row at a time, and kRows rows: for 3 x 3 taps
// 6 rows of 10 values of x serve 4 x 8 pixels. Longer runs leave more pixels over at the ends of
// rows. It goes down at most so many rows: each warp waits for its loads, so there must be many.
inline constexpr int kStreamRun = 8, kStreamDown = 8;

struct StreamParams {
  BlockParams work;
  int k_tiles, c_tiles, r_tiles, s_tiles;
};

struct StreamTile {
  int t, r, s, c, k;  // the first of each; c within a group
};

CONVGRAD_HD StreamTile stream_tile(const StreamParams& p, int rows, int columns, int channels,
                                   std::int64_t task) {
  std::int64_t rest = p.work.tile_of(task);
  StreamTile tile;
  tile.k = static_cast<int>(rest % p.k_tiles) * kStreamLanes;
  rest /= p.k_tiles;
  tile.c = static_cast<int>(rest % p.c_tiles) * channels;
  rest /= p.c_tiles;
  tile.s = static_cast<int>(rest % p.s_tiles) * columns;
  rest /= p.s_tiles;
  tile.r = static_cast<int>(rest % p.r_tiles) * rows;
  tile.t = static_cast<int>(rest / p.r_tiles);
  return tile;
}

template <typename Scalar, int kR, int kS, int kC>
struct Streaming {
  using Acc = typename AccumulatorOf<Scalar>::type;
  static constexpr int kThreads = kStreamLanes * kStreamWarps;
  static constexpr int kSums = kR * kS * kC;
  static constexpr std::int64_t kItem = sizeof(Scalar);
  // Registers must suffice for so many blocks of a multiprocessor.
  static constexpr int kLeastBlocks = kSums * sizeof(Acc) <= 36 ? 2 : 1;
  static constexpr int kRounds = (kSums + kStreamWarps - 1) / kStreamWarps;
  using Sums = TileSums<Acc, kC * kR, kS, kRounds>;

  using Params = StreamParams;
  struct Regs {
    // These are sums of this warp's pixels of the chunk for all taps of kC channels, but pairs of
    // the slice only for every kStreamWarps-th of them: each warp keeps its share of the block's.
    Sums sums;
  };
  struct Shared {
    Acc exchange[2][kStreamWarps][kStreamWarps][kStreamLanes];  // two rounds of the warps' sums
  };

  // Channels that are read together, as they are neighbours and begin at multiples of kCount
  // (choices.cpp).
  template <int kCount>
  struct alignas(sizeof(Scalar) * kCount < 16 ? sizeof(Scalar) * kCount : 16) Pixel {
    Scalar channel[kCount];
  };
  template <int kCount>
  CONVGRAD_HD static void read(const unsigned char* from, bool there, Acc (&to)[kCount]) {
    Pixel<kCount> pixel{};
    if (there) pixel = *in_global<Pixel<kCount>>(from);
    CONVGRAD_UNROLL
    for (int c = 0; c < kCount; ++c) to[c] = convert<Acc>(pixel.channel[c]);
  }
  // Reads pixels that are `step` bytes apart; bit j of `there` is pixel number j's.
  template <int kPixels, int kCount>
  CONVGRAD_HD static void read_row(const unsigned char* from, std::uint32_t step, unsigned there,
                                   Acc (&to)[kPixels][kCount]) {
    CONVGRAD_UNROLL
    for (int j = 0; j < kPixels; ++j) {
      read(from + static_cast<std::uint64_t>(step) * j, (there >> j & 1u) != 0, to[j]);
    }
  }

  // A lane's run: where its channels are of the first pixel in dy, and of that pixel's first tap in
  // x, whose position is (row, column). Pixels beyond `columns` are another run's, or none.
  struct Run {
    const unsigned char *x, *dy;
    std::int64_t x_line, dy_line;  // bytes from row to row
    std::uint32_t x_step, dy_step;
    int row, column, rows, columns;
  };

  // Adds without strides and dilations: neighbouring pixels see the same values through
  // neighbouring taps.
  static constexpr int kRows = sizeof(Acc) == 8 ? 2 : 4, kSeen = kStreamRun + kS - 1;
  CONVGRAD_HD static void add_dense(const View& view, const Run& run, Sums& sums) {
    const int lo = view.lo[2] - run.column, hi = least(view.hi[2] - run.column, kSeen);
    const unsigned columns = hi <= 0 ? 0 : (1u << hi) - (lo <= 0 ? 1u : 1u << least(lo, hi));
    CONVGRAD_NO_UNROLL
    for (int top = 0; top < run.rows; top += kRows) {
      Acc dy[kRows][kStreamRun][1];
      CONVGRAD_UNROLL
      for (int down = 0; down < kRows; ++down) {
        const int there = top + down < run.rows ? least(run.columns, kStreamRun) : 0;
        read_row(run.dy + (top + down) * run.dy_line, run.dy_step, (1u << there) - 1, dy[down]);
      }
      // Two rows at a time, whose loads are under way together; for more there are no registers.
      static_assert((kR + kRows) % 2 == 1);
      CONVGRAD_UNROLL
      for (int i = 0; i < kR + kRows - 1; i += 2) {
        const int row = run.row + top + i;
        if (row + 1 < view.lo[1] || row >= view.hi[1]) continue;
        Acc x[2][kSeen][kC];
        CONVGRAD_UNROLL
        for (int j = 0; j < 2; ++j) {
          const bool inside = row + j >= view.lo[1] && row + j < view.hi[1];
          read_row(run.x + (top + i + j) * run.x_line, run.x_step, inside ? columns : 0, x[j]);
        }
        CONVGRAD_UNROLL
        for (int at = 0; at < 2 * kRows; ++at) {
          const int j = at / kRows, down = at % kRows, r = i + j - down;
          if (r >= 0 && r < kR) add_row(x[j], dy[down], sums, r);
        }
      }
    }
  }
  CONVGRAD_HD static void add_row(const Acc (&x)[kSeen][kC], const Acc (&dy)[kStreamRun][1],
                                  Sums& sums, int r) {
    CONVGRAD_UNROLL
    for (int s = 0; s < kS; ++s) {
      CONVGRAD_UNROLL
      for (int j = 0; j < kStreamRun; ++j) {
        CONVGRAD_UNROLL
        for (int c = 0; c < kC; ++c) sums.chunk[c * kR + r][s] += x[j + s][c] * dy[j][0];
      }
    }
  }

  // Adds for any strides and dilations, kRows pixels at a time, whose loads are under way together.
  CONVGRAD_HD static void add_any(const BlockParams& w, const Run& run, Sums& sums) {
    const Axis &h = w.shape.axis[1], &q = w.shape.axis[2];
    const int columns = least(run.columns, kStreamRun);
    const std::int64_t step = run.x_step;
    const int groups = ceil_div(columns, kRows);
    CONVGRAD_NO_UNROLL
    for (int i = 0; i < run.rows * groups; ++i) {
      const int down = i / groups, right = i % groups * kRows;
      Acc dy[kRows][1];
      read_row(run.dy + down * run.dy_line + std::int64_t{run.dy_step} * right, run.dy_step,
               (1u << least(columns - right, kRows)) - 1, dy);
      CONVGRAD_UNROLL
      for (int r = 0; r < kR; ++r) {
        const int row = down * h.stride + r * h.dilation;
        if (run.row + row < w.x.lo[1] || run.row + row >= w.x.hi[1]) continue;
        Acc x[kRows][kS][kC];
        CONVGRAD_UNROLL
        for (int j = 0; j < kRows; ++j) {
          CONVGRAD_UNROLL
          for (int s = 0; s < kS; ++s) {
            const int column = (right + j) * q.stride + s * q.dilation;
            const bool there = right + j < columns && run.column + column >= w.x.lo[2] &&
                               run.column + column < w.x.hi[2];
            read(run.x + row * run.x_line + step * column, there, x[j][s]);
          }
        }
        CONVGRAD_UNROLL
        for (int j = 0; j < kRows; ++j) {
          CONVGRAD_UNROLL
          for (int s = 0; s < kS; ++s) {
            CONVGRAD_UNROLL
            for (int c = 0; c < kC; ++c) sums.chunk[c * kR + r][s] += x[j][s][c] * dy[j][0];
          }
        }
      }
    }
  }

  // Every warp takes each kStreamWarps-th run: which sums a pixel's products are added to follows
  // from its place in the chunk alone. Lanes of one group read the same x, others neighbours.
  CONVGRAD_HD static void add_runs(const BlockParams& w, const StreamTile& tile, const Box& box,
                                   int thread, Sums& sums) {
    const Axis* axis = w.shape.axis;
    const int k = tile.k + thread % kStreamLanes, group = k / w.shape.group_k;
    if (k >= w.shape.K) return;
    const bool dense = axis[1].stride == 1 && axis[1].dilation == 1 && axis[2].stride == 1 &&
                       axis[2].dilation == 1;
    const int in_row = ceil_div(box.size[3], kStreamRun);
    const int in_plane = in_row * ceil_div(box.size[2], kStreamDown);
    const int runs = box.size[0] * box.size[1] * in_plane;
    for (int i = thread / kStreamLanes; i < runs; i += kStreamWarps) {
      const int q = i % in_row * kStreamRun, top = i % in_plane / in_row * kStreamDown;
      const int plane = i / in_plane;
      const int out[3] = {box.begin[0] + plane % box.size[1], box.begin[1] + top, box.begin[2] + q};
      const std::int64_t n = box.n + plane / box.size[1];
      const int d = axis[0].first_input(out[0]) + tile.t * axis[0].dilation;
      if (d < w.x.lo[0] || d >= w.x.hi[0]) continue;
      Run run;
      run.row = axis[1].first_input(out[1]) + tile.r * axis[1].dilation;
      run.column = axis[2].first_input(out[2]) + tile.s * axis[2].dilation;
      run.rows = least(box.size[2] - top, kStreamDown);
      run.columns = box.size[3] - q;
      const std::int64_t x = w.x.pixel(n, d, run.row, run.column) + w.x.channel(group, tile.c),
                         dy = w.dy.pixel(n, out[0], out[1], out[2]) + k;
      run.x = static_cast<const unsigned char*>(w.x.data) + x * kItem;
      run.dy = static_cast<const unsigned char*>(w.dy.data) + dy * kItem;
      run.x_line = w.x.spatial[1] * kItem;
      run.dy_line = w.dy.spatial[1] * kItem;
      run.x_step = static_cast<std::uint32_t>(w.x.spatial[2] * kItem);
      run.dy_step = static_cast<std::uint32_t>(w.dy.spatial[2] * kItem);
      if (dense) {
        add_dense(w.x, run, sums);
      } else {
        add_any(w, run, sums);
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

  // Sums the chunk once more, by the first warp alone.
  CONVGRAD_HD static void replace_infinite(const BlockParams& w, const StreamTile& tile,
                                           const Box& box, int thread, Sums& sums) {
    const Shape& shape = w.shape;
    const auto find = [&](int own, int i, int s_at) {
      const std::int64_t k = tile.k + own % kStreamLanes;
      const int c = tile.c + i / kR, r = tile.r + i % kR, s = tile.s + s_at;
      const int R = shape.axis[1].taps, S = shape.axis[2].taps;
      return DwElement{static_cast<int>(k / shape.group_k), (tile.t * R + r) * S + s, c,
                       static_cast<int>(k % shape.group_k),
                       own < kStreamLanes && k < shape.K && c < shape.group_c && r < R && s < S};
    };
    sum_again<Scalar>(w, box, thread, sums, find);
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const BlockParams& w = p.work;
    ChunkWalker walk(w, task);
    if (walk.done()) return;
    Sums& sums = block.regs.sums;
    const StreamTile tile = stream_tile(p, kR, kS, kC, task);
    sums.load(w.begins(walk.slice), address_of(w, tile, walk.slice, block.thread()));
    for (; !walk.done(); walk.next()) {
      const Box box = walk.box();
      sums.clear();
      add_runs(w, tile, box, block.thread(), sums);
      if (block.any(!sums.all_finite())) replace_infinite(w, tile, box, block.thread(), sums);
      add_warps(block);
    }
    sums.store(address_of(w, tile, walk.slice, block.thread()));
  }
};

}  // namespace convgrad::cuda
