#include "convgrad/dtype.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace convgrad {
namespace {

struct Format {
  std::array<std::string_view, 5> names;  // its own first; "" is none
  std::int64_t bytes;
};

constexpr std::array<Format, 8> kFormats = {{
    {{"float16", "half", "f16", "fp16", "f2"}, 2},
    {{"bfloat16", "bf16"}, 2},
    {{"float32", "float", "f32", "fp32", "f4"}, 4},
    {{"float64", "double", "f64", "fp64", "f8"}, 8},
    {{"float8_e4m3fn", "e4m3fn", "f8_e4m3"}, 1},
    {{"float8_e5m2", "e5m2", "f8_e5m2"}, 1},
    {{"float8_e4m3fnuz", "e4m3fnuz", "f8_e4m3fnuz"}, 1},
    {{"float8_e5m2fnuz", "e5m2fnuz", "f8_e5m2fnuz"}, 1},
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
  if (exponent == 0) return sign;  // below 2^-1022, far under the smallest subnormal

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

// Does what narrow() does for kBatch values whose results are normal numbers, without branches, so
// that it is vectorized. Returns false if some result is not; destination is undefined then.
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

// These are compiled for several instruction sets, of which the loader takes the best.
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
    // The last batch overlaps the one before, where the rest is no whole one.
    for (; i < count && count >= kBatch; i += kBatch) {
      i = std::min(i, count - kBatch);
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

// Each of the 256 bytes stands for one value.
using ByteValues = std::array<float, 256>;

constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// fnuz: the bits of -0 are NaN, and all others are finite. Else the largest exponent is that of
// infinity and NaN where there are infinities, and where there are none only all ones are NaN.
constexpr ByteValues byte_values(int fraction_bits, int bias, bool infinities, bool fnuz) {
  ByteValues values{};
  const int magnitudes = 128, fractions = 1 << fraction_bits;
  for (int m = 0; m < magnitudes; ++m) {
    const int exponent = m / fractions, fraction = m % fractions;
    const int significand = exponent > 0 ? fractions + fraction : fraction;
    float value = static_cast<float>(significand) *
                  power_of_two((exponent > 0 ? exponent : 1) - bias - fraction_bits);
    if (!fnuz && infinities && exponent == magnitudes / fractions - 1) {
      value = fraction == 0 ? std::numeric_limits<float>::infinity()
                            : std::numeric_limits<float>::quiet_NaN();
    } else if (!fnuz && !infinities && m == magnitudes - 1) {
      value = std::numeric_limits<float>::quiet_NaN();
    }
    const auto byte = static_cast<std::size_t>(m);
    values[byte] = value;
    values[128 + byte] = -value;
  }
  if (fnuz) values[128] = std::numeric_limits<float>::quiet_NaN();
  return values;
}

constexpr ByteValues kByteValues[] = {
    byte_values(3, 7, false, false), byte_values(2, 15, true, false),
    byte_values(3, 8, false, true), byte_values(2, 16, false, true)};

const ByteValues& byte_values(DType dtype) {
  return kByteValues[static_cast<std::size_t>(dtype) - static_cast<std::size_t>(DType::e4m3fn)];
}

// Copies elements out by batches: what is then written lies before what is still to be read.
template <typename From, typename To, typename Convert>
void widen_each(std::int64_t count, std::byte* values, const Convert& convert) {
  constexpr std::int64_t kElements = 1024;
  From batch[kElements];
  const std::byte* from = values + count * std::int64_t{sizeof(To) - sizeof(From)};
  for (std::int64_t begin = 0; begin < count; begin += kElements) {
    const std::int64_t n = std::min(kElements, count - begin);
    std::memcpy(batch, from + begin * std::int64_t{sizeof(From)},
                static_cast<std::size_t>(n) * sizeof(From));
    To* const to = reinterpret_cast<To*>(values) + begin;
    for (std::int64_t i = 0; i < n; ++i) to[i] = convert(batch[i]);
  }
}

}  // namespace

std::string_view dtype_name(DType dtype) { return format(dtype).names[0]; }
std::int64_t dtype_bytes(DType dtype) { return format(dtype).bytes; }
std::optional<DType> stored_dtype_from_name(std::string_view name) {
  for (const DType dtype : kStoredDTypes) {
    if (!name.empty() && std::ranges::count(format(dtype).names, name) > 0) return dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  const std::optional<DType> dtype = stored_dtype_from_name(name);
  return dtype && !is_float8(*dtype) ? dtype : std::nullopt;
}

DType common_dtype(DType a, DType b) {
  if (is_float8(a) && is_float8(b)) return DType::bf16;
  if (is_float8(a) || a == b) return b;
  if (is_float8(b)) return a;
  return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
}

DType accumulator_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

std::uint16_t half_bits(double value) { return narrow(value, 5, 10); }
std::uint16_t bfloat16_bits(double value) { return narrow(value, 8, 7); }

void round_to(DType dtype, const double* source, std::int64_t count, void* destination) {
  with_scalar(dtype, [&](auto scalar) {
    round_all(source, count, static_cast<decltype(scalar)*>(destination));
  });
}

void widen_in_place(DType from, DType to, std::int64_t count, std::byte* values) {
  if (from == to) return;
  with_scalar(to, [&]<typename To>(To) {
    if (is_float8(from)) {
      std::array<To, 256> widened;
      std::ranges::transform(byte_values(from), widened.begin(),
                             [](float value) { return from_double<To>(to_double(value)); });
      return widen_each<std::uint8_t, To>(count, values,
                                          [&](std::uint8_t byte) { return widened[byte]; });
    }
    with_scalar(from, [&]<typename From>(From) {
      if constexpr (sizeof(From) < sizeof(To)) {
        widen_each<From, To>(count, values,
                             [](From value) { return static_cast<To>(to_double(value)); });
      }
    });
  });
}

std::uint8_t float8_bits(DType dtype, double value) {
  const ByteValues& values = byte_values(dtype);
  const bool fnuz = dtype == DType::e4m3fnuz || dtype == DType::e5m2fnuz;
  const std::ptrdiff_t nan = fnuz ? 128 : 127;
  const std::ptrdiff_t largest = fnuz ? 127 : dtype == DType::e5m2 ? 123 : 126;
  if (std::isnan(value)) return static_cast<std::uint8_t>(nan);
  const double magnitude = std::fabs(value);
  const std::ptrdiff_t sign = std::signbit(value) ? 128 : 0;
  // The bits of positive numbers are in the order of the numbers.
  const auto above = std::lower_bound(values.begin(), values.begin() + largest, magnitude);
  std::ptrdiff_t bits = above - values.begin();
  if (bits == 0) return static_cast<std::uint8_t>(fnuz ? 0 : sign);
  const double half = (double{above[0]} - above[-1]) / 2, error = magnitude - *above;
  const bool odd = bits % 2 == 1;
  if (error < -half || (error == -half && odd)) --bits;
  if (error > half || (error == half && odd)) {  // past the largest, rounded as if numbers went on
    return static_cast<std::uint8_t>(dtype == DType::e5m2 ? sign | 124 : nan);
  }
  if (bits == 0 && fnuz) return 0;
  return static_cast<std::uint8_t>(sign | bits);
}

double rounded(DType dtype, double value) {
  if (is_float8(dtype)) return byte_values(dtype)[float8_bits(dtype, value)];
  return with_scalar(dtype,
                     [&](auto scalar) { return to_double(from_double<decltype(scalar)>(value)); });
}

}  // namespace convgrad
