// dtype_test.cpp - conversions against values written out by hand and against the float hardware.
#include "convgrad/dtype.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

using namespace convgrad;

TEST_CASE("float16 widens as IEEE 754 says") {
  const struct {
    std::uint16_t bits;
    double value;
  } table[] = {{0x0000, 0.0},      {0x0001, 0x1p-24},  {0x03ff, 1023 * 0x1p-24},
               {0x0400, 0x1p-14},  {0x3c00, 1.0},      {0x3555, 0.333251953125},
               {0x7bff, 65504.0},  {0xc000, -2.0},     {0x8001, -0x1p-24},
               {0x7c00, INFINITY}, {0xfc00, -INFINITY}};
  for (const auto& row : table) CHECK(to_double(Float16{row.bits}) == row.value);
  CHECK(std::isnan(to_double(Float16{0x7e00})));
  CHECK(std::isnan(to_double(Float16{0xfc01})));
  CHECK(std::signbit(to_double(Float16{0x8000})));
}

TEST_CASE("every 16-bit value survives widening and narrowing") {
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double half = to_double(Float16{bits}), brain = to_double(BFloat16{bits});
    if (!std::isnan(half)) CHECK(half_bits(half) == bits);
    if (!std::isnan(brain)) CHECK(bfloat16_bits(brain) == bits);
    if (std::isnan(half)) CHECK(std::isnan(to_double(Float16{half_bits(half)})));
    if (std::isnan(brain)) CHECK(std::isnan(to_double(BFloat16{bfloat16_bits(brain)})));
  }
}

TEST_CASE("narrowing rounds once, to nearest, ties to even") {
  // Between neighbours a < b the midpoint goes to the even one and anything else to the nearer.
  const auto check = [](auto format, int largest, auto&& bits_of) {
    for (int i = 0; i < largest; ++i) {
      const auto low = static_cast<std::uint16_t>(i), high = static_cast<std::uint16_t>(i + 1);
      const auto value = [&](std::uint16_t bits) { return to_double(decltype(format){bits}); };
      const double middle = (value(low) + value(high)) / 2;
      const int even = low % 2 == 0 ? low : high;
      CHECK(bits_of(middle) == even);
      CHECK(bits_of(std::nextafter(middle, 0)) == low);
      CHECK(bits_of(std::nextafter(middle, value(high))) == high);
      CHECK(bits_of(-middle) == (0x8000 | even));
    }
  };
  check(Float16{}, 0x7bff, half_bits);
  check(BFloat16{}, 0x7f7f, bfloat16_bits);
}

TEST_CASE("narrowing at the ends of the range") {
  CHECK(half_bits(65519.99) == 0x7bff);
  CHECK(half_bits(65520.0) == 0x7c00);
  CHECK(half_bits(1e300) == 0x7c00);
  CHECK(half_bits(-1e300) == 0xfc00);
  CHECK(half_bits(0x1p-25) == 0);
  CHECK(half_bits(std::nextafter(0x1p-25, 1)) == 1);
  CHECK(half_bits(-0.0) == 0x8000);
  CHECK(half_bits(std::numeric_limits<double>::denorm_min()) == 0);
  CHECK(bfloat16_bits(std::numeric_limits<double>::max()) == 0x7f80);
  CHECK(bfloat16_bits(0x1p-134) == 0);
  CHECK(bfloat16_bits(std::nextafter(0x1p-134, 1)) == 1);
  CHECK(bfloat16_bits(-INFINITY) == 0xff80);
}

namespace {

// Sign, exponent, fraction: what the formats' definitions say of a byte, NaN and infinity left out.
double float8_value(int byte, int fraction_bits, int bias) {
  const int fraction = byte & ((1 << fraction_bits) - 1), exponent = (byte & 0x7f) >> fraction_bits;
  const double significand = std::ldexp(fraction, -fraction_bits) + (exponent > 0 ? 1 : 0);
  return std::copysign(std::ldexp(significand, std::max(exponent, 1) - bias), byte < 128 ? 1 : -1);
}

std::vector<double> widened_bytes(DType dtype, DType to) {
  std::vector<double> values(256);
  std::vector<std::byte> space(256 * 8);
  const std::int64_t room = 256 * (dtype_bytes(to) - 1);
  for (int i = 0; i < 256; ++i) space[static_cast<std::size_t>(room + i)] = std::byte(i);
  widen_in_place(dtype, to, 256, space.data());
  with_scalar(to, [&]<typename To>(To) {
    for (std::size_t i = 0; i < 256; ++i) {
      To value;
      std::memcpy(&value, space.data() + i * sizeof value, sizeof value);
      values[i] = to_double(value);
    }
  });
  return values;
}

}  // namespace

