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

// One tap, one channel in and `elements` out; so many terms.
WgradProblem problem_of(DType dtype, std::int64_t terms, std::int64_t elements = 1,
                        std::int64_t taps = 1) {
  WgradProblem problem;
  problem.dtype = problem.out_dtype = dtype;
  problem.N = terms;
  problem.C = 1;
  problem.K = elements;
  for (SpatialAxis& axis : problem.axis) axis = {1, 1, 1, 1, 1, 0, 0};
  problem.axis[1].taps = taps;
  return problem;
}

// Elements of which only values and sum |t| are known; scales and limits as given.
Expected expected_values(std::vector<double> values, std::vector<double> magnitudes,
                         double scale = 0, double limit = kInf) {
  Expected e;
  e.values = std::move(values);
  e.magnitudes = std::move(magnitudes);
  e.scales.assign(e.values.size(), scale);
  e.limits.assign(e.values.size(), limit);
  return e;
}

struct Model {
  DType out = DType::f32, data = DType::f32;
  std::int64_t terms = 1;
};

bool passes(double got, double want, double magnitude, const Model& model,
            const Tolerance& tolerance = {.criterion = Criterion::bound}) {
  const double values[] = {got};
  return compare_gradients(problem_of(model.data, model.terms), model.out, {}, values,
                           expected_values({want}, {magnitude}), tolerance)
      .match();
}

Tolerance tolerance_of(double atol, double rtol) {
  return {.criterion = Criterion::tolerance, .rtol = rtol, .atol = atol};
}
Tolerance by_steps(std::int64_t count) {
  return {.criterion = Criterion::max_ulp, .max_ulp = count};
}
constexpr Tolerance kBitwise = {.criterion = Criterion::bitwise};

}  // namespace

TEST_CASE("the bound is the one of docs/numerics.md") {
  const Model model = {DType::f32, DType::f32, 100};
  const double bound = 0x1p-24 * 3 + 4 * 10 * 0x1p-24 * 7;
  CHECK(error_bound(problem_of(DType::f32, 100), DType::f32, 3, 7) ==
        doctest::Approx(bound).epsilon(1e-12));
  CHECK(passes(3 + 0.999 * bound, 3, 7, model));
  CHECK_FALSE(passes(3 + 1.001 * bound, 3, 7, model));
  CHECK_FALSE(passes(3 - 1.001 * bound, 3, 7, model));
  // Where nothing contributes, nothing but 0 passes.
  CHECK(passes(0, 0, 0, model));
  CHECK_FALSE(passes(1e-30, 0, 0, model));
  // A bound that is not a number lets nothing pass but equality.
  CHECK(passes(2, 2, kNan, model));
}

TEST_CASE("sizes that overflow judge nothing but equality") {
  const Model model = {DType::f64, DType::f64, 3};
  for (const Criterion criterion : {Criterion::bound, Criterion::rounding}) {
    const Tolerance tolerance = {.criterion = criterion};
    CHECK(passes(1, 1, kInf, model, tolerance));
    CHECK_FALSE(passes(kNan, 1, kInf, model, tolerance));
    CHECK_THROWS_WITH_AS(passes(1e300, 1, kInf, model, tolerance),
                         doctest::Contains("overflows float64"), Error);
  }
  CHECK(passes(1.25, 1, kInf, model, tolerance_of(0, 0.25)));
  CHECK_FALSE(passes(1.5, 1, kInf, model, tolerance_of(0, 0.25)));
}

TEST_CASE("a result of 16 bits may be off by its rounding, also when it is subnormal") {
  const Model model = {DType::f16, DType::f32, 1};
  CHECK(passes(1 + 0x1p-10, 1 + 0x1.001p-11, 1, model));
  CHECK_FALSE(passes(1 + 0x1p-9, 1 + 0x1p-11, 1, model));
  CHECK(passes(0, 0x1p-25, 0x1p-25, model));
  CHECK(passes(kInf, 65520, 65520, model));
  CHECK_FALSE(passes(kInf, 60000, 60000, model));
  CHECK_FALSE(passes(-kInf, 65520, 65520, model));
}

TEST_CASE("what the last rounding explains of an error") {
  CHECK(unexplained_error(DType::f32, 1, 1) == 0);
  CHECK(unexplained_error(DType::f32, 1, 1 + 0x1p-24) == 0);  // half a step, outwards
  CHECK(unexplained_error(DType::f32, 1, 1 + 0x1p-23) == 0x1p-24);
  CHECK(unexplained_error(DType::f32, 1, 1 - 0x1p-25) == 0);  // inwards steps are half as large
  CHECK(unexplained_error(DType::f32, 1, 1 - 0x1p-24) == 0x1p-25);
  CHECK(unexplained_error(DType::f32, -1, -1 + 0x1p-24) == 0x1p-25);
  CHECK(unexplained_error(DType::f32, 0, 0x1p-149) == 0x1p-150);
  CHECK(unexplained_error(DType::f16, 0x1p-24, 0x1p-23) == 0x1p-25);  // subnormal
  CHECK(unexplained_error(DType::f64, 1, 1, 0x1p-53) == 0);
  CHECK(unexplained_error(DType::f64, 1, 1, 0x1p-52) == 0x1p-53);
  // An infinity stands for all that is rounded to it.
  CHECK(unexplained_error(DType::f16, kInf, 65520) == 0);
  CHECK(unexplained_error(DType::f16, kInf, 65000) == 520);
  CHECK(unexplained_error(DType::f16, -kInf, 65520) == kInf);
  CHECK(unexplained_error(DType::f32, kNan, 1) == kInf);
  CHECK(unexplained_error(DType::f32, kNan, kNan) == 0);
  CHECK(unexplained_error(DType::f32, 1, kInf) == kInf);
}

