// first_sums.hpp - lets the first sums of a tile take the place of what its partial held: a pass
// over a partial to clear it takes as long as many a small layer's products.
#pragma once

#include "engine/kernel.hpp"

namespace convgrad {

class FirstSums {
 public:
  // fresh is what Kernel::accumulate gets.
  FirstSums(const WgradProblem& problem, const Tile& tile, bool fresh)
      : problem_(problem), tile_(tile), fresh_(fresh) {}

  // Is called before each chunk. Returns true if its sums are to be stored, else they are added.
  // `adds` is false for a chunk that is left to another kernel, which adds always.
  bool are_of(const PixelBox& box, bool adds, double* partial) {
    const bool stores = fresh_ && adds && all_taps_see_x(box);
    if (fresh_ && !stores) clear_tile(problem_, tile_, partial);
    fresh_ = false;
    return stores;
  }

 private:
  // Only then every element of the tile gets a sum from the chunk.
  bool all_taps_see_x(const PixelBox& box) const {
    for (std::size_t a = 0; a < 3; ++a) {
      const SpatialAxis& axis = problem_.axis[a];
      for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
        if (intersect(box[a + 1], outputs_inside(axis, tap)).size() <= 0) return false;
      }
    }
    return true;
  }

  const WgradProblem& problem_;
  const Tile& tile_;
  bool fresh_;
};

}  // namespace convgrad
