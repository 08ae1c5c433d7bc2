// amx_context.hpp - what the parts of outer_product_amx know of a tile and of the chunk at work.
#pragma once

#include "cpu/amx/amx_workspace.hpp"
#include "cpu/shared/pack.hpp"

namespace convgrad {

using AmxTap = std::array<std::int64_t, 3>;  // along t, r and s

// One for a task, which is its thread's alone. Its plan and memory follow from the shape, so all
// tasks of a problem have the same; box, input and shape are the present chunk's.
struct AmxContext {
  AmxContext(const WgradProblem& problem, const Block& its_block, const Tile& its_tile,
             int f16_terms, std::byte* workspace)
      : pb(problem),
        block(its_block),
        tile(its_tile),
        plan(amx_plan(problem, f16_terms)),
        work(amx_workspace(problem, plan, workspace)),
        value_bytes(dtype_bytes(problem.dtype)),
        first_channel(tile.k.begin / problem.group_k() * problem.group_c() + tile.c.begin),
        channels(amx_channels(problem, plan.sharing, tile.c.size())) {}

  void start_chunk(const PixelBox& its_box) {
    box = its_box;
    input = input_box(pb, box);
    shape =
        amx_shape(pb, plan.sharing, {box[0].size(), box[1].size(), box[2].size(), box[3].size()});
    half = {box, box};
    Range& first = half[0][shape.split];
    Range& second = half[1][shape.split];
    first.end = second.begin = first.begin + shape.extent[shape.split];
    second.end = std::max(second.end, second.begin);
  }

  const WgradProblem& pb;
  const Block& block;
  const Tile& tile;
  const AmxPlan plan;
  const AmxWorkspace work;
  const std::int64_t value_bytes;    // in the file
  const std::int64_t first_channel;  // of x
  const std::int64_t channels;       // of x's panel
  PixelBox box;                      // the chunk
  std::array<PixelBox, 2> half;      // its halves, of which the second may be smaller, or empty
  std::array<Range, 3> input;        // what it sees
  AmxShape shape;
};

}  // namespace convgrad
