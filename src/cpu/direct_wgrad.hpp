// direct_wgrad.hpp - the definition with its loops reordered, without im2col, for every problem and
// for the chunks that other kernels leave to it.
#pragma once

#include "engine/kernel.hpp"

namespace convgrad {

// Kernels that cannot add a chunk resort to this: it multiplies only what is in x, by IEEE
// arithmetic. Adds the products of one chunk's pixels to a tile of partial ([tap][c][k], float64).
// workspace holds kMaxChunkPixels elements of the accumulator's type for each of the tile's c and
// k, aligned to 64.
void direct_chunk(const WgradProblem& problem, const Block& block, const PixelBox& box,
                  const Tile& tile, std::byte* workspace, double* partial);

// Calls work.add_chunk(box, next, partial) for each chunk of the run; next is the box of the one
// after it or null. A chunk for which it returns false, because dy is not finite where its packed x
// holds zeros for padding, goes to direct_chunk().
template <typename Work>
void add_chunks(Work& work, const WgradProblem& problem, const ChunkGrid& grid, const Block& block,
                const ChunkRun& run, const Tile& tile, std::byte* workspace, double* partial) {
  for (std::int64_t chunk = run.begin; chunk < run.end; chunk += run.step) {
    const PixelBox box = grid.box(chunk);
    const bool last = chunk + run.step >= run.end;
    const PixelBox next = last ? box : grid.box(chunk + run.step);
    if (work.add_chunk(box, last ? nullptr : &next, partial)) continue;
    for (std::int64_t k = tile.k.begin; k < tile.k.end; k += problem.group_k()) {
      const Range group = {k, std::min(k + problem.group_k(), tile.k.end)};
      direct_chunk(problem, block, box, {tile.tap, tile.c, group}, workspace, partial);
    }
  }
}

}  // namespace convgrad
