// chunk_walker_test.cpp - the device's walk along the chunks of a slice against the schedule's.
#include "cuda/kernels/chunk_walker.hpp"

#include <doctest/doctest.h>

#include "cuda/choices.hpp"
#include "support/problems.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

PixelBox pixels_of(const cuda::Box& box) {
  PixelBox result;
  for (std::size_t a = 0; a < 4; ++a) {
    const std::int64_t begin = a == 0 ? box.n : box.begin[a - 1];
    result[a] = {begin, begin + box.size[a]};
  }
  return result;
}

// What device_adder.hpp passes to kernels of the cut.
cuda::BlockParams params_of(const ChunkGrid& grid, const SliceGrid& slices, Range within) {
  cuda::BlockParams work{};
  work.chunks = cuda::chunks_of(grid);
  work.chunk_count = slices.chunks;
  work.unit = slices.unit;
  work.partitions = slices.partitions;
  work.interleave = slices.interleave;
  work.chunk_begin = within.begin;
  work.chunk_end = within.end;
  work.tiles = 1;
  return work;
}

}  // namespace

TEST_CASE("a walk has the chunks of a slice in turn, as the schedule cuts them") {
  std::vector<ProblemSpec> problems = basic_problems();
  for (const ProblemSpec& spec : many_block_problems()) problems.push_back(spec);
  problems.push_back({"many images", "conv2d", 1000, 8, 8, 1, {{24, 3}, {31, 3}}});
  problems.push_back({"pieces of planes", "conv3d", 5, 8, 8, 1, {{7, 3}, {37, 3}, {41, 3}}});
  problems.push_back({"pieces of rows", "conv3d", 3, 8, 8, 1, {{5, 3}, {7, 3}, {1203, 3}}});
  for (const ProblemSpec& spec : problems) {
    CAPTURE(spec.name);
    const ChunkGrid grid = chunk_grid(make(spec, DType::f32, true));
    for (const std::int64_t wanted : {1, 2, 7, 60, 4096}) {
      CAPTURE(wanted);
      const SliceGrid slices =
          deal_slices(grid, std::min(wanted, std::max<std::int64_t>(grid.count, 1)), 8, 4096);
      const Range withins[] = {{0, grid.count}, {grid.count / 3, grid.count * 2 / 3}};
      for (const Range within : withins) {
        const cuda::BlockParams work = params_of(grid, slices, within);
        for (std::int64_t slice = 0; slice < slices.count(); ++slice) {
          CAPTURE(slice);
          const ChunkRun run = slices.chunks_of(slice, within);
          cuda::ChunkWalker walk(work, slice);
          bool same = true;
          for (std::int64_t chunk = run.begin; chunk < run.end; chunk += run.step, walk.next()) {
            same = same && !walk.done() && pixels_of(walk.box()) == grid.box(chunk);
          }
          CHECK(same);
          CHECK(walk.done());
        }
      }
    }
  }
}
