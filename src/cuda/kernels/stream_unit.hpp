// stream_unit.hpp - the units of cuda_streaming: which outputs are worked on at a time, and how
// what they need comes to shared memory.
#pragma once

#include "cuda/kernels/chunk_walker.hpp"

namespace convgrad::cuda {

inline constexpr int kStreamLanes = kWarp;
// 256 threads with up to 128 registers each are half of a multiprocessor's 65536.
inline constexpr int kStreamWarps = 8;
// Neighbouring pixels of a row that share loads: for kS taps, kStreamRun + kS - 1 values of x serve
// kStreamRun * kS products. Longer runs save little more, leave more pixels over at the ends of
// rows, and take registers from the sums.
inline constexpr int kStreamRun = 4;
// Of shared memory: below the 48 KiB that every device gives without being asked, so that two
// blocks are on a multiprocessor of most devices, and one loads while the other multiplies.
inline constexpr int kStreamBytes = 44 * 1024;
// Of a pixel's dy in shared memory. Odd, so that lanes that store a row of pixels (channels first)
// meet different banks, as lanes that read the channels of a pixel do.
inline constexpr int kStreamPitch = kStreamLanes + 1;

// The outputs that are worked on at a time, and what they see of each image of x. Chosen on the
// host, so that both fit kStreamBytes (choices.cpp).
struct StreamUnit {
  int images, rows, columns;
  int ring;  // rows of x
  int patch_columns;
};

struct StreamParams {
  BlockParams work;
  StreamUnit unit;
  int k_tiles, c_tiles, r_tiles, s_tiles;
  int x_channels;  // of the groups that 32 output channels belong to, kC of each

  // Of a pixel of x in shared memory; odd, as kStreamPitch is.
  CONVGRAD_HD int x_pitch() const { return x_channels | 1; }
  CONVGRAD_HD int patch_pixels() const { return unit.images * unit.ring * unit.patch_columns; }
  // The place in the ring of a row that is less than the ring's length behind one with place i. No
  // remainder, which would be a division for every row of taps.
  CONVGRAD_HD int ring_place(int i) const { return i < unit.ring ? i : i - unit.ring; }
};

// One task's part of dw.
struct StreamTile {
  int t, r, s, c, k;  // the first of each; c within a group
  int group;          // of k
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
  tile.group = tile.k / p.work.shape.group_k;
  return tile;
}

// One unit of a task's pixels.
struct StreamStep {
  std::int64_t n;
  int images, z, p, rows, q, columns;
  int strip;  // its first p
  // Rows of x, from the strip's first on: seen from, loaded from and up to.
  int first, begin, end;

  // To the next unit of a strip, as a filter's rows see it; `end` is what has been loaded of it.
  CONVGRAD_HD void move_down(const Axis& h, int filter_rows, int row, int count) {
    p = strip + row;
    rows = count;
    first = row * h.stride;
    begin = first < end ? end : first;
    end = first + (rows - 1) * h.stride + (filter_rows - 1) * h.dilation + 1;
  }
};

// Loads of a unit for tiles of kC input channels a group. Values are converted here, once: every
// value of x serves all taps of up to 32 output channels, every one of dy all taps.
template <typename Scalar, int kC>
struct StreamLoad {
  using Acc = typename AccumulatorOf<Scalar>::type;

  // Where channel number j of the patch is in x; -1 if there is none.
  CONVGRAD_HD static std::int64_t x_channel(const BlockParams& w, const StreamTile& tile, int j) {
    const int group = tile.group + j / kC, c = tile.c + j % kC;
    if (group >= w.shape.groups || c >= w.shape.group_c) return -1;
    return (static_cast<std::int64_t>(group) * w.shape.group_c + c) * w.x.c_stride;
  }

  // The rows of x that the ring has not yet, a warp a row. A row of the patch is [column][channel]:
  // lanes that multiply differ in the channel, and each runs along the columns.
  CONVGRAD_HD static void patch(const StreamParams& p, const StreamTile& tile, const StreamStep& u,
                                int thread, Acc* memory) {
    const BlockParams& w = p.work;
    const auto* x = static_cast<const Scalar*>(w.x.data);
    const int warp = thread / kStreamLanes, lane = thread % kStreamLanes, pitch = p.x_pitch();
    const int d = w.shape.axis[0].first_input(u.z) + tile.t * w.shape.axis[0].dilation;
    const int h_first = w.shape.axis[1].first_input(u.strip) + tile.r * w.shape.axis[1].dilation;
    const int w_first = w.shape.axis[2].first_input(u.q) + tile.s * w.shape.axis[2].dilation;
    const int columns = p.unit.patch_columns, rows = u.end - u.begin;
    for (int i = warp; i < u.images * rows; i += kStreamWarps) {
      const int row = u.begin + i % rows, h = h_first + row, image = i / rows;
      const std::int64_t n = u.n + image;
      const bool inside_rows = d >= w.x.lo[0] && d < w.x.hi[0] && h >= w.x.lo[1] && h < w.x.hi[1];
      const std::int64_t start = inside_rows ? w.x.pixel(n, d, h, 0) : 0;
      Acc* to = memory + (image * p.unit.ring + row % p.unit.ring) * columns * pitch;
      // Lanes go along the axis that is contiguous in memory, the innermost loop along the other.
      const bool last = w.shape.channels_last;
      const int lanes = last ? p.x_channels : columns, steps = last ? columns : p.x_channels;
      for (int l = lane; l < lanes; l += kStreamLanes) {
        CONVGRAD_UNROLL_4
        for (int j = 0; j < steps; ++j) {
          const int column = last ? j : l, channel = last ? l : j;
          const std::int64_t at = x_channel(w, tile, channel);
          const int position = w_first + column;
          const bool inside =
              inside_rows && at >= 0 && position >= w.x.lo[2] && position < w.x.hi[2];
          to[column * pitch + channel] =
              inside ? convert<Acc>(x[start + position * w.x.spatial[2] + at]) : Acc{0};
        }
      }
    }
  }

  // dy of the unit, a warp a row: [image][row][column][channel].
  CONVGRAD_HD static void dy(const StreamParams& p, const StreamTile& tile, const StreamStep& u,
                             int thread, Acc* to) {
    const BlockParams& w = p.work;
    const auto* dy = static_cast<const Scalar*>(w.dy.data);
    const int warp = thread / kStreamLanes, lane = thread % kStreamLanes;
    for (int row = warp; row < u.images * u.rows; row += kStreamWarps) {
      const std::int64_t start = w.dy.pixel(u.n + row / u.rows, u.z, u.p + row % u.rows, u.q);
      const bool last = w.shape.channels_last;
      const int lanes = last ? kStreamLanes : u.columns, steps = last ? u.columns : kStreamLanes;
      for (int i = lane; i < lanes; i += kStreamLanes) {
        CONVGRAD_UNROLL_4
        for (int j = 0; j < steps; ++j) {
          const int column = last ? j : i, k = last ? i : j;
          to[(row * u.columns + column) * kStreamPitch + k] =
              tile.k + k < w.shape.K
                  ? convert<Acc>(
                        dy[start + column * w.dy.spatial[2] + (tile.k + k) * w.dy.c_stride])
                  : Acc{0};
        }
      }
    }
  }
};

}  // namespace convgrad::cuda