TEST_CASE("rounding: one element, groups of them, and the most that can be") {
  constexpr std::int64_t kElements = 400;
  const WgradProblem pb = problem_of(DType::f64, 100, kElements, 4);
  const std::size_t count = 4 * kElements;
  const Expected e =
      expected_values(std::vector<double>(count, 0.0), std::vector<double>(count, 1.0), 1.0);
  const auto judge = [&](const std::vector<double>& got, const Expected& expected) {
    return compare_gradients(pb, DType::f64, {}, got, expected, {});
  };
  std::vector<double> got(count, 0.0);
  CHECK(judge(got, e).match());
  got[7] = 25;
  CHECK(judge(got, e).match());
  got[7] = 26;
  Comparison c = judge(got, e);
  CHECK_FALSE(c.match());
  CHECK(c.mismatches == 1);
  CHECK(c.rounding->worst.kind == GroupKind::element);
  CHECK(c.rounding->worst.index == 7);
  CHECK(c.rounding->worst.rms == doctest::Approx(26));
  // 4.2 times: far from what fails an element, but no tap, input or output channel has so much.
  std::fill(got.begin(), got.end(), 0.0);
  for (std::size_t i = kElements; i < 2 * kElements; ++i) got[i] = 4.2;
  c = judge(got, e);
  CHECK(c.mismatches == 0);
  CHECK_FALSE(c.match());
  CHECK(c.rounding->failing == 1);
  CHECK(c.rounding->worst.kind == GroupKind::tap);
  CHECK(c.rounding->worst.index == 1);
  CHECK(c.taps[1].rounding == doctest::Approx(4.2));
  // An output channel of four elements.
  std::fill(got.begin(), got.end(), 0.0);
  for (std::size_t t = 0; t < 4; ++t) got[t * kElements + 33] = 20;
  c = judge(got, e);
  CHECK(c.rounding->worst.kind == GroupKind::output_channel);
  CHECK(c.rounding->worst.index == 33);
  CHECK(c.mismatches == 0);
  CHECK_FALSE(c.match());
  // All of them, by a little more than three.
  std::fill(got.begin(), got.end(), 3.6);
  c = judge(got, e);
  CHECK_FALSE(c.match());
  CHECK(c.rounding->all.rms == doctest::Approx(3.6));
  std::fill(got.begin(), got.end(), 2.9);
  CHECK(judge(got, e).match());
  // What no order of summation can be off by.
  const Expected limited =
      expected_values(std::vector<double>(count, 0.0), std::vector<double>(count, 1.0), 1.0, 2.0);
  std::fill(got.begin(), got.end(), 0.0);
  got[5] = 2.1;
  c = judge(got, limited);
  CHECK(c.mismatches == 1);
  CHECK(c.rounding->worst.kind == GroupKind::limit);
  got[5] = 1.9;
  CHECK(judge(got, limited).match());
  // A sample is judged as a whole and one by one.
  const std::int64_t indices[] = {3, 900, 1500};
  const Expected three = expected_values({0, 0, 0}, {1, 1, 1}, 1.0);
  const double some[] = {0, 26, 0};
  c = compare_gradients(pb, DType::f64, indices, some, three, {});
  CHECK(c.rounding->worst.index == 900);
  const double most[] = {16, 16, 16};  // 3*g(3) = 15.4
  CHECK_FALSE(compare_gradients(pb, DType::f64, indices, most, three, {}).match());
}

TEST_CASE("rounding: elements without a scale, and NaN, let nothing pass but equality") {
  const WgradProblem pb = problem_of(DType::f32, 100, 3);
  Expected e = expected_values({1, 0, 2}, {1, 0, 1}, 1.0);
  e.scales = {kNan, 0, 1};
  const auto match = [&](std::vector<double> got) {
    return compare_gradients(pb, DType::f32, {}, got, e, {}).match();
  };
  CHECK(match({1, 0, 2}));
  CHECK_FALSE(match({1.5, 0, 2}));
  CHECK_FALSE(match({1, 1e-30, 2}));
  CHECK_FALSE(match({1, 0, kNan}));
  CHECK_FALSE(match({1, 0, kInf}));
}

