// kernel.hpp - the kernels and what they work on.
//
// A kernel is a plain single-threaded function: it adds the products of some chunks of a block to
// one tile of one partial gradient. It starts no threads, takes no locks and allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convgrad/error.hpp"
#include "convgrad/problem.hpp"
#include "engine/machine.hpp"
#include "problem/schedule.hpp"

namespace convgrad {

// Strides are distances between neighbours along each axis, in elements.
struct Strides {
  std::int64_t n = 0, c = 0;              // image and channel
  std::array<std::int64_t, 3> spatial{};  // d, h, w or z, p, q
};

// Returns the strides of a C-order box [images][spatial...][channels] or
// [images][channels][spatial...].
inline Strides box_strides(bool channels_last, std::int64_t channels,
                           const std::array<std::int64_t, 3>& extent) {
  Strides s;
  s.spatial[2] = channels_last ? channels : 1;
  s.spatial[1] = extent[2] * s.spatial[2];
  s.spatial[0] = extent[1] * s.spatial[1];
  const std::int64_t outer = extent[0] * s.spatial[0];
  s.c = channels_last ? 1 : outer;
  s.n = channels_last ? outer : channels * outer;
  return s;
}
inline Strides box_strides(const WgradProblem& problem, std::int64_t channels,
                           const std::array<std::int64_t, 3>& extent) {
  return box_strides(problem.channels_last, channels, extent);
}

// Holds a part of x and dy in memory, in the problem's dtype and native byte order. Both start at
// the first element of their box: x has images pixels[0] and the input positions `input`, all
// channels.
struct Block {
  const void* x = nullptr;  // neither is null once the block is loaded, even without elements
  const void* dy = nullptr;
  Strides x_strides, dy_strides;
  PixelBox pixels;
  std::array<Range, 3> input;  // d, h, w
};

// A tile is a part of dw[tap][c][k]: tap counts t, r, s (s fastest), c within a group, k over all.
struct Tile {
  Range tap, c, k;
};

// dw is cut into tiles of so many taps, input and output channels each, the last ones fewer. The
// shape alone decides, as a different cut could round differently, but for wide_k.
struct TileSteps {
  std::int64_t tap = 1, c = 1, k = 1;
  bool whole_groups = false;  // k is a multiple of a group's channels, else tiles end with groups
  std::int64_t wide_k = 0;    // k may be up to this where slices are tasks enough: no bit changes
};
std::int64_t tile_count(const WgradProblem& problem, const TileSteps& steps);
std::vector<Tile> tiles_of(const WgradProblem& problem, const TileSteps& steps);

// Calls use(first, count) for the runs of neighbours that the tile has in dw[tap][c][k].
template <typename Use>
void for_each_row(const WgradProblem& problem, const Tile& tile, const Use& use) {
  const std::int64_t group_c = problem.group_c(), row = problem.K;
  for (std::int64_t tap = tile.tap.begin; tap < tile.tap.end; ++tap) {
    if (tile.k.size() == row) {
      use((tap * group_c + tile.c.begin) * row, tile.c.size() * row);
      continue;
    }
    for (std::int64_t c = tile.c.begin; c < tile.c.end; ++c) {
      use((tap * group_c + c) * row + tile.k.begin, tile.k.size());
    }
  }
}

inline void clear_tile(const WgradProblem& problem, const Tile& tile, double* partial) {
  for_each_row(problem, tile, [&](std::int64_t first, std::int64_t count) {
    std::fill_n(partial + first, count, 0.0);
  });
}

struct TileSums {
  double* partial = nullptr;  // dw in [tap][c][k] order, whole; only the tile is touched
  // Nothing has been added to the tile yet: it holds zeros, or anything if the kernel `stores`.
  bool fresh = false;
  // Is not null where a fresh tile's sums are of one chunk, the gradient's only one: they may be
  // stored here, in out_dtype, their own type or bfloat16, instead of in partial.
  void* result = nullptr;
  bool are_in_result = false;  // set by the kernel
};

struct Kernel {
  std::string_view name;
  std::string_view summary;
  // Returns "" if it can compute the problem here, else why not, in a sentence without full stop.
  std::string (*why_not)(const WgradProblem&, const Machine&);
  // Estimates the time on one core for auto. It is never measured, as the choice must repeat.
  double (*estimated_seconds)(const WgradProblem&);
  TileSteps (*tile_steps)(const WgradProblem&);
  std::int64_t (*workspace_bytes)(const WgradProblem&);
  // workspace has workspace_bytes() bytes, aligned to 64; its contents are undefined.
  void (*accumulate)(const WgradProblem&, const ChunkGrid&, const Block&, const ChunkRun&,
                     const Tile&, std::byte* workspace, TileSums&);
  // A chunk has at most so many pixels, by the shape alone: from kMaxChunkPixels, which null stands
  // for, to kMaxLongChunkPixels.
  std::int64_t (*chunk_pixels)(const WgradProblem&) = nullptr;
  // The first sums of a fresh tile take the place of what is there: no pass over it to clear it.
  bool stores = false;
  bool stores_result = false;  // in TileSums::result
  bool by_tiles = false;       // of AMX: the peak of bfloat16 in tiles is above it, for float32 too
  // Processors with AMX multiply its pairs at half the rate of floats, others at twice.
  bool slow_beside_amx = false;
  bool by_blas = false;  // its bits are those of a version of OpenBLAS, and of a processor

  ChunkGrid chunks(const WgradProblem& problem) const {
    return chunk_grid(problem, chunk_pixels ? chunk_pixels(problem) : kMaxChunkPixels);
  }
};

// Returns the one table of kernels. Every kernel the program has is written out there.
std::span<const Kernel> kernels();

// Returns the named kernel, or throws Error(usage) with a suggestion if there is none.
const Kernel& find_kernel(std::string_view name);

// Corrects the kernel's estimate for how this processor does its instructions.
double estimated_seconds(const Kernel& kernel, const WgradProblem& problem, const Machine& machine);

// Kernels are asked about the problem, or, where its gradient is empty, about the same with
// channels that they can count and divide by. Nothing is added to an empty gradient.
WgradProblem with_channels(const WgradProblem& problem);

// Returns that, for kernels on the processor with images of one pixel, of which a chunk holds all,
// as one image that is a row of them: what they do for each row is then done once.
WgradProblem seen_by_kernels(const WgradProblem& problem);

// Returns the kernel of the least estimated time among those that can compute the problem, or the
// named one; or Error(unavailable) with its sentence if that cannot.
Feasible<const Kernel*> find_kernel(const WgradProblem& problem, const Machine& machine,
                                    std::string_view name = "auto");

}  // namespace convgrad
