// reference_test.cpp - the reference against hand-worked numbers and against the plain one.
#include "convgrad/reference.hpp"

#include <doctest/doctest.h>

#include "support/cases.hpp"

using namespace convgrad;
using namespace convgrad::testing;

TEST_CASE("numbers worked out by hand") {
  // x = 1..4 in a row, dy = 10, 20, 30, 40; 3 taps, SAME: the outer taps miss one product each.
  const WgradProblem problem =
      make({"row", "conv2d", 1, 1, 1, 1, {{1, 1}, {4, 3}}}, DType::f32, true);
  const float x[] = {1, 2, 3, 4}, dy[] = {10, -20, 30, 40};
  const Expected r = reference_of(problem, x, dy);
  CHECK(r.values == std::vector<double>{-20 + 2 * 30 + 3 * 40, 10 - 40 + 90 + 160, 20 - 60 + 120});
  CHECK(r.magnitudes ==
        std::vector<double>{20 + 2 * 30 + 3 * 40, 10 + 40 + 90 + 160, 20 + 60 + 120});
}

TEST_CASE("the reference is the plain one, in any layout, and so is what it says of rounding") {
  for_each_case(
      basic_problems(), kDTypes, Fill::normal,
      [](const WgradProblem& problem, const auto& x, const auto& dy) {
        // Restarted nowhere, with batches of eight and between them.
        for (const std::int64_t longest : {0, 64, 13}) {
          const Summation summation = {
              longest, longest == 0 ? Summation::Adders::usual : Summation::Adders::ieee};
          CHECK(is_plain(reference_of(problem, x.data(), dy.data(), 2, summation), problem, x, dy,
                         summation));
        }
      },
      3 * kThin);
}

TEST_CASE("float64 sums and products are compensated") {
  const auto dot = [](const std::vector<double>& x, const std::vector<double>& dy) {
    const WgradProblem problem =
        make({"dot", "conv2d", std::ssize(x), 1, 1, 1, {{1, 1}, {1, 1}}}, DType::f64, true);
    return reference_of(problem, x.data(), dy.data()).values[0];
  };
  // 1e16 + 1 - 1e16 + ...: plain summation loses every 1.
  std::vector<double> x, dy;
  for (int i = 0; i < 1000; ++i) {
    x.insert(x.end(), {1e16, 1, -1e16});
    dy.insert(dy.end(), {1, 1, 1});
  }
  CHECK(dot(x, dy) == 1000);
  // (1 + e)(1 - e) - 1 = -e^2: a plain product rounds to 1.
  CHECK(dot({1 + 0x1p-30, -1}, {1 - 0x1p-30, 1}) == -0x1p-60);
}
