// direct_wgrad.hpp - the definition with its loops reordered, no im2col, for every problem: on its
// own, and for the chunks that other kernels leave to it.
#pragma once

#include "engine/kernel.hpp"

namespace convgrad {

// The resort of kernels that cannot add a chunk: it multiplies only what is in x, by IEEE
// arithmetic. Adds the products of one chunk's pixels to a tile of partial ([tap][c][k], float64).
// workspace holds kMaxChunkPixels elements of the accumulator's type for each of the tile's c and
// k, aligned to 64. A tile may cover several groups only if it covers all c of each.
void direct_chunk(const WgradProblem& problem, const Block& block, const PixelBox& box,
                  const Tile& tile, std::byte* workspace, double* partial);

// work.add_chunk(box, next, partial) for each chunk of the run, next the box of the one after it or
// null; a chunk that it returns false for, because dy is not finite where its packed x holds zeros
// for padding, goes to direct_chunk().
template <typename Work>
void add_chunks(Work& work, const WgradProblem& problem, const ChunkGrid& grid, const Block& block,
                const ChunkRun& run, const Tile& tile, std::byte* workspace, double* partial) {
  for (std::int64_t chunk = run.begin; chunk < run.end; chunk += run.step) {
    const PixelBox box = grid.box(chunk);
    const bool last = chunk + run.step >= run.end;
    const PixelBox next = last ? box : grid.box(chunk + run.step);
    if (!work.add_chunk(box, last ? nullptr : &next, partial)) {
      direct_chunk(problem, block, box, tile, workspace, partial);
    }
  }
}

}  // namespace convgrad
