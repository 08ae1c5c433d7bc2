// amx_kernel.hpp - outer_product_amx as a row of the table of kernels, by the tiles and vectors
// that it is given: those of the processor, or what tests have in their place.
#pragma once

#include "cpu/amx/amx_chunk.hpp"
#include "cpu/kernels.hpp"
#include "engine/kernel.hpp"

namespace convgrad {

// `otherwise` multiplies and adds the chunks whose numbers are too small or too large for AMX.
template <const AmxTiles& amx, const AmxVectors& vectors, const Kernel& otherwise>
class AmxKernel {
 public:
  static constexpr Kernel kernel(std::string_view name, std::string_view summary,
                                 decltype(Kernel::why_not) why_not) {
    return {
        .name = name,
        .summary = summary,
        .why_not = why_not,
        .estimated_seconds = estimated_seconds,
        .tile_steps = [](const WgradProblem& problem) { return plan_of(problem).steps; },
        .workspace_bytes = workspace_bytes,
        .accumulate = accumulate,
        .chunk_pixels = [](const WgradProblem& problem) { return plan_of(problem).chunk_pixels; },
        .stores = true,
        .by_tiles = true};
  }

 private:
  static const AmxPlan& plan_of(const WgradProblem& problem) {
    return amx_plan(problem, amx.f16_terms);
  }

  static std::int64_t workspace_bytes(const WgradProblem& problem) {
    return std::max(amx_workspace(problem, plan_of(problem), nullptr).bytes,
                    otherwise.workspace_bytes(problem));
  }

  // Adds one chunk by another kernel, whose tiles and chunks may be smaller.
  static void accumulate_chunk(const WgradProblem& problem, const ChunkGrid& grid,
                               const Block& block, std::int64_t chunk, const Tile& tile,
                               std::byte* workspace, double* partial) {
    TileSums sums = {partial};
    const ChunkGrid fine = otherwise.chunks(problem);
    const BlockGrid chunks = {fine,      {0, grid.extent[0]}, grid.axis,
                              grid.step, grid.pieces,         grid.count};
    const Range its = chunks.chunk_range(chunk);
    const TileSteps steps = otherwise.tile_steps(problem);
    for (std::int64_t k = tile.k.begin; k < tile.k.end; k += steps.k) {
      for (std::int64_t c = tile.c.begin; c < tile.c.end; c += steps.c) {
        const Tile part = {tile.tap,
                           {c, std::min(c + steps.c, tile.c.end)},
                           {k, std::min(k + steps.k, tile.k.end)}};
        otherwise.accumulate(problem, fine, block, {its.begin, its.end, 1}, part, workspace, sums);
      }
    }
  }

  static void accumulate(const WgradProblem& problem, const ChunkGrid& grid, const Block& block,
                         const ChunkRun& run, const Tile& tile, std::byte* workspace,
                         TileSums& sums) {
    AmxChunks work(amx, vectors, problem, block, tile, workspace, sums.fresh);
    for (std::int64_t chunk = run.begin; chunk < run.end; chunk += run.step) {
      if (work.add_chunk(grid.box(chunk), sums.partial)) continue;
      accumulate_chunk(problem, grid, block, chunk, tile, workspace, sums.partial);
    }
  }

  // All tiles and chunks count alike: the last ones are smaller, but groups and channels that fill
  // no tile cost as much, which keeps small problems from being given to AMX.
  static double estimated_seconds(const WgradProblem& problem) {
    constexpr double kStart = 3e-6;  // of the tiles
    const AmxPlan& plan = plan_of(problem);
    const auto tiles = static_cast<double>(tile_count(problem, plan.steps));
    return static_cast<double>(chunk_grid(problem, plan.chunk_pixels).count) * tiles *
               plan.chunk_seconds +
           kStart;
  }
};

}  // namespace convgrad
