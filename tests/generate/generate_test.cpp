// generate_test.cpp - the generator's known answers and the distributions.
#include "generate/generate.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "generate/random_numbers.hpp"
#include "support/problems.hpp"

using namespace convgrad;
using namespace convgrad::testing;

TEST_CASE("Philox gives the known answers of its distribution") {
  // kat_vectors of Random123.
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
        PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint32_t kOnes = 0xffffffff;
  CHECK(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}) ==
        PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("the quantile inverts the normal distribution function") {
  // AS 241's own check values.
  CHECK(normal_quantile(0.25) == doctest::Approx(-0.6744897501960817).epsilon(1e-15));
  CHECK(normal_quantile(0.001) == doctest::Approx(-3.090232306167814).epsilon(1e-15));
  CHECK(normal_quantile(1e-20) == doctest::Approx(-9.262340089798408).epsilon(1e-15));
  CHECK(normal_quantile(0.5) == 0);
  for (double p = 0x1p-53; p < 0.5; p *= 1.05) {
    const double x = normal_quantile(p);
    CAPTURE(p);
    CHECK(0.5 * std::erfc(-x / std::sqrt(2.0)) == doctest::Approx(p).epsilon(1e-13));
    if (p > 0.01) CHECK(normal_quantile(1 - p) == doctest::Approx(-x).epsilon(1e-13));
  }
}

TEST_CASE("integers are small enough that every sum of |x||dy| is exact in float32") {
  struct Case {
    std::int64_t pixels, largest, every;
  };
  for (const Case& c :
       {Case{100, 4, 1}, Case{1 << 20, 4, 1}, Case{(1 << 20) + 1, 3, 1}, Case{1 << 22, 2, 1},
        Case{1 << 24, 1, 1}, Case{(1 << 24) + 1, 1, 2}, Case{std::int64_t{1} << 26, 1, 4}}) {
    const WgradProblem pb =
        make({"one pixel", "conv2d", c.pixels, 1, 1, 1, {{1, 2}, {1, 2}}}, DType::f32, true);
    CAPTURE(c.pixels);
    CHECK(largest_integer(pb) == c.largest);
    const TensorMaker dy(pb, Operand::dy, {});
    std::int64_t nonzero_every = 0;
    for (std::int64_t i = 0; i < 64 && i < c.pixels; ++i) {
      CHECK(std::fabs(dy.value(i)) <= static_cast<double>(c.largest));
      if (i % c.every != 0) CHECK(dy.value(i) == 0);
      nonzero_every += i % c.every == 0 && dy.value(i) != 0 ? 1 : 0;
    }
    CHECK(nonzero_every > 0);
    CHECK(c.largest * c.largest * ((c.pixels + c.every - 1) / c.every) <= std::int64_t{1} << 24);
  }
}

TEST_CASE("sums of many float16 terms stay in range") {
  // rms of a channel's products times the root of the terms, six times: less than 65504.
  const WgradProblem pb =
      make({"many", "conv2d", 1 << 16, 2, 2, 1, {{64, 2}, {64, 2}}}, DType::f16, true);
  const TensorMaker x(pb, Operand::x, {Distribution::adversarial, 1, false});
  const TensorMaker dy(pb, Operand::dy, {Distribution::adversarial, 1, false});
  for (const std::int64_t c : {0, 1}) {
    for (const std::int64_t k : {0, 1}) {
      double squares = 0;
      for (std::int64_t i = 0; i < 4096; ++i) {
        const double product = x.value(2 * i + c) * dy.value(2 * i + k);
        squares += product * product;
      }
      CHECK(6 * std::sqrt(squares / 4096 * static_cast<double>(term_count(pb))) < 65504);
    }
  }
}
