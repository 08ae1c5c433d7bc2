// terms.hpp - a float32 as the sum of three bfloat16: each is what the ones before leave, rounded.
//
// That is exact from 2^-103 on, as a float32 has 24 bits and a term 8. Of the nine products of two
// such sums six are formed, the smallest first; the others are below half a unit of float32.
#pragma once

#include "cuda/kernels/host_device.hpp"

namespace convgrad::cuda {

// Stands for such a float32.
struct Bf16x3 {};

// In what form kernels have x and dy: Elements, of which so many are a number.
template <typename Scalar>
struct TermsOf {
  using Element = Scalar;
  static constexpr int kTerms = 1;
};
template <>
struct TermsOf<Bf16x3> {
  using Element = BFloat16;
  static constexpr int kTerms = 3;
};

// Products are of these terms, the last of the largest ones. What has one term has no other.
inline constexpr int kProducts = 6, kLastProduct = 5;
CONVGRAD_HD constexpr std::uint32_t dy_term(int product) { return 0x001012u >> 4 * product & 3u; }
CONVGRAD_HD constexpr std::uint32_t x_term(int product) { return 0x010210u >> 4 * product & 3u; }

// A number that is no such sum is in two terms as it is. The first is NaN, as are sums of products.
CONVGRAD_HD void cut(std::uint32_t bits, std::uint16_t (&terms)[3]) {
  constexpr std::uint32_t kLeast = (127 - 103) << 23, kRoundsToInfinity = 0x7f7f8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude != 0 && (magnitude < kLeast || magnitude >= kRoundsToInfinity)) {
    terms[0] = 0x7fc0;
    terms[1] = static_cast<std::uint16_t>(bits >> 16);
    terms[2] = static_cast<std::uint16_t>(bits);
    return;
  }
  CONVGRAD_UNROLL
  for (int i = 0; i < 3; ++i) {
    terms[i] = static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    bits = float_bits(bits_float(bits) - convert<float>(BFloat16{terms[i]}));
  }
}
template <typename Element>
CONVGRAD_HD void cut(Element bits, Element (&terms)[1]) {
  terms[0] = bits;
}

// Returns what was cut.
CONVGRAD_HD float whole(const BFloat16 (&terms)[3]) {
  const float first = convert<float>(terms[0]);
  if (first == first) return first + (convert<float>(terms[1]) + convert<float>(terms[2]));
  return bits_float(static_cast<std::uint32_t>(terms[1].bits) << 16 | terms[2].bits);
}

}  // namespace convgrad::cuda
