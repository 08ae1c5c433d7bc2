// compare_test.cpp - what passes, what fails, and what NaN does.
#include "convgrad/compare.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "support/tensors.hpp"

using namespace convgrad;
using testing::kInf;
using testing::kNan;

namespace {

bool passes(double got, double want, double magnitude, const ErrorModel& model,
            const Tolerance& tolerance = {}) {
  const double g[] = {got}, w[] = {want}, m[] = {magnitude};
  return compare_gradients(g, w, m, 1, model, tolerance).match();
}

}  // namespace

TEST_CASE("the bound is the one of docs/numerics.md") {
  const ErrorModel model = {DType::f32, DType::f32, 100};
  const double bound = 0x1p-24 * 3 + 4 * 10 * 0x1p-24 * 7;
  CHECK(error_bound(model, 3, 7) == doctest::Approx(bound).epsilon(1e-12));
  CHECK(passes(3 + 0.999 * bound, 3, 7, model));
  CHECK_FALSE(passes(3 + 1.001 * bound, 3, 7, model));
  CHECK_FALSE(passes(3 - 1.001 * bound, 3, 7, model));
  // Where nothing contributes, nothing but 0 passes.
  CHECK(passes(0, 0, 0, model));
  CHECK_FALSE(passes(1e-30, 0, 0, model));
  // A bound that is not a number lets nothing pass but equality.
  CHECK_FALSE(passes(1, 2, kNan, model));
  CHECK(passes(2, 2, kNan, model));
}

TEST_CASE("a bound that overflows judges nothing but equality") {
  const ErrorModel model = {DType::f64, DType::f64, 3};
  CHECK(passes(1, 1, kInf, model));
  CHECK_THROWS_WITH_AS(passes(1e300, 1, kInf, model), doctest::Contains("overflows float64"),
                       Error);
  CHECK_FALSE(within_bound(1e300, 1, kInf, model));
  CHECK_FALSE(passes(kNan, 1, kInf, model));
  CHECK(passes(1.25, 1, kInf, model, {Criterion::tolerance, 0.25, 0, 0}));
  CHECK_FALSE(passes(1.5, 1, kInf, model, {Criterion::tolerance, 0.25, 0, 0}));
  const std::int64_t indices[] = {0};
  const double got[] = {1e300}, want[] = {1}, magnitude[] = {kInf};
  CHECK_THROWS_AS(compare_entries(indices, 1, got, want, magnitude, 1, model, {}), Error);
}

TEST_CASE("a result of 16 bits may be off by its rounding, also when it is subnormal") {
  const ErrorModel model = {DType::f16, DType::f32, 1};
  CHECK(passes(1 + 0x1p-10, 1 + 0x1.001p-11, 1, model));
  CHECK_FALSE(passes(1 + 0x1p-9, 1 + 0x1p-11, 1, model));
  CHECK(passes(0, 0x1p-25, 0x1p-25, model));
  CHECK(passes(kInf, 65520, 65520, model));
  CHECK_FALSE(passes(kInf, 60000, 60000, model));
  CHECK_FALSE(passes(-kInf, 65520, 65520, model));
}

TEST_CASE("NaN and infinities match their like and nothing else") {
  for (const Criterion criterion :
       {Criterion::bound, Criterion::tolerance, Criterion::max_ulp, Criterion::bitwise}) {
    const Tolerance tolerance = {criterion, 1e30, 1e30, 1 << 20};
    const ErrorModel model = {DType::f64, DType::f64, 1};
    CHECK(passes(kNan, kNan, kNan, model, tolerance));
    CHECK(passes(kInf, kInf, kInf, model, tolerance));
    CHECK_FALSE(passes(kNan, 1, 1, model, tolerance));
    CHECK_FALSE(passes(1, kNan, kNan, model, tolerance));
    CHECK_FALSE(passes(kInf, -kInf, kInf, model, tolerance));
    CHECK_FALSE(passes(1, kInf, kInf, model, tolerance));
    CHECK_FALSE(passes(kInf, 1, 1, model, tolerance));
  }
}

TEST_CASE("the other criteria") {
  const ErrorModel model = {DType::f32, DType::f32, 1};
  const float next = std::nextafter(1.0F, 2.0F), far = std::nextafter(next, 2.0F);
  CHECK(passes(next, 1, 1, model, {Criterion::max_ulp, 0, 0, 1}));
  CHECK_FALSE(passes(far, 1, 1, model, {Criterion::max_ulp, 0, 0, 1}));
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  CHECK_FALSE(
      passes(65504, 1e30, 1, {DType::f16, DType::f32, 1}, {Criterion::max_ulp, 0, 0, kAny}));
  CHECK(passes(-0.0, 0.0, 1, model, {Criterion::max_ulp, 0, 0, 0}));
  CHECK_FALSE(passes(-0.0, 0.0, 1, model, {Criterion::bitwise, 0, 0, 0}));
  CHECK(passes(1, 1, 1, model, {Criterion::bitwise, 0, 0, 0}));
  CHECK_FALSE(passes(next, 1, 1, model, {Criterion::bitwise, 0, 0, 0}));
  CHECK(passes(1.25, 1, 1, model, {Criterion::tolerance, 0.25, 0, 0}));
  CHECK(passes(1.25, 1, 1, model, {Criterion::tolerance, 0, 0.25, 0}));
  CHECK_FALSE(passes(1.2500001, 1, 1, model, {Criterion::tolerance, 0.25, 0, 0}));
}

