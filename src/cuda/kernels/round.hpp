// round.hpp - rounds float64 sums on a device to the bits that round_to() (dtype.hpp) gives.
//
// Instructions of devices would do, were it not for NaN, which they give other bits.
#pragma once

#include "cuda/kernels/host_device.hpp"

namespace convgrad::cuda {

// Rounds once, to nearest, ties to even. Of the fraction the upper 20 bits are kept, and whether
// there is anything below: all that decides, in 32 bits, for which devices have units.
template <int kExponentBits, int kFractionBits>
CONVGRAD_HD std::uint16_t narrow(double value) {
  const std::uint64_t all = double_bits(value);
  const auto low = static_cast<std::uint32_t>(all), high = static_cast<std::uint32_t>(all >> 32);
  const std::uint32_t sign = high >> 31 << 15;
  const std::uint32_t bits = (high & 0x7fffffffu) | (low != 0 ? 1u : 0u);
  constexpr std::uint32_t kInfinity = ((1u << kExponentBits) - 1) << kFractionBits;
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  if (bits > 0x7ff00000u) {
    return static_cast<std::uint16_t>(sign | kInfinity | 1u << (kFractionBits - 1));
  }
  // A subnormal result has no implicit bit and a fixed exponent.
  int above = static_cast<int>(bits >> 20) - 1023 + kBias - 1, shift = 20 - kFractionBits;
  if (above < 0) {
    shift = least(shift - above, 22);  // by 22 nothing is left
    above = 0;
  }
  const std::uint32_t significand = (bits & 0xfffffu) | 0x100000u;
  const std::uint32_t odd = significand >> shift & 1u;
  const std::uint32_t kept = (significand + (1u << (shift - 1)) - 1 + odd) >> shift;
  // kept carries the implicit bit, which adds one to the exponent of a normal number.
  const std::uint32_t magnitude = (static_cast<std::uint32_t>(above) << kFractionBits) + kept;
  return static_cast<std::uint16_t>(sign | least(magnitude, kInfinity));
}

// NaN keeps its sign and the upper bits of the rest.
CONVGRAD_HD float narrow_to_float(double value) {
  const std::uint64_t bits = double_bits(value);
  if (value == value) return static_cast<float>(value);
  return bits_float((static_cast<std::uint32_t>(bits >> 32) & 0x80000000u) | 0x7fc00000u |
                    (static_cast<std::uint32_t>(bits >> 29) & 0x3fffffu));
}

CONVGRAD_HD void write_as(DType dtype, double value, void* to, std::int64_t at) {
  switch (dtype) {
    case DType::f16:
      static_cast<std::uint16_t*>(to)[at] = narrow<5, 10>(value);
      break;
    case DType::bf16:
      static_cast<std::uint16_t*>(to)[at] = narrow<8, 7>(value);
      break;
    case DType::f32:
      static_cast<float*>(to)[at] = narrow_to_float(value);
      break;
    default:
      static_cast<double*>(to)[at] = value;
      break;
  }
}

}  // namespace convgrad::cuda
