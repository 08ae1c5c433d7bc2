// isa_set.hpp - what the drivers of the register-tile kernels share.
#pragma once

#include <cstdint>
#include <string>

#include "convgrad/machine.hpp"
#include "convgrad/problem.hpp"
#include "cpu/outer_product_isa.hpp"

namespace convgrad {

template <typename Acc>
const OuterProductIsa<Acc>& isa_of(const OuterProductSet& set) {
  if constexpr (sizeof(Acc) == 8) {
    return set.f64;
  } else {
    return set.f32;
  }
}

// Input positions that the taps of one axis span from `outputs` neighbouring output positions.
inline std::int64_t spanned_inputs(const SpatialAxis& axis, std::int64_t outputs) {
  return (outputs - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1;
}

// Whether some tap sees positions outside x along an axis.
inline bool sees_padding(const SpatialAxis& axis) {
  return axis.pad_before > 0 || spanned_inputs(axis, axis.out) - axis.pad_before > axis.in;
}

// Empty, or which instructions of those that outer_product_avx*.cpp are compiled for are missing.
inline std::string lacks_avx512(const Machine& machine) {
  return lacks(machine, {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c"});
}
inline std::string lacks_avx2(const Machine& machine) {
  return lacks(machine, {"avx2", "fma", "f16c"});
}

}  // namespace convgrad
