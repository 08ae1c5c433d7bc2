// dtype.hpp - the element types and their conversions.
//
// Four are computed with and written. The 8-bit floats are only read: widen_in_place() makes one
// of the four of them. Their definitions are those of ml_dtypes and ONNX: fn has no infinities,
// fnuz neither infinities nor a negative zero, whose bits are its NaN.
//
// float16 is IEEE 754 binary16, bfloat16 the upper half of a binary32. Widening is exact. Narrowing
// rounds once, from double, to nearest with ties to even: going through float first would round
// twice. NaN stays NaN (quiet, sign kept), overflow gives infinity, underflow gives subnormals.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "convgrad/float16.hpp"

namespace convgrad {

// Holds all, the four first.
inline constexpr DType kStoredDTypes[] = {DType::f16,      DType::bf16,    DType::f32,
                                          DType::f64,      DType::e4m3fn,  DType::e5m2,
                                          DType::e4m3fnuz, DType::e5m2fnuz};

inline constexpr bool is_float8(DType dtype) { return dtype > DType::f64; }

std::string_view dtype_name(DType dtype);  // "float16", "bfloat16", ...
// Knows the four, also as f2, half, bf16, float, double, ...
std::optional<DType> dtype_from_name(std::string_view name);
// Knows the 8-bit floats too: float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz.
std::optional<DType> stored_dtype_from_name(std::string_view name);
std::int64_t dtype_bytes(DType dtype);

struct DTypeLimits {
  double unit_roundoff;  // half the distance from 1 to the next number
  double smallest_subnormal, smallest_normal, largest_finite;
};
// By dtype.
inline constexpr DTypeLimits kDTypeLimits[] = {
    {0x1p-11, 0x1p-24, 0x1p-14, 65504.0},
    {0x1p-8, 0x1p-133, 0x1p-126, 0x1.fep127},
    {0x1p-24, 0x1p-149, 0x1p-126, 0x1.fffffep127},
    {0x1p-53, 0x1p-1074, 0x1p-1022, 0x1.fffffffffffffp1023},
    {0x1p-4, 0x1p-9, 0x1p-6, 448.0},
    {0x1p-3, 0x1p-16, 0x1p-14, 57344.0},
    {0x1p-4, 0x1p-10, 0x1p-7, 240.0},
    {0x1p-3, 0x1p-17, 0x1p-15, 57344.0}};
inline constexpr const DTypeLimits& dtype_limits(DType dtype) {
  return kDTypeLimits[static_cast<std::size_t>(dtype)];
}
inline double unit_roundoff(DType dtype) { return dtype_limits(dtype).unit_roundoff; }
inline double smallest_subnormal(DType dtype) { return dtype_limits(dtype).smallest_subnormal; }
inline double smallest_normal(DType dtype) { return dtype_limits(dtype).smallest_normal; }
inline double largest_finite(DType dtype) { return dtype_limits(dtype).largest_finite; }

// Returns the narrowest of the four that has every number of both, in which they are multiplied:
// bfloat16 for 8-bit floats, float32 for float16 with bfloat16.
DType common_dtype(DType a, DType b);

// Returns the type in which products of this dtype are summed: float32, or float64 for float64.
DType accumulator_dtype(DType dtype);

std::uint16_t half_bits(double value);      // value rounded to float16
std::uint16_t bfloat16_bits(double value);  // value rounded to bfloat16
// Rounds value to an 8-bit float; past the largest it is infinity, or NaN where there is none.
std::uint8_t float8_bits(DType dtype, double value);

inline float to_float(Float16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity and NaN: exponent all ones, payload kept
    return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  }
  if (magnitude < 0x0400u) {  // zero and subnormals: magnitude * 2^-24, exact in float
    const float scaled = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
}
inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
inline float to_float(float value) { return value; }
inline double to_double(Float16 value) { return to_float(value); }
inline double to_double(BFloat16 value) { return to_float(value); }
inline double to_double(float value) { return value; }
inline double to_double(double value) { return value; }

template <typename Scalar>
Scalar from_double(double value) {
  if constexpr (std::is_same_v<Scalar, Float16>) {
    return {half_bits(value)};
  } else if constexpr (std::is_same_v<Scalar, BFloat16>) {
    return {bfloat16_bits(value)};
  } else {
    return static_cast<Scalar>(value);
  }
}

// Calls f with a value of the C++ type that stores dtype, one of the four: f(Float16{}),
// f(float{}), ...
template <typename Function>
decltype(auto) with_scalar(DType dtype, Function&& f) {
  switch (dtype) {
    case DType::f16:
      return f(Float16{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::f32:
      return f(float{});
    default:
      return f(double{});
  }
}

// Rounds count doubles to dtype, into destination, which has count * dtype_bytes(dtype) bytes.
void round_to(DType dtype, const double* source, std::int64_t count, void* destination);
// Rounds value to dtype and widens it again.
double rounded(DType dtype, double value);

// Widens count elements, exactly. They lie at the end of the space for the widened ones: from
// values + count * (bytes of to - bytes of from) on. to is one of the four, and has every number of
// from.
void widen_in_place(DType from, DType to, std::int64_t count, std::byte* values);

}  // namespace convgrad
