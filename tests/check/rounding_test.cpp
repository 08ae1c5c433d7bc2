// rounding_test.cpp - how far rounding takes a right sum: the formulas, and what real sums do.
#include "check/rounding.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "check/reference_sum.hpp"
#include "check/term_batch.hpp"
#include "support/problems.hpp"
#include "support/tensors.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

constexpr double kU = 0x1p-24;

TermStatistics statistics(double sum, double terms, double squares, double walk) {
  TermStatistics s;
  s.sum = sum;
  s.terms = terms;
  s.squares = squares;
  s.walk = walk;
  s.magnitude = terms;
  return s;
}

// A problem of one element: `terms` products.
WgradProblem dot_of(DType dtype, std::int64_t terms) {
  return make({"dot", "conv2d", terms, 1, 1, 1, {{1, 1}, {1, 1}}}, dtype, true);
}

Expected expected_of_dot(DType dtype, const std::vector<double>& x, const std::vector<double>& dy,
                         const Summation& summation = {}) {
  const WgradProblem pb = dot_of(dtype, static_cast<std::int64_t>(x.size()));
  return reference_of(pb, tensor_of(dtype, x).data(), tensor_of(dtype, dy).data(), 1, summation);
}

}  // namespace

TEST_CASE("the scale is the formula of docs/numerics.md") {
  const Summation ieee = {0, Summation::Adders::ieee};
  // The walk that was seen, and the least that it can be taken for.
  CHECK(rounding_scale(statistics(0, 100, 100, 300), DType::f32, ieee).scale ==
        doctest::Approx(kU * std::sqrt((100 * 300 + 100) / 3.0)).epsilon(1e-9));
  CHECK(rounding_scale(statistics(30, 100, 120, 0), DType::f32, ieee).scale ==
        doctest::Approx(kU * std::sqrt((100 * (900 / 3.0 + 20) + 120 + 900) / 3)).epsilon(1e-9));
  // Runs of 25: the sum of each is a quarter of the whole, as far as the whole tells.
  CHECK(rounding_scale(statistics(30, 100, 120, 0), DType::f32, {25, Summation::Adders::ieee})
            .scale ==
        doctest::Approx(kU * std::sqrt((100 * (900 / 48.0 + 5) + 120 + 900) / 3)).epsilon(1e-9));
  // Adders that cut off digits of 16-bit data alone.
  const double cut = kU / 16 * 100;
  CHECK(rounding_scale(statistics(0, 100, 100, 300), DType::f32, {}).scale ==
        rounding_scale(statistics(0, 100, 100, 300), DType::f32, ieee).scale);
  CHECK(rounding_scale(statistics(0, 100, 100, 300), DType::bf16, {}).scale ==
        doctest::Approx(std::sqrt(kU * kU * 30100 / 3 + cut * cut * 300)).epsilon(1e-9));
  // Nothing but underflow where there are no terms.
  CHECK(rounding_scale({}, DType::f32, {}).scale == 0x1p-149);
  CHECK(rounding_scale({}, DType::f64, {}).scale == 0x1p-1074);
  const RoundingScale one = rounding_scale(statistics(1, 1, 1, 1), DType::f32, {});
  CHECK(one.limit == doctest::Approx(2 * kU));
  CHECK(rounding_scale(statistics(1, 1, 1, 1), DType::f16, {}).limit == doctest::Approx(4 * kU));
}

TEST_CASE("squares out of float64's range leave a bound by the terms' sizes") {
  for (const double size : {1e-200, 1e200}) {
    TermStatistics s = statistics(size, 3, size * size, size * size);
    s.magnitude = 3 * size;
    const RoundingScale scale = rounding_scale(s, DType::f64, {});
    CHECK(scale.scale == doctest::Approx(0x1p-53 * 3 * size).epsilon(1e-9));
  }
}

TEST_CASE("groups: what chance allows") {
  CHECK(group_factor(1) == doctest::Approx(8.4826).epsilon(1e-4));
  CHECK(group_factor(64) == doctest::Approx(1.81846).epsilon(1e-4));
  CHECK(group_factor(1e12) == doctest::Approx(1).epsilon(1e-4));
}

