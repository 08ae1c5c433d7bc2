// isa_set.hpp - functions that the drivers of the register-tile kernels share.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "base/integers.hpp"
#include "convgrad/problem.hpp"
#include "cpu/isa/isa.hpp"
#include "engine/machine.hpp"
#include "problem/schedule.hpp"

namespace convgrad {

template <typename Acc>
const IsaTable<Acc>& isa_table(const IsaSet& set) {
  if constexpr (sizeof(Acc) == 8) {
    return set.f64;
  } else {
    return set.f32;
  }
}

// Returns the largest extent of a chunk along n, z, p, q, which panels and workspaces have to hold:
// at most most_pixels together, also where there is no chunk because a tensor is empty.
inline std::array<std::int64_t, 4> chunk_extent(const WgradProblem& problem,
                                                std::int64_t most_pixels = kMaxChunkPixels) {
  const ChunkGrid grid = chunk_grid(problem, most_pixels);
  std::array<std::int64_t, 4> extent = {1, 1, 1, 1};
  if (grid.count == 0) return extent;
  const auto axis = static_cast<std::size_t>(grid.axis);
  extent[axis] = grid.step;
  for (std::size_t a = axis + 1; a < 4; ++a) extent[a] = grid.extent[a];
  return extent;
}

// Counts the input positions that an axis' taps span from `outputs` neighbouring output positions.
inline std::int64_t spanned_inputs(const SpatialAxis& axis, std::int64_t outputs) {
  return (outputs - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1;
}

// Tells whether some tap sees positions outside x along an axis: then zeros of a panel meet dy,
// which must be finite.
inline bool sees_padding(const SpatialAxis& axis) {
  return axis.pad_before > 0 || spanned_inputs(axis, axis.out) - axis.pad_before > axis.in;
}

// These return "", or which instructions of those that isa_*.cpp are compiled for are missing.
inline std::string lacks_avx512(const Machine& machine) {
  return lacks(machine, {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c"});
}
inline std::string lacks_avx2(const Machine& machine) {
  return lacks(machine, {"avx2", "fma", "f16c"});
}
inline std::string lacks_neon(const Machine& machine) { return lacks(machine, {"neon"}); }
inline std::string lacks_nothing(const Machine&) { return ""; }

inline std::string first_of(std::string reason, std::string other) {
  return reason.empty() ? other : reason;
}
inline std::string lacks_avx512_bf16(const Machine& machine) {
  return first_of(lacks_avx512(machine), lacks(machine, {"avx512_bf16"}));
}

}  // namespace convgrad