TEST_CASE("the report counts and points") {
  const double got[] = {0, 1, 2, 3, 4, 7, kNan, kInf};
  const double want[] = {0, 1, 2, 3, 4, 5, 6, kInf};
  const double magnitudes[] = {1, 1, 1, 1, 1, 5, 6, 1};
  const Comparison c = compare_gradients(got, want, magnitudes, 4, {DType::f32, DType::f32, 1}, {});
  CHECK(c.count == 8);
  CHECK(c.mismatches == 2);
  CHECK(c.first_mismatch.index == 5);
  CHECK(c.abs.index == 6);
  CHECK(c.abs.value == kInf);
  CHECK(c.got_nonfinite.nan == 1);
  CHECK(c.got_nonfinite.inf == 1);
  CHECK(c.want_nonfinite.nan == 0);
  CHECK(c.want_nonfinite.inf == 1);
  REQUIRE(c.taps.size() == 4);
  CHECK(c.taps[1].mismatches == 0);
  CHECK(c.taps[2].mismatches == 1);
  CHECK(c.taps[2].max_abs == 2);
  CHECK(c.taps[3].mismatches == 1);
  CHECK_FALSE(c.all_zero);
  const double zeros[] = {0, 0};
  CHECK(compare_gradients(zeros, zeros, zeros, 1, {}, {}).all_zero);
}

TEST_CASE("some elements are judged as they are among all") {
  const double got[] = {0, 1, 2, 3, 4, 7, kNan, kInf};
  const double want[] = {0, 1, 2, 3, 4, 5, 6, kInf};
  const double magnitudes[] = {1, 1, 1, 1, 1, 5, 6, 1};
  const std::int64_t indices[] = {1, 5, 7};
  const double some_got[] = {1, 7, kInf}, some_want[] = {1, 5, kInf}, some_sizes[] = {1, 5, 1};
  const ErrorModel model = {DType::f32, DType::f32, 1};
  const Comparison all = compare_gradients(got, want, magnitudes, 4, model, {});
  const Comparison some =
      compare_entries(indices, 2, some_got, some_want, some_sizes, 4, model, {});
  CHECK(some.count == 3);
  CHECK(some.mismatches == 1);
  CHECK(some.first_mismatch.index == 5);
  CHECK(some.ratio.index == 5);
  REQUIRE(some.taps.size() == 4);
  CHECK(some.taps[0].count == 1);
  CHECK(some.taps[1].count == 0);
  CHECK(some.taps[2].mismatches == 1);
  CHECK(some.taps[2].max_ratio == all.taps[2].max_ratio);
  CHECK(some.taps[3].mismatches == 0);
  CHECK(all.taps[3].count == 2);
  CHECK(within_bound(5, 5, 5, model));
  CHECK_FALSE(within_bound(7, 5, 5, model));
  CHECK_FALSE(within_bound(kNan, 5, 5, model));
}

TEST_CASE("steps between numbers") {
  CHECK(ulp_distance(DType::f16, 1, 1 + 0x1p-10) == 1);
  CHECK(ulp_distance(DType::bf16, -1, 1) == 2 * 0x3f80);
  CHECK(ulp_distance(DType::f64, -0x1p-1074, 0x1p-1074) == 2);
  CHECK(ulp_distance(DType::f32, kNan, kNan) == 0);
  CHECK(ulp_distance(DType::f32, kNan, 1) == std::numeric_limits<std::int64_t>::max());
  CHECK(ulp_distance(DType::f64, -kInf, kInf) > 0);
  // No number of steps leads to an infinity, nor to what becomes one.
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  CHECK(ulp_distance(DType::f16, 65504, 1e30) == kNever);
  CHECK(ulp_distance(DType::f16, -1e30, -65504) == kNever);
  CHECK(ulp_distance(DType::f16, 65504, kInf) == kNever);
  CHECK(ulp_distance(DType::f32, 1e300, 2e300) == kNever);
  CHECK(ulp_distance(DType::bf16, -kInf, -kInf) == 0);
  CHECK(ulp_distance(DType::f16, 65504, 65519) == 0);
  // 2^63 apart, one more than there is.
  CHECK(ulp_distance(DType::f64, -2, 2) == std::numeric_limits<std::int64_t>::max());
  CHECK(ulp_distance(DType::f64, 2, -2) == std::numeric_limits<std::int64_t>::max());
}
