// tile_rows.hpp - the rows of a partial gradient that belong to a tile.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/kernel.hpp"

namespace convgrad {

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

}  // namespace convgrad
