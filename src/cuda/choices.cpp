// choices.cpp - see choices.hpp. Tiles and units fix the order of additions, so they follow from
// the problem alone, never from the device, its memory or a measurement. No device has timed any of
// these rules: each is the plainest one.
#include "cuda/choices.hpp"

#include <algorithm>

#include "cuda/kernels/simt_gemm.hpp"

namespace convgrad::cuda {

static_assert(kChunkPixels == kMaxChunkPixels);

namespace {

// A full chunk has these pixels along n, z, p, q; smaller ones at the ends use the same units.
std::array<int, 4> chunk_extents(const ChunkGrid& grid) {
  std::array<int, 4> sizes{};
  for (int a = 0; a < 4; ++a) {
    const auto i = static_cast<std::size_t>(a);
    const std::int64_t size = a < grid.axis ? 1 : a == grid.axis ? grid.step : grid.extent[i];
    sizes[i] = static_cast<int>(std::max<std::int64_t>(size, 1));
  }
  return sizes;
}

// Counts positions of x that neighbouring outputs see, in 64 bits, as a dilation may be anything.
std::int64_t seen(const SpatialAxis& axis, std::int64_t outputs, int taps) {
  return (outputs - 1) * axis.stride + (taps - 1) * axis.dilation + 1;
}

// Makes units of cuda_streaming.
struct UnitMaker {
  const WgradProblem& problem;
  const StreamChoice& choice;
  StreamUnit common{};  // what all units have in common

  // With channels last they are on end in shared memory, so that a warp's copies are. With channels
  // first single elements are stored by lanes that differ in the pixel, and an odd number of words,
  // or of groups' channels, lets them meet different banks.
  StreamRow row_of(int channels, int piece, int group) const {
    const int odd = group > 1 ? group : dtype_bytes(problem.dtype) == 2 ? 2 : 1;
    const int pitch = problem.channels_last ? channels : (ceil_div(channels, odd) | 1) * odd;
    StreamRow row = {0, pitch, channels, piece, channels / piece, 0};
    while (row.log < 5 && 1 << row.log < row.pieces) ++row.log;
    return row;
  }
  // Takes the largest pieces that are aligned in every pixel: 16 bytes, also across groups where
  // all of their channels are taken; or the channels of a group; or elements.
  void set_rows() {
    const int vector = static_cast<int>(16 / dtype_bytes(problem.dtype));
    const std::int64_t c = problem.group_c(), k = problem.group_k();
    const auto whole = [](std::int64_t channels, int piece) { return channels % piece == 0; };
    const bool even = kStreamLanes % k == 0 || k % kStreamLanes == 0;
    const bool of_one_group = whole(choice.c, vector) && whole(c, vector);
    const bool of_all_channels =
        c == choice.c && even && whole(problem.C, vector) && whole(choice.x_channels, vector);
    const int piece = of_one_group || of_all_channels ? vector : whole(c, choice.c) ? choice.c : 1;
    common.x = row_of(choice.x_channels, piece, choice.c);
    common.dy = row_of(kStreamLanes, whole(problem.K, vector) ? vector : 1, 1);
    common.fast = common.x.pitch == kStreamLanes && common.dy.pitch == kStreamLanes;
    for (const SpatialAxis& axis : {problem.axis[1], problem.axis[2]}) {
      common.fast = common.fast && axis.stride == 1 && axis.dilation == 1;
    }
  }

  // Returns the unit of so many pixels; rows is 0 if shared memory does not have room for two.
  StreamUnit unit(int rows, int columns) const {
    const std::int64_t capacity = kStreamBytes / dtype_bytes(problem.dtype);
    const std::int64_t dy_columns = ceil_div(columns, kStreamRun) * kStreamRun;
    const std::int64_t ring = seen(problem.axis[1], rows, choice.r);
    const std::int64_t x_columns = seen(problem.axis[2], dy_columns, choice.s);
    StreamUnit result = common;
    if (ring >= capacity || x_columns >= capacity) return result;
    const std::int64_t elements =
        ring * x_columns * common.x.pitch + rows * dy_columns * common.dy.pitch;
    if (2 * elements + 8 > capacity) return result;  // 8: StreamParams::dy_begin()
    result.rows = rows;
    result.columns = columns;
    result.ring = static_cast<int>(2 * ring);
    result.x.pixels = static_cast<int>(x_columns);
    result.dy.pixels = static_cast<int>(dy_columns);
    // Rows are divided among warps where there are fewer runs of columns than warps.
    const int runs = result.dy.pixels / kStreamRun;
    result.band = runs >= kStreamWarps ? rows : ceil_div(rows, kStreamWarps / runs);
    return result;
  }

