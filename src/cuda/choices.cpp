// choices.cpp - see choices.hpp. Tiles and units fix the order of additions, so they follow from
// the problem alone, never from the device, its memory or a measurement.
#include "cuda/choices.hpp"

#include <algorithm>

#include "cuda/kernels/simt_gemm.hpp"

namespace convgrad::cuda {

static_assert(kChunkPixels == kMaxChunkPixels);
static_assert(MmaTf32Wide::kRows == MmaSplitWide::kRows);
static_assert(MmaTf32Wide::kColumns == MmaSplitWide::kColumns);

namespace {

// Returns the part that is wanted of what a tile computes.
double share(std::int64_t extent, std::int64_t tile) {
  return static_cast<double>(extent) / static_cast<double>(ceil_div(extent, tile) * tile);
}

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

// Finds the unit with which a chunk needs the fewest instructions. Their weights are counted in the
// kernel's machine code, not measured. All that fit are tried, which are at most a chunk's pixels.
struct UnitSearch {
  const WgradProblem& problem;
  const StreamChoice& choice;
  std::array<int, 4> chunk;  // pixels of a full chunk
  StreamUnit common{};       // what all units have in common
  StreamUnit best{};
  double best_cost = 0;

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

  // Returns the unit of so many pixels; images is 0 if it does not fit shared memory.
  StreamUnit unit(int images, int rows, int columns) const {
    const std::int64_t capacity = kStreamBytes / dtype_bytes(problem.dtype);
    const std::int64_t dy_columns = ceil_div(columns, kStreamRun) * kStreamRun;
    const std::int64_t ring = images * seen(problem.axis[1], rows, choice.r);
    const std::int64_t x_columns = seen(problem.axis[2], dy_columns, choice.s);
    StreamUnit result = common;
    if (ring >= capacity || x_columns >= capacity) return result;
    const std::int64_t elements =
        ring * x_columns * common.x.pitch + images * rows * dy_columns * common.dy.pitch;
    if (elements * common.buffers + 8 > capacity) return result;  // 8: StreamParams::dy_begin()
    result.images = images;
    result.rows = rows;
    result.columns = columns;
    result.ring = static_cast<int>(ring) * common.buffers;
    result.x.pixels = static_cast<int>(x_columns);
    result.dy.pixels = static_cast<int>(dy_columns);
    // Rows are divided among warps where there are fewer runs of columns than warps.
    const int runs = images * result.dy.pixels / kStreamRun;
    result.band = runs >= kStreamWarps ? rows : ceil_div(rows, kStreamWarps / runs);
    return result;
  }
  // Counts a warp's instructions to copy rows of pixels.
  double copied(double rows, const StreamRow& row) const {
    const double steps = problem.channels_last ? ceil_div(row.pixels << row.log, kWarp)
                                               : ceil_div(row.pixels, kWarp) * row.channels;
    return rows * (30 + 8 * steps);
  }
  // Counts a chunk's instructions: its strips' first units load all rows that they see, those after
  // them the new ones. A unit's barriers and the walk to the next take 150 a warp.
  double cost(const StreamUnit& u) const {
    const double strips = ceil_div(chunk[3], u.columns), bands = ceil_div(chunk[2], u.rows),
                 parts = ceil_div(chunk[0], u.images);
    const double all_rows = static_cast<double>(u.ring) / u.buffers / u.images;
    const double new_rows =
        std::min(all_rows, static_cast<double>(u.rows * problem.axis[1].stride));
    const double x_rows = u.images * (all_rows + (bands - 1) * new_rows);
    const double taps = choice.r * choice.s * choice.c;
    const double row =  // of a run: products, values of x and of dy, addresses
        kStreamRun * taps + 2 * choice.r * (kStreamRun + choice.s - 1) + 2 * kStreamRun + 16;
    const int runs = u.images * ceil_div(u.rows, u.band) * (u.dy.pixels / kStreamRun);
    return parts * strips *
           (copied(x_rows, u.x) +
            bands * (copied(u.images * u.rows, u.dy) +
                     kStreamWarps * (ceil_div(runs, kStreamWarps) * u.band * row + 150)));
  }
  void consider(const StreamUnit& u) {
    const double value = cost(u);
    if (best.images > 0 && value >= best_cost) return;
    best_cost = value;
    best = u;
  }
  // Takes two units at a time if they fit at all, and several images only if they are whole.
  StreamUnit search() {
    set_rows();
    for (common.buffers = 2; common.buffers > 0 && best.images == 0; --common.buffers) {
      for (int images = 2; images <= chunk[0]; ++images) {
        const StreamUnit whole = unit(images, chunk[2], chunk[3]);
        if (whole.images == 0) break;
        consider(whole);
      }
      for (int columns = 1; columns <= chunk[3]; ++columns) {
        for (int rows = 1; rows <= chunk[2]; ++rows) {
          const StreamUnit one = unit(1, rows, columns);
          if (one.images == 0) break;
          consider(one);
        }
      }
    }
    return best;
  }
};

// Finds the pixels of a slab along axes 0 to last; `size` has those of the axes after it. A slab is
// a box, as one bulk copy takes a box. The fewest slabs leave the least of the instructions unused,
// which multiply kSlabPixels pixels whatever a slab has.
struct SlabSearch {
  std::array<int, 4> chunk;    // pixels of a full chunk
  std::array<int, 4> largest;  // along each axis
  int split;                   // the axis along which slabs must end where chunks do; or -1
  std::array<int, 4> size = {1, 1, 1, 1}, best = {1, 1, 1, 1};
  std::int64_t best_count = 0;

