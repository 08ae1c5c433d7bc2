// choices.cpp - see choices.hpp. Tiles and units fix the order of additions, so they follow from
// the problem alone, never from the device, its memory or a measurement.
#include "cuda/choices.hpp"

#include <algorithm>

#include "base/integers.hpp"

namespace convgrad::cuda {

static_assert(kChunkPixels == kMaxChunkPixels && kLongChunkPixels == kMaxLongChunkPixels);

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
  if (const std::int64_t most = std::max({rows, problem.C, problem.K}); most >= kMaxExtent) {
    return cat("it has ", most, " channels, or taps of channels, and CUDA kernels count to ",
               kMaxExtent);
  }
  if (chunk_grid(problem).count >= std::int64_t{1} << 32) {
    return cat("it has ", chunk_grid(problem).count, " chunks, and CUDA kernels count to 2^32");
  }
  return "";
}

Axis axis_of(const SpatialAxis& axis) {
  // Kernels look beyond a filter's taps, where a dilation between no taps could leave 32 bits.
  const std::int64_t dilation = axis.taps > 1 ? axis.dilation : 1;
  return {static_cast<int>(axis.in),   static_cast<int>(axis.out),
          static_cast<int>(axis.taps), static_cast<int>(axis.stride),
          static_cast<int>(dilation),  static_cast<int>(axis.pad_before)};
}

Shape shape_of(const WgradProblem& problem) {
  Shape shape{};
  std::ranges::transform(problem.axis, shape.axis, axis_of);
  shape.groups = static_cast<int>(problem.groups);
  shape.group_c = static_cast<int>(problem.group_c());
  shape.group_k = static_cast<int>(problem.group_k());
  shape.K = problem.K;
  return shape;
}

Chunks chunks_of(const ChunkGrid& grid) {
  Chunks chunks{};
  chunks.images = grid.extent[0];
  // Smaller chunks at the ends use the same units.
  for (std::size_t a = 0; a < 4; ++a) {
    const std::int64_t size = a < grid.axis ? 1 : a == grid.axis ? grid.step : grid.extent[a];
    chunks.full[a] = static_cast<int>(std::max<std::int64_t>(size, 1));
  }
  for (std::size_t a = 0; a < 3; ++a) {
    chunks.extent[a] = static_cast<int>(grid.extent[a + 1]);
    chunks.pieces[a] = std::max(ceil_div(chunks.extent[a], chunks.full[a + 1]), 1);
    chunks.reciprocals[a] = reciprocal(chunks.full[a + 1]);
  }
  return chunks;
}

void set_chunks(BlockParams& work, const ChunkGrid& grid, const SliceGrid& slices, Range chunks) {
  work.chunks = chunks_of(grid);
  work.chunk_count = slices.chunks;
  work.unit = slices.unit;
  work.partitions = slices.partitions;
  work.interleave = slices.interleave;
  work.chunk_begin = chunks.begin;
  work.chunk_end = chunks.end;
}

namespace {

// Tiles are wide where a narrow one has neither all rows nor all columns.
template <class Wide, class Narrow>
TileChoice tiles_of(const WgradProblem& problem) {
  const std::int64_t c = problem.group_c(), k = problem.group_k();
  const bool wide = c > Narrow::kRows && k > Narrow::kColumns;
  const std::int64_t down = ceil_div<std::int64_t>(c, wide ? Wide::kRows : Narrow::kRows);
  const std::int64_t right = ceil_div<std::int64_t>(k, wide ? Wide::kColumns : Narrow::kColumns);
  return {
      wide,
      static_cast<int>(down),
      static_cast<int>(right),
      {problem.groups * problem.taps() * down * right, wide ? Wide::kResident : Narrow::kResident}};
}

}  // namespace

TileChoice simt_choice(const WgradProblem& problem) {
  return tiles_of<SimtWide<float>, SimtNarrow<float>>(problem);
}

ChannelChoice channel_choice(const WgradProblem& problem, std::int64_t group_channels,
                             std::int64_t unit) {
  const std::int64_t groups = unit > 1 ? problem.groups : 1;
  const std::int64_t channels = group_channels * (problem.groups / groups);
  const std::int64_t whole = std::max(16 / dtype_bytes(problem.dtype), unit);  // pack.hpp
  return {groups, channels, round_up(channels, whole),
          !problem.channels_last || group_channels % unit != 0};
}

ChannelChoices gemm_channels(const WgradProblem& problem) {
  const std::int64_t unit = 16 / dtype_bytes(problem.dtype);
  return {channel_choice(problem, problem.group_c(), unit),
          channel_choice(problem, problem.group_k(), unit)};
}

std::int64_t packed_bytes(const ChannelChoice& choice, std::int64_t bytes) {
  // The copy has whole pixels, and room to align what follows. Three terms are 6 bytes for 4.
  const std::int64_t copied = bytes / choice.channels * choice.pitch;
  return choice.packs ? (choice.terms > 1 ? copied / 2 * 3 : copied) + 256 : 0;
}

TileChoice mma_choice(const WgradProblem& problem) {
  if (problem.dtype == DType::f64) return tiles_of<MmaF64Gemm, MmaF64Gemm>(problem);
  return tiles_of<Mma16Wide<Float16>, Mma16Narrow<Float16>>(problem);
}

}  // namespace convgrad::cuda