TEST_CASE("terms that all round one way widen the scale") {
  constexpr std::size_t kTerms = 20000;
  const std::vector<double> ones(kTerms, 0.1F), dy(kTerms, 0.3F);
  const Expected constant = expected_of_dot(DType::f32, ones, dy);
  float plain = 0;
  for (std::size_t i = 0; i < kTerms; ++i) plain += 0.1F * 0.3F;
  const double error = std::fabs(plain - constant.values[0]);
  // Far more than chance, and granted.
  CHECK(error > 10 * 0x1p-24 * std::sqrt(kTerms / 3.0) * constant.values[0]);
  CHECK(error < 3 * constant.scales[0]);
  const auto varied = widened(DType::f32, filled(DType::f32, kTerms, Fill::normal, 1));
  const Expected normal = expected_of_dot(DType::f32, varied, dy);
  CHECK(normal.scales[0] < 1e-2 * constant.scales[0] * std::sqrt(static_cast<double>(kTerms)));
}

TEST_CASE("blocks, threads and whole or sampled sums give one scale") {
  const WgradProblem pb =
      make({"3x3", "conv2d", 40, 5, 9, 1, {{9, 3, 1}, {8, 3, 2}}}, DType::f32, true);
  const auto x = filled(pb.dtype, pb.x_count(), Fill::normal, 3);
  const auto dy = filled(pb.dtype, pb.dy_count(), Fill::normal, 4);
  for (const std::int64_t longest : {0, 100, 512}) {
    const Summation summation = {longest};
    const Expected want = reference_of(pb, x.data(), dy.data(), 1, summation);
    for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{3000}}) {
      TaskPool pool(3);
      ReferenceSum sum(pb, pool, summation);
      MemorySource source(x.data(), dy.data());
      sum_blocks(reference_plan(pb, bytes), source, sum);
      sum.finish();
      CHECK(sum.expected().values == want.values);
      for (std::size_t i = 0; i < want.scales.size(); ++i) {
        CHECK(sum.expected().scales[i] == doctest::Approx(want.scales[i]).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("one loop for all processors: the same bits") {
  constexpr std::int64_t kCount = 37;  // vectors, and single elements
  const auto values = widened(DType::f32, filled(DType::f32, 8 * kCount, Fill::normal, 1));
  std::vector<double> dy = values;
  dy[5] = 0;
  std::vector<float> plain(dy.begin(), dy.end());
  const double x[] = {1.5F, -0.7F, 0, 3.1F, 1e20F, -2, 0.1F, 7};
  const std::vector<AddBatch> variants = batch_variants();
  for (const std::int64_t pixels : {std::int64_t{8}, std::int64_t{3}}) {
    for (const bool every : {true, false}) {
      for (const bool compensated : {true, false}) {
        const TermBatch batch = {pixels, kCount, dy.data(), plain.data(), every, true};
        std::vector<std::vector<double>> first;
        std::vector<float> first_plain;
        for (const AddBatch add : variants) {
          std::vector<std::vector<double>> sums(6, std::vector<double>(kCount, 0.25));
          std::vector<float> floats(kCount, 0.25F);
          add(batch, x,
              {sums[0].data(), compensated ? sums[1].data() : nullptr, sums[2].data(),
               sums[3].data(), sums[4].data(), sums[5].data(),
               compensated ? nullptr : floats.data()});
          if (first.empty()) {
            first = sums;
            first_plain = floats;
          }
          for (std::size_t i = 0; i < sums.size(); ++i) {
            CAPTURE(i);
            CAPTURE(compensated);
            CHECK(std::memcmp(sums[i].data(), first[i].data(), kCount * 8) == 0);
          }
          CHECK(std::memcmp(floats.data(), first_plain.data(), kCount * 4) == 0);
        }
        // Against plain loops.
        for (std::size_t k = 0; k < kCount; ++k) {
          double sum = 0.25, magnitude = 0.25, squares = 0.25;
          for (std::int64_t i = 0; i < pixels; ++i) {
            const double t = x[i] * dy[static_cast<std::size_t>(i * kCount) + k];
            sum += t;
            magnitude += std::fabs(t);
            squares += t * t;
          }
          CHECK(first[0][k] == sum);
          CHECK(first[2][k] == doctest::Approx(magnitude).epsilon(1e-12));
          CHECK(first[3][k] == doctest::Approx(squares).epsilon(1e-12));
        }
      }
    }
  }
}