  // Keeps the first of those with the fewest slabs, which has the longest rows.
  void consider() {
    std::int64_t count = 1;
    for (std::size_t a = 0; a < 4; ++a) count *= ceil_div(chunk[a], size[a]);
    if (best_count > 0 && count >= best_count) return;
    best_count = count;
    best = size;
  }
  void search(int axis, int room) {
    if (axis < 0) return consider();
    const auto a = static_cast<std::size_t>(axis);
    for (int pixels = std::min({chunk[a], largest[a], room}); pixels >= 1; --pixels) {
      if (axis == split && chunk[a] % pixels != 0) continue;
      size[a] = pixels;
      search(axis - 1, room / pixels);
    }
  }
};

}  // namespace

std::string too_large(const WgradProblem& problem) {
  for (const SpatialAxis& axis : problem.axis) {
    const std::int64_t reach =
        axis.in + axis.pad_before + axis.pad_after + axis.taps * axis.dilation + axis.stride;
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
  shape.padded = false;
  for (int a = 0; a < 3; ++a) {
    const SpatialAxis& axis = problem.axis[static_cast<std::size_t>(a)];
    shape.axis[a] = {static_cast<int>(axis.in),       static_cast<int>(axis.out),
                     static_cast<int>(axis.taps),     static_cast<int>(axis.stride),
                     static_cast<int>(axis.dilation), static_cast<int>(axis.pad_before)};
    const std::int64_t last =
        (axis.out - 1) * axis.stride - axis.pad_before + (axis.taps - 1) * axis.dilation;
    // Padding behind the end counts if a tap reaches it, not if it is only declared.
    shape.padded = shape.padded || axis.pad_before > 0 || last >= axis.in;
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

SimtChoice simt_choice(const WgradProblem& problem) {
  const std::int64_t rows = problem.taps() * problem.group_c(), columns = problem.group_k();
  // A tile is narrow where at least a third of a wide one's products would be thrown away. A wide
  // tile's values from shared memory serve twice as many products.
  const auto used = [&](int size) { return share(rows, size) * share(columns, size); };
  const bool narrow = used(kSimtNarrow) > 1.5 * used(kSimtWide);
  const int size = narrow ? kSimtNarrow : kSimtWide;
  return {narrow, size, static_cast<int>(ceil_div<std::int64_t>(rows, size)),
          static_cast<int>(ceil_div<std::int64_t>(columns, size))};
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
  choice.unit = UnitSearch{problem, choice, chunk_extents(chunk_grid(problem)), {}, {}, 0}.search();
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

MmaChoice mma_choice(const WgradProblem& problem) {
  const std::int64_t rows = problem.group_c(), columns = problem.group_k();
  const auto choice = [&]<class Wide, class Narrow>() -> MmaChoice {
    const auto filled = [&]<class Tile>() {
      return share(rows, Tile::kRows) * share(columns, Tile::kColumns);
    };
    const auto with = [&]<class Tile>(bool wide) -> MmaChoice {
      return {wide, Tile::kRows, Tile::kColumns,
              static_cast<int>(ceil_div<std::int64_t>(rows, Tile::kRows)),
              static_cast<int>(ceil_div<std::int64_t>(columns, Tile::kColumns))};
    };
    // A tile is wide if no more than 30 % of its products are thrown away on top of a narrow
    // tile's. A wide tile reads less of x and dy for each product.
    const bool wide =
        filled.template operator()<Wide>() > 0.7 * filled.template operator()<Narrow>();
    return wide ? with.template operator()<Wide>(true) : with.template operator()<Narrow>(false);
  };
  switch (dtype_bytes(problem.dtype)) {
    case 2:
      return choice.operator()<Mma16Wide<Float16>, Mma16Narrow<Float16>>();
    case 4:
      return choice.operator()<MmaSplitWide, MmaSplitNarrow>();
    default:
      return choice.operator()<MmaF64Gemm, MmaF64Gemm>();
  }
}

WgmmaChoice wgmma_choice(const WgradProblem& problem) {
  const ChunkGrid grid = chunk_grid(problem);
  SlabSearch search;
  search.chunk = chunk_extents(grid);
  // The pixels behind a chunk of several along an axis are another chunk's.
  search.split = grid.pieces > 1 ? grid.axis : -1;
  search.largest[0] = kMaxBulkBox;
  for (std::size_t a = 0; a < 3; ++a) {
    const std::int64_t stride = problem.axis[a].stride;
    search.largest[a + 1] = static_cast<int>(
        stride > kMaxBulkStep ? 1 : kMaxBulkBox / std::max<std::int64_t>(stride, 1));
  }
  search.search(3, kSlabPixels);
  WgmmaChoice choice{};
  std::ranges::copy(search.best, choice.slab.size);
  choice.slab.band_pixels = choice.slab.band_slabs = 1;
  for (std::size_t a = 0; a < 4; ++a) {
    const bool split = static_cast<int>(a) == grid.axis;
    choice.slab.band_pixels *= split ? search.best[a] : search.chunk[a];
    choice.slab.band_slabs *= split ? 1 : ceil_div(search.chunk[a], search.best[a]);
  }
  choice.row_tiles = static_cast<int>(ceil_div<std::int64_t>(problem.group_c(), kWgmmaRows));
  choice.column_tiles = static_cast<int>(ceil_div<std::int64_t>(problem.group_k(), kWgmmaColumns));
  return choice;
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

int slab_step(const Axis& axis, int pixels) { return pixels > 1 ? axis.stride : 1; }

}  // namespace convgrad::cuda