TEST_CASE("every byte of the 8-bit floats is widened exactly, and rounded back") {
  const struct {
    DType dtype;
    int fraction_bits, bias, largest;  // the byte of the largest finite number
    bool infinity, negative_zero;
  } formats[] = {{DType::e4m3fn, 3, 7, 0x7e, false, true},
                 {DType::e5m2, 2, 15, 0x7b, true, true},
                 {DType::e4m3fnuz, 3, 8, 0x7f, false, false},
                 {DType::e5m2fnuz, 2, 16, 0x7f, false, false}};
  for (const auto& f : formats) {
    CAPTURE(dtype_name(f.dtype));
    for (const DType to : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      const std::vector<double> values = widened_bytes(f.dtype, to);
      for (int byte = 0; byte < 256; ++byte) {
        CAPTURE(byte);
        const double value = values[static_cast<std::size_t>(byte)];
        const bool finite = (byte & 0x7f) <= f.largest && (f.negative_zero || byte != 0x80);
        CHECK(std::isfinite(value) == finite);
        CHECK(std::isinf(value) == (f.infinity && (byte & 0x7f) == f.largest + 1));
        if (!finite) continue;
        CHECK(value == float8_value(byte, f.fraction_bits, f.bias));
        CHECK(std::signbit(value) == (byte >= 128));
        CHECK(float8_bits(f.dtype, value) == byte);
      }
    }
    for (int low = 0; low < f.largest; ++low) {  // ties to even, all else to the nearer
      const double a = float8_value(low, f.fraction_bits, f.bias);
      const double b = float8_value(low + 1, f.fraction_bits, f.bias), middle = (a + b) / 2;
      const int even = low % 2 == 0 ? low : low + 1;
      CHECK(float8_bits(f.dtype, middle) == even);
      CHECK(float8_bits(f.dtype, std::nextafter(middle, 0)) == low);
      CHECK(float8_bits(f.dtype, std::nextafter(middle, b)) == low + 1);
      CHECK(float8_bits(f.dtype, -b) == 128 + low + 1);
    }
  }
  CHECK(float8_bits(DType::e4m3fn, 464) == 0x7e);  // as ml_dtypes rounds past the largest
  CHECK(float8_bits(DType::e4m3fn, 464.01) == 0x7f);
  CHECK(float8_bits(DType::e5m2, 61439) == 0x7b);
  CHECK(float8_bits(DType::e5m2, -61440) == 0xfc);
  CHECK(float8_bits(DType::e4m3fnuz, 248) == 0x80);
  CHECK(float8_bits(DType::e5m2fnuz, -0.0) == 0);
  CHECK(float8_bits(DType::e5m2fnuz, -0x1p-18) == 0);
}

TEST_CASE("widening in place reads nothing that it has written over") {
  using enum DType;
  for (const auto& pair : {std::pair(f16, f32), {bf16, f64}, {f32, f64}, {f16, f64}}) {
    const DType from = pair.first, to = pair.second;
    CAPTURE(dtype_name(from));
    constexpr std::int64_t kCount = 5000;
    std::vector<double> values(kCount), space(kCount);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = rounded(from, std::sin(static_cast<double>(i)));
    }
    auto* const bytes = reinterpret_cast<std::byte*>(space.data());
    round_to(from, values.data(), kCount, bytes + kCount * (dtype_bytes(to) - dtype_bytes(from)));
    widen_in_place(from, to, kCount, bytes);
    std::vector<std::byte> want(static_cast<std::size_t>(kCount * dtype_bytes(to)));
    round_to(to, values.data(), kCount, want.data());
    CHECK(std::memcmp(bytes, want.data(), want.size()) == 0);
  }
}

TEST_CASE("the constants of a dtype are its own numbers") {
  using enum DType;
  for (const DType dtype : {f16, bf16, f32, f64, e4m3fn, e5m2, e4m3fnuz, e5m2fnuz}) {
    CHECK(rounded(dtype, 1 + unit_roundoff(dtype)) == 1);  // a tie, to even
    CHECK(rounded(dtype, 1 + 2 * unit_roundoff(dtype)) == 1 + 2 * unit_roundoff(dtype));
    CHECK(rounded(dtype, smallest_subnormal(dtype)) == smallest_subnormal(dtype));
    CHECK(rounded(dtype, largest_finite(dtype)) == largest_finite(dtype));
    CHECK(stored_dtype_from_name(dtype_name(dtype)) == dtype);
    CHECK(dtype_from_name(dtype_name(dtype)).has_value() == !is_float8(dtype));
  }
  CHECK_FALSE(dtype_from_name("int8").has_value());
}

TEST_CASE("many values are rounded as one is") {
  std::mt19937_64 random(5);
  std::vector<double> values((1 << 16) + 5);  // no whole batches
  for (int spread : {1, 30, 200, 2000}) {     // of exponents: normal results, subnormal, infinite
    for (double& value : values) {
      const auto fraction = random() >> 12;
      const auto exponent =
          1023 - spread / 2 + static_cast<int>(random() % static_cast<unsigned>(spread));
      const auto bits = random() << 63 |
                        static_cast<std::uint64_t>(std::clamp(exponent, 0, 2047)) << 52 |
                        (random() % 4 == 0 ? fraction >> 44 << 44 : fraction);  // often ties
      value = std::bit_cast<double>(bits);
    }
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      const auto item = static_cast<std::size_t>(dtype_bytes(dtype));
      std::vector<std::byte> all(values.size() * item), one(item);
      round_to(dtype, values.data(), static_cast<std::int64_t>(values.size()), all.data());
      int wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        round_to(dtype, &values[i], 1, one.data());
        wrong += std::memcmp(one.data(), all.data() + i * item, item) != 0 ? 1 : 0;
      }
      CAPTURE(dtype_name(dtype));
      CHECK(wrong == 0);
    }
  }
}
