// structure_test.cpp - errors that rounding does not make, found below its size.
#include "check/structure.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "support/cases.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

using Bias = Expected::Bias;

std::vector<double> normal(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> numbers;
  std::vector<double> values(count);
  for (double& value : values) value = numbers(random);
  return values;
}

const WgradProblem kProblem =
    make({"3x3", "conv2d", 4, 16, 20, 1, {{6, 3}, {6, 3}}}, DType::f32, true);
const auto kCount = static_cast<std::size_t>(kProblem.dw_count());

// All of one unit; want is the pattern that they are compared with.
EntryErrors entries_of(const std::vector<double>& errors, const std::vector<double>& want,
                       double unit) {
  return {{}, kCount, [&errors, &want, unit](std::size_t i) {
            return EntryError{errors[i], unit, want[i]};
          }};
}

std::optional<Structure> found(const std::vector<double>& errors,
                               const std::vector<double>& pattern, Bias bias = Bias::none) {
  return resemblance(kProblem, entries_of(errors, pattern, 1), pattern, {.25, 4 * 0x1p-24, 64},
                     bias);
}

}  // namespace

TEST_CASE("errors that are the gradient, times a small number, are found in noise of their size") {
  const std::vector<double> want = normal(kCount, 1);
  std::vector<double> noise = normal(kCount, 2), errors = noise;
  CHECK(!found(noise, want));
  for (std::size_t i = 0; i < kCount; ++i) errors[i] += want[i];
  const auto all = found(errors, want, Bias::smaller);
  REQUIRE(all);
  CHECK(all->kind == GroupKind::all);
  CHECK(all->size == doctest::Approx(1).epsilon(.2));
  CHECK(all->bits > 80);
  CHECK(!found(errors, want, Bias::any));
  for (double& error : errors) error = -error;  // as adders that cut digits off
  CHECK(found(errors, want));
  CHECK(!found(errors, want, Bias::smaller));
}

TEST_CASE("a factor in one tap or channel alone is found there") {
  const std::vector<double> want = normal(kCount, 3);
  std::vector<double> errors = normal(kCount, 4);
  const auto with = [&](const auto& is_in) {
    std::vector<double> changed = errors;
    for (std::size_t i = 0; i < kCount; ++i) {
      if (is_in(i)) changed[i] += 4 * want[i];
    }
    const auto structure = found(changed, want);
    REQUIRE(structure);
    return std::pair{structure->kind, structure->index};
  };
  CHECK(with([](std::size_t i) { return i / 320 == 4; }) == std::pair{GroupKind::tap, 4L});
  CHECK(with([](std::size_t i) { return i / 20 % 16 == 2; }) ==
        std::pair{GroupKind::input_channel, 2L});
  CHECK(with([](std::size_t i) { return i % 20 == 5; }) ==
        std::pair{GroupKind::output_channel, 5L});
}

TEST_CASE("elements that hold the same numbers count once") {
  // One number for each tap: channels are equal. Of 9 numbers, correlations are likely.
  const std::vector<double> tap_errors = normal(9, 5);
  std::vector<double> errors(kCount), want(kCount), same(kCount, .5), ones(kCount, 1);
  for (std::size_t i = 0; i < kCount; ++i) {
    errors[i] = tap_errors[i / 320];
    want[i] = errors[i] + .8 * normal(9, 6)[i / 320];
  }
  CHECK(!found(errors, want));
  CHECK(!found(same, ones));
}

TEST_CASE("less than a few roundings of every element are no factor") {
  const std::vector<double> want = normal(kCount, 1), noise = normal(kCount, 2);
  const auto times = [&](double factor) {
    std::vector<double> errors = noise;
    for (std::size_t i = 0; i < kCount; ++i) errors[i] = factor * (want[i] + .1 * noise[i]);
    return found(errors, want);
  };
  CHECK(!times(-0.63 * 0x1p-24));
  CHECK(times(168 * 0x1p-24));  // 1.00001
}

TEST_CASE("errors of one element, tap or channel that are larger than the others' are uneven") {
  const std::vector<double> errors = normal(kCount, 3);
  const auto uneven = [&](double times, const auto& is_in) {
    std::vector<double> changed = errors;
    for (std::size_t i = 0; i < kCount; ++i) changed[i] *= is_in(i) ? times : 1;
    // Right sums' errors may be smaller than is granted.
    return is_uneven(kProblem, entries_of(changed, errors, 0.1));
  };
  CHECK(!uneven(1, [](std::size_t) { return true; }));
  for (const double times : {2.0, 6.0}) {
    CHECK(uneven(times, [](std::size_t i) { return i / 320 == 4; }) == (times > 5));
    CHECK(uneven(times, [](std::size_t i) { return i / 20 % 16 == 2; }) == (times > 5));
    CHECK(uneven(times, [](std::size_t i) { return i % 20 == 5; }) == (times > 5));
    CHECK(!uneven(times, [](std::size_t i) { return i % 20 < 10; }));  // which are the others?
  }
  const auto at = static_cast<std::size_t>(std::ranges::max_element(errors) - errors.begin());
  CHECK(!uneven(3, [&](std::size_t i) { return i == at; }));
  CHECK(uneven(12, [&](std::size_t i) { return i == at; }));
}

TEST_CASE("the terms of one pixel are found in errors that are larger") {
  const auto x = filled(DType::f32, kProblem.x_count(), Fill::normal, 7);
  auto dy = filled(DType::f32, kProblem.dy_count(), Fill::normal, 8);
  const std::vector<double> want = reference_of(kProblem, x.data(), dy.data()).values;
  auto* const numbers = reinterpret_cast<float*>(dy.data());
  const auto judged = [&](const std::vector<double>& errors) {
    TaskPool pool(2);
    PixelSum sum(kProblem, pool, entries_of(errors, errors, 3.0));
    MemorySource source(x.data(), dy.data());
    sum_blocks(reference_plan(kProblem), source, sum);
    return sum.worst();
  };
  std::vector<double> errors = normal(kCount, 9);
  CHECK(judged(errors).spreads < 5);
  constexpr std::int64_t kPixel = 29;  // n 1, p 3, q 1
  auto lost = dy;
  for (std::int64_t k = 0; k < kProblem.K; ++k) {
    reinterpret_cast<float*>(lost.data())[kPixel * kProblem.K + k] = 0;
  }
  const std::vector<double> less = reference_of(kProblem, x.data(), lost.data()).values;
  for (const double times : {1.0, -1.0}) {
    std::vector<double> changed = errors;
    for (std::size_t i = 0; i < kCount; ++i) changed[i] += times * (less[i] - want[i]);
    const PixelError worst = judged(changed);
    CHECK(worst.pixel == kPixel);
    CHECK(worst.times == doctest::Approx(-times).epsilon(.3));
    CHECK(worst.spreads > 8);
  }
  CHECK(numbers[0] != 0);
}
