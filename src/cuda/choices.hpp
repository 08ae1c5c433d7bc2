// choices.hpp - chooses a kernel's variant and tiles for a problem, by the shape alone.
#pragma once

#include <string>

#include "convgrad/problem.hpp"
#include "cuda/kernels/gemm.hpp"
#include "cuda/kernels/geometry.hpp"
#include "engine/device_kernel.hpp"
#include "problem/schedule.hpp"

namespace convgrad::cuda {

// What slices are chosen for: a device's multiprocessors, whose thread blocks may come in so many
// waves. Chunks are dealt within partitions: a block of data in one of them has those of an eighth
// of all slices. Partials take no more memory than the processor's.
inline constexpr std::int64_t kMultiprocessors = 132, kMostWaves = 4;
inline constexpr std::int64_t kPartitions = 8, kMostInterleave = 1024;
inline constexpr std::int64_t kMaxPartialBytes = std::int64_t{128} << 20;

// Says why the problem's numbers do not fit what kernels count with, or "".
std::string too_large(const WgradProblem& problem);

Axis axis_of(const SpatialAxis& axis);
Shape shape_of(const WgradProblem& problem);
Chunks chunks_of(const ChunkGrid& grid);
// Sets what chunks and slices there are, and which chunks a block has.
void set_chunks(BlockParams& work, const ChunkGrid& grid, const SliceGrid& slices, Range chunks);

struct TileChoice {
  bool wide;
  int row_tiles, column_tiles;  // of one group and tap
  DeviceTiles tiles;            // of the gradient
};
TileChoice simt_choice(const WgradProblem& problem);
TileChoice mma_choice(const WgradProblem& problem);

// Says how a kernel wants the channels of x or dy that takes `unit` neighbours of a group together:
// contiguous, with `pitch` elements for those of each group; where it takes single ones, for all.
// Where `packs`, a block has to be copied for that (pack.hpp), as so many terms.
struct ChannelChoice {
  std::int64_t groups, channels, pitch;
  bool packs;
  int terms = 1;
};
ChannelChoice channel_choice(const WgradProblem& problem, std::int64_t group_channels,
                             std::int64_t unit);
struct ChannelChoices {
  ChannelChoice x, dy;
};
ChannelChoices gemm_channels(const WgradProblem& problem);
// Counts what the copy of a block of so many bytes takes.
std::int64_t packed_bytes(const ChannelChoice& choice, std::int64_t bytes);

}  // namespace convgrad::cuda
