// gemm_tile.hpp - a tile of dw in an implicit GEMM: some input channels by some output channels of
// a group, of one tap: pixels that it sees outside x can then be left out for all channels, as
// matrix instructions cannot leave out products.
#pragma once

#include "cuda/kernels/geometry.hpp"

namespace convgrad::cuda {

// Channels are contiguous and start at multiples of 16 bytes in every group (pack.hpp): each has
// View::group_stride of them in memory.
struct GemmParams {
  BlockParams work;
  int row_tiles, column_tiles;
};

struct GemmTile {
  int group, tap, row, column;  // row, column: its first channels within the group
};

// Columns are innermost, then rows: tiles that run at a time then share x, or dy, in the L2 cache.
CONVGRAD_HD GemmTile gemm_tile(const GemmParams& p, int rows, int columns, std::int64_t task) {
  std::int64_t rest = p.work.tile_of(task);
  GemmTile tile;
  tile.column = take(rest, p.column_tiles) * columns;
  tile.row = take(rest, p.row_tiles) * rows;
  tile.tap = take(rest, p.work.shape.taps());
  tile.group = static_cast<int>(rest);
  return tile;
}

// Finds the tile's first channels of pixel number i of a chunk; false if the tap sees nothing.
CONVGRAD_HD bool locate(const GemmParams& p, const GemmTile& tile, const TapStart& start,
                        const Box& box, int i, std::int64_t& x, std::int64_t& dy) {
  const BlockParams& w = p.work;
  int image, out[3], in[3];
  w.chunks.pixel(box, i, image, out);
  const bool inside = tap_input(w.shape, start, out, in);
  const std::int64_t n = box.n + image;
  x = w.x.pixel(n, in[0], in[1], in[2]) + tile.group * w.x.group_stride + tile.row;
  dy = w.dy.pixel(n, out[0], out[1], out[2]) + tile.group * w.dy.group_stride + tile.column;
  return inside;
}

// Is needed once a chunk, and in shared memory, as each thread would keep it in registers.
struct GemmTask {
  GemmTile tile;
  TapStart start;
  int zero;  // a load of 16 bytes takes it along with start
  std::int64_t slice, chunk;
  Box box;  // of the chunk that is loaded next
};

// Holds for each pixel of a chunk where the tile's first channels are in x and in dy, in bytes,
// which all channels of the pixel share; or kNothing if the tap sees nothing there.
struct PixelTable {
  static constexpr std::int64_t kNothing = std::int64_t{1} << 62;
  std::int64_t x[kChunkPixels], dy[kChunkPixels];

  // Thread number `thread` of kThreads fills its part, up to a whole slab of kDepth pixels.
  template <int kThreads, int kDepth, int kElementBytes>
  CONVGRAD_HD void fill(const GemmParams& p, const GemmTask& task, int thread) {
    static_assert(kChunkPixels % kDepth == 0);
    const int pixels = task.box.pixels();
    for (int i = thread; i < ceil_div(pixels, kDepth) * kDepth; i += kThreads) {
      std::int64_t x_at = 0, dy_at = 0;
      const bool there = i < pixels && locate(p, task.tile, task.start, task.box, i, x_at, dy_at);
      x[i] = there ? x_at * kElementBytes : kNothing;
      dy[i] = there ? dy_at * kElementBytes : kNothing;
    }
  }
};

}  // namespace convgrad::cuda
