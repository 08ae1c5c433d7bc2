// first_sums.hpp - lets the first sums of a tile take the place of what its partial held: a pass
// over a partial to clear it takes as long as many a small layer's products.
#pragma once

#include <utility>

#include "engine/kernel.hpp"

namespace convgrad {

// Only if all taps see x every element of the tile gets a sum from the chunk.
inline bool all_taps_see_x(const WgradProblem& problem, const PixelBox& box) {
  for (std::size_t a = 0; a < 3; ++a) {
    const SpatialAxis& axis = problem.axis[a];
    for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
      if (intersect(box[a + 1], outputs_inside(axis, tap)).size() <= 0) return false;
    }
  }
  return true;
}

// Is called before each chunk; `fresh` is what Kernel::accumulate gets, and false after the first.
// Returns true if the chunk's sums are to be stored, else they are added. `adds` is false for a
// chunk that is left to another kernel, which adds always.
inline bool stores_first(const WgradProblem& problem, const Tile& tile, const PixelBox& box,
                         bool adds, bool& fresh, double* partial) {
  const bool is_first = std::exchange(fresh, false);
  const bool stores = is_first && adds && all_taps_see_x(problem, box);
  if (is_first && !stores) clear_tile(problem, tile, partial);
  return stores;
}

}  // namespace convgrad
