// gemm_tile.hpp - a tile of dw in an implicit GEMM on tensor cores: some input channels by some
// output channels of a group, of one tap.
//
// One tap, because a slab's pixels that a tap sees outside x can then be left out as a whole, for
// all channels, before anything is multiplied: matrix instructions cannot leave out products.
#pragma once

#include "cuda/kernels/chunk_walker.hpp"

namespace convgrad::cuda {

// Channels are contiguous and start at multiples of 16 bytes in every group (pack.hpp).
struct GemmParams {
  BlockParams work;
  int x_pitch, dy_pitch;  // channels of a group in memory, whole vectors
  int row_tiles, column_tiles;
};

struct GemmTile {
  int group, tap, row, column;  // row, column: its first channels within the group
};

// Columns are innermost, then rows: tiles that run at a time then share x, or dy, in the L2 cache.
CONVGRAD_HD GemmTile gemm_tile(const GemmParams& p, int rows, int columns, std::int64_t task) {
  std::int64_t rest = p.work.tile_of(task);
  GemmTile tile;
  tile.column = static_cast<int>(rest % p.column_tiles) * columns;
  rest /= p.column_tiles;
  tile.row = static_cast<int>(rest % p.row_tiles) * rows;
  rest /= p.row_tiles;
  tile.tap = static_cast<int>(rest % p.work.shape.taps());
  tile.group = static_cast<int>(rest / p.work.shape.taps());
  return tile;
}

// Where the tile's tap sees x from an output position; false if that is outside x on some axis.
CONVGRAD_HD bool tap_input(const Shape& shape, const GemmTile& tile, const int out[3], int in[3]) {
  const int at[3] = {shape.tap_t(tile.tap), shape.tap_r(tile.tap), shape.tap_s(tile.tap)};
  bool inside = true;
  for (int a = 0; a < 3; ++a) {
    const Axis& axis = shape.axis[a];
    in[a] = axis.first_input(out[a]) + at[a] * axis.dilation;
    inside = inside && in[a] >= 0 && in[a] < axis.in;
  }
  return inside;
}

// Where the tile's first channels of pixel number i of a chunk are; false if the tap sees nothing.
CONVGRAD_HD bool locate(const GemmParams& p, const GemmTile& tile, const Box& box, int i,
                        std::int64_t& x, std::int64_t& dy) {
  const BlockParams& w = p.work;
  std::int64_t n;
  int out[3], in[3];
  box.pixel(i, n, out[0], out[1], out[2]);
  const bool inside = tap_input(w.shape, tile, out, in);
  x = w.x.pixel(n, in[0], in[1], in[2]) + static_cast<std::int64_t>(tile.group) * p.x_pitch +
      tile.row;
  dy = w.dy.pixel(n, out[0], out[1], out[2]) + static_cast<std::int64_t>(tile.group) * p.dy_pitch +
       tile.column;
  return inside;
}

// Where the sum of a row and a column of the tile is in a slice's partial gradient; nullptr outside
// of dw.
template <typename Acc>
CONVGRAD_HD Sum<Acc>* sum_at(const BlockParams& work, const GemmTile& tile, std::int64_t slice,
                             int row, int column) {
  const Shape& shape = work.shape;
  const int c = tile.row + row, k = tile.column + column;
  if (c >= shape.group_c || k >= shape.group_k) return nullptr;
  return work.sum_at<Acc>(slice, static_cast<std::int64_t>(tile.tap) * shape.group_c + c,
                          static_cast<std::int64_t>(tile.group) * shape.group_k + k);
}

// A thread's sums of a chunk once more from device memory, without tensor cores and without what
// the tap sees outside x: for data that the matrix instructions do not sum well enough. Slow, and
// meant to be rare. place(fragment, element, row, column) is that of a sum within the tile.
template <typename Scalar, class Sums, class Place>
CONVGRAD_HD void sum_by_pixels(const GemmParams& p, const GemmTile& tile, const Box& box,
                               Sums& sums, Place&& place) {
  const auto* x = static_cast<const Scalar*>(p.work.x.data);
  const auto* dy = static_cast<const Scalar*>(p.work.dy.data);
  sums.clear();
  for (int pixel = 0; pixel < box.pixels(); ++pixel) {
    std::int64_t x_at, dy_at;
    if (!locate(p, tile, box, pixel, x_at, dy_at)) continue;
    Sums::each([&](int i, int e) {
      int row, column;
      place(i, e, row, column);
      if (tile.row + row >= p.x_pitch || tile.column + column >= p.dy_pitch) return;
      sums.chunk[i][e] += convert<float>(x[x_at + row]) * convert<float>(dy[dy_at + column]);
    });
  }
}

}  // namespace convgrad::cuda
