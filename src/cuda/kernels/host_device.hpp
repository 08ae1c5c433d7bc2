// host_device.hpp - lets the kernels' code be compiled twice: for a device by nvcc, and as plain
// C++ that tests run on the processor. Nothing here may round differently on the two.
#pragma once

#include <cstdint>

#include "convgrad/float16.hpp"

// Arrays in registers need loops over them unrolled. The host's compiler knows no such pragma.
#if defined(__CUDACC__)
#include <cuda_fp16.h>
#define CONVGRAD_HD __device__ __forceinline__
#define CONVGRAD_UNROLL _Pragma("unroll")
#define CONVGRAD_NO_UNROLL _Pragma("unroll 1")
#else
#include "convgrad/dtype.hpp"
#define CONVGRAD_HD inline
#define CONVGRAD_UNROLL
#define CONVGRAD_NO_UNROLL
#endif

namespace convgrad::cuda {

inline constexpr int kWarp = 32;  // threads

// Bits are copied, as the processor lacks what devices have for this (__float_as_uint).
CONVGRAD_HD std::uint64_t double_bits(double value) {
  std::uint64_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}
CONVGRAD_HD std::uint32_t float_bits(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}
CONVGRAD_HD float bits_float(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// Conversion is exact for all: 16-bit values are converted before they are multiplied, never after.
template <typename Acc, typename Scalar>
CONVGRAD_HD Acc convert(Scalar value) {
  return static_cast<Acc>(value);
}
template <>
CONVGRAD_HD float convert<float, BFloat16>(BFloat16 value) {
  return bits_float(static_cast<std::uint32_t>(value.bits) << 16);
}
template <>
CONVGRAD_HD float convert<float, Float16>(Float16 value) {
#if defined(__CUDACC__)
  __half_raw raw;
  raw.x = value.bits;
  return __half2float(__half(raw));
#else
  return to_float(value);
#endif
}

// Converts both halves of a word, the first of them below.
CONVGRAD_HD void convert_pair(std::uint32_t word, BFloat16, float& first, float& second) {
  first = bits_float(word << 16);
  second = bits_float(word & 0xffff0000u);
}
CONVGRAD_HD void convert_pair(std::uint32_t word, Float16, float& first, float& second) {
#if defined(__CUDACC__)
  __half2 pair;
  __builtin_memcpy(&pair, &word, sizeof(pair));
  first = __low2float(pair);
  second = __high2float(pair);
#else
  first = to_float(Float16{static_cast<std::uint16_t>(word)});
  second = to_float(Float16{static_cast<std::uint16_t>(word >> 16)});
#endif
}

// Products of Scalar are summed in this type until a chunk ends (sum.hpp).
template <typename Scalar>
struct AccumulatorOf {
  using type = float;
};
template <>
struct AccumulatorOf<double> {
  using type = double;
};

// Looks at bits, not at std::isfinite: both sides are the same under any option of the compiler.
CONVGRAD_HD bool is_finite(float value) { return (float_bits(value) & 0x7f800000u) != 0x7f800000u; }
CONVGRAD_HD bool is_finite(double value) {
  return (double_bits(value) & 0x7ff0000000000000u) != 0x7ff0000000000000u;
}

// Returns the same number or pointer, which the compiler takes for another: a kernel's addresses of
// sums, needed before and after its loops, would otherwise be kept in registers all the way.
template <typename T>
CONVGRAD_HD T opaque(T value) {
#if defined(__CUDACC__)
  if constexpr (sizeof(T) == 4) {
    asm volatile("" : "+r"(value));
  } else {
    asm volatile("" : "+l"(value));
  }
#endif
  return value;
}

// Keeps the compiler from loading ahead what is used behind this, for which there are no registers.
CONVGRAD_HD void one_by_one() {
#if defined(__CUDACC__)
  asm volatile("" ::: "memory");
#endif
}

template <typename Integer>
CONVGRAD_HD constexpr Integer ceil_div(Integer a, Integer b) {
  return a / b + (a % b != 0 ? 1 : 0);
}
// Returns the remainder, and leaves the quotient.
template <typename Integer>
CONVGRAD_HD int take(Integer& number, int count) {
  const auto remainder = static_cast<int>(number % static_cast<Integer>(count));
  number /= static_cast<Integer>(count);
  return remainder;
}
template <typename Integer>
CONVGRAD_HD constexpr Integer least(Integer a, Integer b) {
  return a < b ? a : b;
}

}  // namespace convgrad::cuda
