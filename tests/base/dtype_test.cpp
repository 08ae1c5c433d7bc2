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
  for (int i = 0; i < 0x7bff; ++i) {
    const auto low = static_cast<std::uint16_t>(i), high = static_cast<std::uint16_t>(i + 1);
    const double a = to_double(Float16{low}), b = to_double(Float16{high}), middle = (a + b) / 2;
    CHECK(half_bits(middle) == (low % 2 == 0 ? low : high));
    CHECK(half_bits(std::nextafter(middle, 0)) == low);
    CHECK(half_bits(std::nextafter(middle, b)) == high);
    CHECK(half_bits(-middle) == (0x8000 | (low % 2 == 0 ? low : high)));
  }
  for (int i = 0; i < 0x7f7f; ++i) {
    const auto low = static_cast<std::uint16_t>(i), high = static_cast<std::uint16_t>(i + 1);
    const double a = to_double(BFloat16{low}), b = to_double(BFloat16{high}), middle = (a + b) / 2;
    CHECK(bfloat16_bits(middle) == (low % 2 == 0 ? low : high));
    CHECK(bfloat16_bits(std::nextafter(middle, 0)) == low);
    CHECK(bfloat16_bits(std::nextafter(middle, b)) == high);
  }
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

TEST_CASE("the constants of a dtype are its own numbers") {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    CHECK(rounded(dtype, 1 + unit_roundoff(dtype)) == 1);  // a tie, to even
    CHECK(rounded(dtype, 1 + 2 * unit_roundoff(dtype)) == 1 + 2 * unit_roundoff(dtype));
    CHECK(rounded(dtype, smallest_subnormal(dtype)) == smallest_subnormal(dtype));
    CHECK(rounded(dtype, largest_finite(dtype)) == largest_finite(dtype));
    CHECK(dtype_from_name(dtype_name(dtype)) == dtype);
  }
  CHECK_FALSE(dtype_from_name("int8").has_value());
}

TEST_CASE("many values are rounded as one is") {
  std::mt19937_64 random(5);
  std::vector<double> values(1 << 16);
  for (int spread : {1, 30, 200, 2000}) {  // of exponents: normal results, subnormal, infinite
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
