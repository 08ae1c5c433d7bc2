// array_compare_test.cpp - pairs that match and pairs that do not, under each criterion.
#include "check/array_compare.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "support/tensors.hpp"

using namespace convgrad;
using testing::kInf;
using testing::kNan;

namespace {

ArrayTolerance within(double rtol, double atol, bool equal_nan = true) {
  return {{.criterion = Criterion::tolerance, .rtol = rtol, .atol = atol}, equal_nan, DType::f32};
}
ArrayTolerance steps(std::int64_t n, DType dtype = DType::f32) {
  return {{.criterion = Criterion::max_ulp, .max_ulp = n}, true, dtype};
}
ArrayTolerance bits(bool equal_nan = true) {
  return {{.criterion = Criterion::bitwise}, equal_nan, DType::f32};
}

bool match(double got, double want, const ArrayTolerance& tolerance) {
  ArrayComparison comparison(tolerance);
  const std::vector<double> g = {got}, w = {want};
  comparison.add(g, w);
  return comparison.match();
}

}  // namespace

TEST_CASE("the defaults are those of torch.testing.assert_close") {
  CHECK(default_tolerance(DType::f16, DType::f16).rtol == 1e-3);
  CHECK(default_tolerance(DType::bf16, DType::bf16).rtol == 1.6e-2);
  CHECK(default_tolerance(DType::f32, DType::f32).rtol == 1.3e-6);
  CHECK(default_tolerance(DType::f32, DType::f32).atol == 1e-5);
  CHECK(default_tolerance(DType::f64, DType::f64).rtol == 1e-7);
  CHECK(default_tolerance(DType::f64, DType::f64).atol == 1e-7);
  CHECK(default_tolerance(DType::f64, DType::f16).rtol == 1e-3);
  CHECK(default_tolerance(DType::f16, DType::bf16).rtol == 1.6e-2);
}

TEST_CASE("a tolerance passes at its edge and fails past it") {
  CHECK(match(1.25, 1, within(0.25, 0)));
  CHECK(match(1.25, 1, within(0, 0.25)));
  CHECK(match(1.25, 1, within(0.125, 0.125)));
  CHECK_FALSE(match(std::nextafter(1.25, 2), 1, within(0.25, 0)));
  CHECK_FALSE(match(2, 1, within(0.5, 0)));  // of want, not of got
  CHECK(match(1, 2, within(0.5, 0)));
  CHECK(match(-0.0, 0, within(0, 0)));
  CHECK(match(0x1p-149, 0, within(0, 0x1p-149)));
  CHECK_FALSE(match(0x1p-149, 0, within(1, 0)));
}

TEST_CASE("steps are those of the dtype, subnormals and zeros included") {
  CHECK(match(0x1p-149, -0x1p-149, steps(2)));
  CHECK_FALSE(match(0x1p-149, -0x1p-149, steps(1)));
  CHECK(match(1 + 0x1p-10, 1, steps(1, DType::f16)));
  CHECK_FALSE(match(1 + 0x1p-9, 1, steps(1, DType::f16)));
  CHECK(match(1 + 0x1p-20, 1, steps(0, DType::f16)));  // the same after rounding
  CHECK_FALSE(match(kInf, 0x1.fffffep127, steps(1)));  // neighbours, but not both finite
}

TEST_CASE("bits tell zeros apart") {
  CHECK(match(1, 1, bits()));
  CHECK_FALSE(match(-0.0, 0, bits()));
  CHECK_FALSE(match(1, std::nextafter(1.0, 2.0), bits()));
  CHECK(match(-kInf, -kInf, bits()));
}

TEST_CASE("NaN equals NaN unless it is told not to, infinities their like") {
  for (const bool equal_nan : {true, false}) {
    for (const ArrayTolerance& t :
         {within(1e30, 1e30, equal_nan), bits(equal_nan),
          ArrayTolerance{{.criterion = Criterion::max_ulp, .max_ulp = std::int64_t{1} << 62},
                         equal_nan,
                         DType::f64}}) {
      CHECK(match(kNan, -kNan, t) == equal_nan);
      CHECK_FALSE(match(kNan, 1, t));
      CHECK_FALSE(match(1, kNan, t));
      CHECK(match(kInf, kInf, t));
      CHECK_FALSE(match(kInf, -kInf, t));
      CHECK_FALSE(match(kInf, 1, t));
      CHECK_FALSE(match(1, -kInf, t));
      CHECK_FALSE(match(kNan, kInf, t));
    }
  }
}

TEST_CASE("the worst of each measure is kept, over all pieces") {
  ArrayComparison c(within(0, 0.5));
  const std::vector<double> got1 = {1, 2, kNan}, want1 = {1, 2.25, kNan};
  const std::vector<double> got2 = {-10, 0, kInf, 1e-3, 5};
  const std::vector<double> want2 = {-12, 0x1p-140, 3, 1e-4, kNan};
  double difference[5];
  c.add(got1, want1);
  c.add(got2, want2, difference);
  CHECK(c.count == 8);
  CHECK(c.mismatches == 3);
  CHECK(c.first_mismatch.index == 3);
  CHECK(c.all.abs.value == 2);
  CHECK(c.all.abs.index == 3);
  CHECK(c.all.abs.got == -10);
  CHECK(c.all.abs.want == -12);
  CHECK(c.all.rel.index == 6);
  CHECK(c.all.rel.value == doctest::Approx(9));
  CHECK(c.all.ulp.index == 6);
  CHECK(c.failing.abs.index == 3);
  CHECK(c.failing.rel.index == 3);
  CHECK(c.failing.ulp.index == 3);
  CHECK(c.nonfinite_mismatches == 2);
  CHECK(c.first_nonfinite.index == 5);
  CHECK(c.got_nonfinite.nan == 1);
  CHECK(c.got_nonfinite.inf == 1);
  CHECK(c.want_nonfinite.nan == 2);
  CHECK(difference[0] == 2);
  CHECK(difference[2] == kInf);
  CHECK(std::isnan(difference[4]));
}

TEST_CASE("differences of float64 numbers that are no float64 number") {
  ArrayComparison c({{.criterion = Criterion::tolerance, .atol = 1}, true, DType::f64});
  const std::vector<double> got = {0x1.8p1023, 3, 1e-3}, want = {-0x1.8p1023, 0, 0};
  c.add(got, want);
  CHECK(c.all.abs.value == kInf);
  CHECK(c.all.rel.value == 2);
  CHECK(c.all.rel.index == 0);
  CHECK(c.all.ulp.value == 2.0 * 0x7fe8000000000000);
  CHECK(c.all.zero_wants == 2);
  CHECK(c.failing.zero_wants == 1);
}

TEST_CASE("the difference of equal elements is 0, whatever they are") {
  ArrayComparison yes(within(0, 0)), no(within(0, 0, false));
  const std::vector<double> values = {kNan, kInf, -kInf, -0.0};
  double difference[4];
  yes.add(values, values, difference);
  for (const double d : difference) CHECK(d == 0);
  CHECK(yes.match());
  no.add(values, values, difference);
  CHECK(std::isnan(difference[0]));
  CHECK(difference[1] == 0);
  CHECK(no.mismatches == 1);
}
