// dtype.cpp - see dtype.hpp.
#include "convgrad/dtype.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace convgrad {
namespace {

struct Format {
  std::array<std::string_view, 4> names;  // its own first; "" is none
  std::int64_t bytes;
  double unit_roundoff, smallest_subnormal, smallest_normal, largest_finite;
};

constexpr std::array<Format, 4> kFormats = {{
    {{"float16", "half", "f16", "f2"}, 2, 0x1p-11, 0x1p-24, 0x1p-14, 65504.0},
    {{"bfloat16", "bf16"}, 2, 0x1p-8, 0x1p-133, 0x1p-126, 0x1.fep127},
    {{"float32", "float", "f32", "f4"}, 4, 0x1p-24, 0x1p-149, 0x1p-126, 0x1.fffffep127},
    {{"float64", "double", "f64", "f8"}, 8, 0x1p-53, 0x1p-1074, 0x1p-1022, 0x1.fffffffffffffp1023},
}};

const Format& format(DType dtype) { return kFormats[static_cast<std::size_t>(dtype)]; }

// Rounds to a 16-bit format with the given widths of exponent and fraction, nearest, ties to even.
std::uint16_t narrow(double value, int exponent_bits, int fraction_bits) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 63) << 15);
  const int exponent = static_cast<int>((bits >> 52) & 0x7ff);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const std::uint64_t infinity = ((std::uint64_t{1} << exponent_bits) - 1) << fraction_bits;
  if (exponent == 0x7ff) {
    const std::uint64_t quiet = fraction != 0 ? std::uint64_t{1} << (fraction_bits - 1) : 0;
    return static_cast<std::uint16_t>(sign | infinity | quiet);
  }
  if (exponent == 0) return sign;  // below 2^-1022: far under the smallest subnormal

  const int bias = (1 << (exponent_bits - 1)) - 1;
  int biased = exponent - 1023 + bias;
  int shift = 52 - fraction_bits;
  if (biased < 1) {  // a subnormal result has no implicit bit and a fixed exponent
    shift += 1 - biased;
    biased = 1;
    if (shift > 54) return sign;
  }
  const std::uint64_t significand = fraction | (std::uint64_t{1} << 52);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  const std::uint64_t rest = significand & ((half << 1) - 1);
  std::uint64_t kept = significand >> shift;
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  // kept carries the implicit bit, which adds one to the exponent field of a normal number.
  const std::uint64_t magnitude = (static_cast<std::uint64_t>(biased - 1) << fraction_bits) + kept;
  return static_cast<std::uint16_t>(sign | (magnitude < infinity ? magnitude : infinity));
}

// The same for kBatch values whose results are normal numbers, without branches, so that it is
// vectorized; false if some result is not, and destination is undefined then.
constexpr std::int64_t kBatch = 32;
template <int ExponentBits, int FractionBits>
inline bool narrow_normal(const double* source, std::uint16_t* destination) {
  constexpr int kShift = 52 - FractionBits;
  constexpr std::uint64_t kRebias = std::uint64_t{1023 - ((1 << (ExponentBits - 1)) - 1)} << 52;
  constexpr std::uint64_t kSmallest = kRebias + (std::uint64_t{1} << 52);
  constexpr std::uint64_t kLargest = (((std::uint64_t{1} << ExponentBits) - 1) << FractionBits) - 1;
  constexpr std::uint64_t kJustUnderHalf = (std::uint64_t{1} << (kShift - 1)) - 1;
  std::uint64_t outside = 0;
  for (std::int64_t i = 0; i < kBatch; ++i) {
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(source[i]);
    const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
    const std::uint64_t up = kJustUnderHalf + ((magnitude >> kShift) & 1);
    const std::uint64_t value = (magnitude + up - kRebias) >> kShift;
    outside |= (magnitude - kSmallest) | (kLargest - value);  // the top bit: negative
    destination[i] = static_cast<std::uint16_t>((bits >> 63 << 15) | value);
  }
  return (outside >> 63) == 0;
}

// Compiled for several instruction sets, of which the loader takes the best.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CONVGRAD_VECTOR_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define CONVGRAD_VECTOR_CLONES
#endif
CONVGRAD_VECTOR_CLONES bool narrow_halves(const double* source, std::uint16_t* destination) {
  return narrow_normal<5, 10>(source, destination);
}
CONVGRAD_VECTOR_CLONES bool narrow_bfloat16s(const double* source, std::uint16_t* destination) {
  return narrow_normal<8, 7>(source, destination);
}

template <typename Scalar>
void round_all(const double* source, std::int64_t count, Scalar* destination) {
  std::int64_t i = 0;
  if constexpr (sizeof(Scalar) == 2) {
    const auto narrow_batch = std::is_same_v<Scalar, Float16> ? narrow_halves : narrow_bfloat16s;
    std::uint16_t batch[kBatch];
    for (; i + kBatch <= count; i += kBatch) {
      if (narrow_batch(source + i, batch)) {
        std::memcpy(destination + i, batch, sizeof batch);
      } else {
        for (std::int64_t j = i; j < i + kBatch; ++j)
          destination[j] = from_double<Scalar>(source[j]);
      }
    }
  }
  for (; i < count; ++i) destination[i] = from_double<Scalar>(source[i]);
}

}  // namespace

std::string_view dtype_name(DType dtype) { return format(dtype).names[0]; }
std::int64_t dtype_bytes(DType dtype) { return format(dtype).bytes; }
double unit_roundoff(DType dtype) { return format(dtype).unit_roundoff; }
double smallest_subnormal(DType dtype) { return format(dtype).smallest_subnormal; }
double smallest_normal(DType dtype) { return format(dtype).smallest_normal; }
double largest_finite(DType dtype) { return format(dtype).largest_finite; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const auto& names = format(dtype).names;
    if (!name.empty() && std::ranges::find(names, name) != names.end()) return dtype;
  }
  return std::nullopt;
}

DType accumulator_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

std::uint16_t half_bits(double value) { return narrow(value, 5, 10); }
std::uint16_t bfloat16_bits(double value) { return narrow(value, 8, 7); }

void round_to(DType dtype, const double* source, std::int64_t count, void* destination) {
  with_scalar(dtype, [&](auto scalar) {
    round_all(source, count, static_cast<decltype(scalar)*>(destination));
  });
}

double rounded(DType dtype, double value) {
  return with_scalar(dtype,
                     [&](auto scalar) { return to_double(from_double<decltype(scalar)>(value)); });
}

}  // namespace convgrad