TEST_CASE("NaN and infinities match their like and nothing else") {
  for (const Criterion criterion : {Criterion::rounding, Criterion::bound, Criterion::tolerance,
                                    Criterion::max_ulp, Criterion::bitwise}) {
    const Tolerance tolerance = {criterion, 3, 1e30, 1e30, 1 << 20};
    const Model model = {DType::f64, DType::f64, 1};
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
  const Model model;
  const float next = std::nextafter(1.0F, 2.0F), far = std::nextafter(next, 2.0F);
  CHECK(passes(next, 1, 1, model, by_steps(1)));
  CHECK_FALSE(passes(far, 1, 1, model, by_steps(1)));
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  CHECK_FALSE(passes(65504, 1e30, 1, {DType::f16, DType::f32, 1}, by_steps(kAny)));
  CHECK(passes(-0.0, 0.0, 1, model, by_steps(0)));
  CHECK_FALSE(passes(-0.0, 0.0, 1, model, kBitwise));
  CHECK(passes(1, 1, 1, model, kBitwise));
  CHECK_FALSE(passes(next, 1, 1, model, kBitwise));
  CHECK(passes(1.25, 1, 1, model, tolerance_of(0, 0.25)));
  CHECK(passes(1.25, 1, 1, model, tolerance_of(0.25, 0)));
  CHECK_FALSE(passes(1.2500001, 1, 1, model, tolerance_of(0, 0.25)));
}

TEST_CASE("the report counts and points, of all elements and of some") {
  const WgradProblem pb = problem_of(DType::f32, 1, 2, 4);
  const std::vector<double> got = {0, 1, 2, 3, 4, 7, kNan, kInf};
  const Expected e = expected_values({0, 1, 2, 3, 4, 5, 6, kInf}, {1, 1, 1, 1, 1, 5, 6, 1});
  const Tolerance bound = {.criterion = Criterion::bound};
  std::vector<unsigned char> failed(8);
  const Comparison c = compare_gradients(pb, DType::f32, {}, got, e, bound, failed);
  CHECK(c.count == 8);
  CHECK(c.mismatches == 2);
  CHECK(failed == std::vector<unsigned char>{0, 0, 0, 0, 0, 1, 1, 0});
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
  CHECK_FALSE(c.within_bound);
  CHECK(c.relative_error == doctest::Approx(2 / std::sqrt(55)));  // 1, 2, 3, 4 and 5 are finite
  const std::int64_t indices[] = {1, 5, 7};
  const double some_got[] = {1, 7, kInf};
  const Comparison some = compare_gradients(pb, DType::f32, indices, some_got,
                                            expected_values({1, 5, kInf}, {1, 5, 1}), bound);
  CHECK(some.count == 3);
  CHECK(some.mismatches == 1);
  CHECK(some.first_mismatch.index == 5);
  CHECK(some.ratio.index == 5);
  REQUIRE(some.taps.size() == 4);
  CHECK(some.taps[0].count == 1);
  CHECK(some.taps[1].count == 0);
  CHECK(some.taps[2].mismatches == 1);
  CHECK(some.taps[2].max_ratio == c.taps[2].max_ratio);
  CHECK(some.taps[3].mismatches == 0);
  const double zeros[] = {0, 0};
  CHECK(compare_gradients(problem_of(DType::f32, 1, 2), DType::f32, {}, zeros,
                          expected_values({0, 0}, {0, 0}), bound)
            .all_zero);
}

TEST_CASE("steps between numbers") {
  CHECK(ulp_distance(DType::f16, 1, 1 + 0x1p-10) == 1);
  CHECK(ulp_distance(DType::bf16, -1, 1) == 2 * 0x3f80);
  CHECK(ulp_distance(DType::f64, -0x1p-1074, 0x1p-1074) == 2);
  CHECK(ulp_distance(DType::f32, kNan, kNan) == 0);
  // No number of steps leads to NaN or an infinity, nor to what becomes one.
  constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  CHECK(ulp_distance(DType::f32, kNan, 1) == kNever);
  CHECK(ulp_distance(DType::f64, -kInf, kInf) == kNever);
  CHECK(ulp_distance(DType::f16, 65504, 1e30) == kNever);
  CHECK(ulp_distance(DType::f16, -1e30, -65504) == kNever);
  CHECK(ulp_distance(DType::f16, 65504, kInf) == kNever);
  CHECK(ulp_distance(DType::f32, 1e300, 2e300) == kNever);
  CHECK(ulp_distance(DType::bf16, -kInf, -kInf) == 0);
  CHECK(ulp_distance(DType::f16, 65504, 65519) == 0);
  // More than int64 holds.
  CHECK(ulp_distance(DType::f64, -2, 2) == std::uint64_t{1} << 63);
  CHECK(ulp_distance(DType::f64, 2, -2) == std::uint64_t{1} << 63);
  CHECK(ulp_distance(DType::f64, -0x1.fp1023, 0x1.fp1023) == 2 * std::uint64_t{0x7fef000000000000});
}
