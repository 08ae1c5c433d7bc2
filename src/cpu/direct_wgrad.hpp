// direct_wgrad.hpp - the definition with its loops reordered, no im2col, for every problem.
#pragma once

#include "convgrad/kernel.hpp"

namespace convgrad {

// Adds the products of one chunk's pixels to a tile of partial ([tap][c][k], float64). workspace
// holds direct_workspace_elements(tile) of the accumulator's type, aligned to 64.
// A tile may cover several groups only if it covers all c of each.
void direct_chunk(const WgradProblem& problem, const Block& block, const PixelBox& box,
                  const Tile& tile, std::byte* workspace, double* partial);
std::int64_t direct_workspace_elements(const Tile& tile);

extern const Kernel kDirectKernel;

}  // namespace convgrad
