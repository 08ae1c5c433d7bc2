// kernel.cpp - see kernel.hpp: what a gradient is cut into, and how kernels see a problem.
#include "engine/kernel.hpp"

#include <algorithm>

#include "base/integers.hpp"

namespace convgrad {

std::int64_t tile_count(const WgradProblem& problem, const TileSteps& steps) {
  const std::int64_t k_parts = steps.whole_groups
                                   ? ceil_div(problem.K, steps.k)
                                   : problem.groups * ceil_div(problem.group_k(), steps.k);
  return k_parts * ceil_div(problem.taps(), steps.tap) * ceil_div(problem.group_c(), steps.c);
}

// Input channels are innermost: neighbouring tasks read the same part of dy.
std::vector<Tile> tiles_of(const WgradProblem& problem, const TileSteps& steps) {
  std::vector<Tile> tiles;
  tiles.reserve(static_cast<std::size_t>(tile_count(problem, steps)));
  const std::int64_t group = steps.whole_groups ? problem.K : problem.group_k();
  for (std::int64_t begin = 0; begin < problem.K; begin += group) {
    for (std::int64_t k = begin; k < begin + group; k += steps.k) {
      for (std::int64_t tap = 0; tap < problem.taps(); tap += steps.tap) {
        for (std::int64_t c = 0; c < problem.group_c(); c += steps.c) {
          tiles.push_back({{tap, std::min(tap + steps.tap, problem.taps())},
                           {c, std::min(c + steps.c, problem.group_c())},
                           {k, std::min(k + steps.k, begin + group)}});
        }
      }
    }
  }
  return tiles;
}

WgradProblem with_channels(const WgradProblem& problem) {
  WgradProblem result = problem;
  result.C = std::max(problem.C, problem.groups);
  result.K = std::max(problem.K, problem.groups);
  return result;
}

WgradProblem seen_by_kernels(const WgradProblem& problem) {
  WgradProblem result = with_channels(problem);
  const bool is_pixel = std::ranges::all_of(problem.axis, [](const SpatialAxis& axis) {
    return axis.in == 1 && axis.out == 1 && axis.taps == 1 && axis.pad_before == 0;
  });
  if (!is_pixel || problem.N < 2 || problem.N > kMaxChunkPixels) return result;
  result.N = 1;
  result.axis[2] = {problem.N, problem.N};
  result.channels_last = true;
  return result;
}

}  // namespace convgrad