  // Halves the longer of a chunk's rows and columns until two units fit.
  StreamUnit make(int rows, int columns) {
    set_rows();
    for (;;) {
      const StreamUnit result = unit(rows, columns);
      int& longer = rows > columns ? rows : columns;
      if (result.rows > 0 || longer == 1) return result;
      longer = ceil_div(longer, 2);
    }
  }
};

}  // namespace

std::string too_large(const WgradProblem& problem) {
  for (const SpatialAxis& axis : problem.axis) {
    const std::int64_t reach = axis.in + std::abs(axis.pad_before) + std::abs(axis.pad_after) +
                               axis.taps * axis.dilation + axis.stride;
    if (reach >= kMaxExtent) {
      return cat("an axis with its padding and its filter reaches ", reach,
                 " positions, and CUDA kernels count to ", kMaxExtent);
    }
  }
  const std::int64_t rows = problem.taps() * problem.group_c();
  if (std::max({rows, problem.C, problem.K}) >= kMaxExtent) {
    return cat("it has ", std::max({rows, problem.C, problem.K}),
               " channels, or taps of channels, and CUDA kernels count to ", kMaxExtent);
  }
  return "";
}

Shape shape_of(const WgradProblem& problem) {
  Shape shape{};
  for (int a = 0; a < 3; ++a) {
    const SpatialAxis& axis = problem.axis[static_cast<std::size_t>(a)];
    shape.axis[a] = {static_cast<int>(axis.in),       static_cast<int>(axis.out),
                     static_cast<int>(axis.taps),     static_cast<int>(axis.stride),
                     static_cast<int>(axis.dilation), static_cast<int>(axis.pad_before)};
  }
  shape.groups = static_cast<int>(problem.groups);
  shape.group_c = static_cast<int>(problem.group_c());
  shape.group_k = static_cast<int>(problem.group_k());
  shape.K = problem.K;
  shape.channels_last = problem.channels_last;
  return shape;
}

Chunks chunks_of(const ChunkGrid& grid) {
  Chunks chunks{};
  const std::array<int, 4> full = chunk_extents(grid);
  std::ranges::copy(full, chunks.full);
  chunks.images = grid.extent[0];
  for (std::size_t a = 0; a < 3; ++a) {
    chunks.extent[a] = static_cast<int>(grid.extent[a + 1]);
    chunks.pieces[a] = std::max(ceil_div(chunks.extent[a], full[a + 1]), 1);
    chunks.covered[a] = chunks.pieces[a] * full[a + 1];
    chunks.reciprocals[a] = reciprocal(full[a + 1]);
  }
  return chunks;
}

namespace {

TileChoice tiles_of(bool wide, int rows, int columns, std::int64_t all_rows,
                    std::int64_t all_columns) {
  return {wide, rows, columns, static_cast<int>(ceil_div<std::int64_t>(all_rows, rows)),
          static_cast<int>(ceil_div<std::int64_t>(all_columns, columns))};
}

}  // namespace

// Tiles are wide where a narrow one has neither all rows nor all columns, here and in mma_choice().
TileChoice simt_choice(const WgradProblem& problem) {
  const std::int64_t rows = problem.taps() * problem.group_c(), columns = problem.group_k();
  const bool wide = rows > kSimtNarrow && columns > kSimtNarrow;
  const int size = wide ? kSimtWide : kSimtNarrow;
  return tiles_of(wide, size, size, rows, columns);
}

StreamChoice stream_choice(const WgradProblem& problem) {
  StreamChoice choice{};
  const auto R = static_cast<int>(problem.axis[1].taps), S = static_cast<int>(problem.axis[2].taps);
  const auto C = static_cast<int>(problem.group_c()), M = static_cast<int>(problem.group_k());
  // There are few variants, as each is compiled for four dtypes; taps beyond the filter's are not
  // stored. Four channels leave registers for 3 x 3 taps only.
  choice.c = C > 1 ? 4 : 1;
  choice.r = choice.s = choice.c == 4 || std::max(R, S) <= 3 ? 3 : std::max(R, S) <= 5 ? 5 : 7;
  choice.r_tiles = ceil_div(R, choice.r);
  choice.s_tiles = ceil_div(S, choice.s);
  choice.c_tiles = ceil_div(C, choice.c);
  choice.k_tiles = static_cast<int>(ceil_div<std::int64_t>(problem.K, kStreamLanes));
  // 32 neighbouring output channels can belong to at most so many groups of M channels each.
  int groups = kStreamLanes % M == 0   ? kStreamLanes / M
               : M % kStreamLanes == 0 ? 1
                                       : (kStreamLanes - 1) / M + 2;
  groups = static_cast<int>(std::min<std::int64_t>(groups, problem.groups));
  choice.x_channels = groups * choice.c;
  const std::array<int, 4> chunk = chunk_extents(chunk_grid(problem));
  choice.unit = UnitMaker{problem, choice}.make(chunk[2], chunk[3]);
  choice.tiles = problem.axis[0].taps * choice.r_tiles * choice.s_tiles;
  choice.tiles *= std::int64_t{choice.c_tiles} * choice.k_tiles;
  return choice;
}

std::int64_t mma_pitch(const WgradProblem& problem, std::int64_t group_channels) {
  const std::int64_t vector = 16 / dtype_bytes(problem.dtype);
  return ceil_div(group_channels, vector) * vector;
}

bool needs_pack(const WgradProblem& problem, std::int64_t group_channels) {
  return !problem.channels_last || mma_pitch(problem, group_channels) != group_channels;
}

TileChoice mma_choice(const WgradProblem& problem) {
  const std::int64_t rows = problem.group_c(), columns = problem.group_k();
  const auto tiles = [&]<class Tile>(bool wide) {
    return tiles_of(wide, Tile::kRows, Tile::kColumns, rows, columns);
  };
  using Wide = Mma16Wide<Float16>;
  using Narrow = Mma16Narrow<Float16>;
  if (problem.dtype == DType::f64) return tiles.operator()<MmaF64Gemm>(false);
  if (problem.dtype == DType::f32) return tiles.operator()<MmaTf32Gemm>(false);
  return rows > Narrow::kRows && columns > Narrow::kColumns ? tiles.operator()<Wide>(true)
                                                            : tiles.operator()<Narrow>(false);
}

TileChoice wgmma_choice(const WgradProblem& problem) {
  return tiles_of(true, kWgmmaRows, kWgmmaColumns, problem.group_c(), problem.group_k());
}

Slab wgmma_slab(const WgradProblem& problem) {
  const ChunkGrid grid = chunk_grid(problem);
  const std::array<int, 4> chunk = chunk_extents(grid);
  Slab slab{};
  int room = kSlabPixels;
  for (int a = 3; a >= 0; --a) {
    const auto i = static_cast<std::size_t>(a);
    const std::int64_t stride = a == 0 ? 1 : problem.axis[i - 1].stride;
    const auto most = static_cast<int>(
        stride > kMaxBulkStep ? 1 : kMaxBulkBox / std::max<std::int64_t>(stride, 1));
    int& size = slab.size[a];
    size = std::min({chunk[i], most, room});
    // The pixels behind a chunk of several along an axis are another chunk's.
    while (a == grid.axis && grid.pieces > 1 && chunk[i] % size != 0) --size;
    room /= size;
  }
  return slab;
}

BulkMap slab_map(const View& view, std::int64_t images, std::int64_t channels, const Slab& slab,
                 const int (&step)[3]) {
  BulkMap map{};
  map.data = view.data;
  map.extent[0] = channels;
  map.stride[0] = 1;
  map.box[0] = kPanel;
  map.step[0] = 1;
  for (int a = 0; a < 3; ++a) {  // w, h, d
    map.extent[1 + a] = view.hi[2 - a] - view.lo[2 - a];
    map.stride[1 + a] = view.spatial[2 - a];
    map.box[1 + a] = slab.size[3 - a];
    map.step[1 + a] = step[2 - a];
  }
  map.extent[4] = images;
  map.stride[4] = view.n_stride;
  map.box[4] = slab.size[0];
  map.step[4] = 1;
  return map;
}

}  // namespace convgrad::cuda
