// compare.cpp - see compare.hpp. Every check is written "pass only if", so that NaN fails.
#include "convgrad/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <xtensor/xadapt.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xview.hpp>

namespace convgrad {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The bits of a value of dtype as an integer that grows with the value; both zeros are 0.
std::int64_t ordered_bits(DType dtype, double value) {
  const auto order = [](std::uint64_t bits, int width) {
    const std::uint64_t sign = std::uint64_t{1} << (width - 1);
    const auto magnitude = static_cast<std::int64_t>(bits & (sign - 1));
    return (bits & sign) != 0 ? -magnitude : magnitude;
  };
  switch (dtype) {
    case DType::f16:
      return order(half_bits(value), 16);
    case DType::bf16:
      return order(bfloat16_bits(value), 16);
    case DType::f32:
      return order(std::bit_cast<std::uint32_t>(static_cast<float>(value)), 32);
    default:
      return order(std::bit_cast<std::uint64_t>(value), 64);
  }
}

bool same_bits(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

// One element's errors under all measures.
struct Errors {
  double abs = 0, rel = 0, ulp = 0, ratio = 0;
  bool pass = false;
};

Errors element_errors(double got, double want, double bound, const ErrorModel& model,
                      const Tolerance& tolerance) {
  Errors e;
  const double target = rounded(model.out, want);
  const bool same = same_bits(got, target);
  const bool equal = same || got == target;  // also 0 and -0
  const std::int64_t ulp = ulp_distance(model.out, got, target);
  e.ulp = ulp_error(ulp);
  if (std::isfinite(got) && std::isfinite(want)) {
    e.abs = std::fabs(got - want);
    e.rel = want != 0 ? e.abs / std::fabs(want) : (e.abs > 0 ? kInfinity : 0);
    e.ratio = e.abs > 0 ? (std::isinf(bound) ? kInfinity : e.abs / bound) : 0;
  } else if (!equal) {
    e.abs = e.rel = e.ratio = kInfinity;
  }
  switch (tolerance.criterion) {
    case Criterion::bound: {
      const bool may_overflow = std::isinf(got) && std::isfinite(want) &&
                                std::signbit(got) == std::signbit(want) &&
                                std::fabs(want) + bound > largest_finite(model.out);
      e.pass = equal || e.ratio <= 1 || may_overflow;
      break;
    }
    case Criterion::tolerance:
      e.pass = equal ||
               (std::isfinite(e.abs) && e.abs <= tolerance.atol + tolerance.rtol * std::fabs(want));
      break;
    case Criterion::max_ulp:
      e.pass = equal || (std::isfinite(e.abs) && std::isfinite(e.ulp) && ulp <= tolerance.max_ulp);
      break;
    case Criterion::bitwise:
      e.pass = same;
      break;
  }
  return e;
}

// Everything of a comparison but the errors per tap.
struct Judge {
  Comparison result;
  const ErrorModel& model;
  const Tolerance& tolerance;
  const std::optional<ErrorModel>& want_model;

  Judge(bool has_bound, const ErrorModel& m, const Tolerance& t, const std::optional<ErrorModel>& w)
      : model(m), tolerance(t), want_model(w) {
    result.has_bound = has_bound;
  }

  Errors element(std::int64_t index, double got, double want, double magnitude) {
    double bound = std::numeric_limits<double>::quiet_NaN();
    if (result.has_bound) {
      bound = error_bound(model, want, magnitude);
      if (want_model) bound += error_bound(*want_model, want, magnitude);
    }
    const Errors e = element_errors(got, want, bound, model, tolerance);
    if (tolerance.criterion == Criterion::bound && !e.pass && std::isinf(bound) &&
        std::isfinite(got) && std::isfinite(want)) {
      throw Error(ErrorKind::unavailable,
                  "the sum of |x*dy| of an element overflows float64, so how far it may be off is "
                  "not known; use --rtol and --atol, --max-ulp or --bitwise");
    }
    ++result.count;
    result.abs.keep_larger({e.abs, index, got, want});
    result.rel.keep_larger({e.rel, index, got, want});
    result.ulp.keep_larger({e.ulp, index, got, want});
    if (result.has_bound) result.ratio.keep_larger({e.ratio, index, got, want});
    if (!e.pass && result.mismatches++ == 0) result.first_mismatch = {e.abs, index, got, want};
    result.got_nonfinite.count(got);
    result.want_nonfinite.count(want);
    result.all_zero = result.all_zero && want == 0;
    return e;
  }
};

}  // namespace

double error_bound(const ErrorModel& model, double want, double magnitude) {
  const double terms = static_cast<double>(model.terms);
  const double underflow =
      0.5 * smallest_subnormal(model.out) + terms * smallest_subnormal(model.accumulator);
  return unit_roundoff(model.out) * std::fabs(want) +
         kBoundFactor * std::sqrt(terms) * unit_roundoff(model.accumulator) * magnitude + underflow;
}

bool within_bound(double got, double want, double magnitude, const ErrorModel& model) {
  return element_errors(got, want, error_bound(model, want, magnitude), model, {}).pass;
}

std::int64_t ulp_distance(DType dtype, double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<std::int64_t>::max();
  if (a == b) return 0;
  if (std::isinf(rounded(dtype, a)) || std::isinf(rounded(dtype, b))) {
    return std::numeric_limits<std::int64_t>::max();
  }
  const std::int64_t first = ordered_bits(dtype, a), second = ordered_bits(dtype, b);
  std::int64_t distance = 0;
  if (__builtin_sub_overflow(std::max(first, second), std::min(first, second), &distance)) {
    return std::numeric_limits<std::int64_t>::max();
  }
  return distance;
}

double ulp_error(std::int64_t distance) {
  const bool countable = distance < std::numeric_limits<std::int64_t>::max();
  return countable ? static_cast<double>(distance) : kInfinity;
}

Comparison compare_entries(std::span<const std::int64_t> indices, std::int64_t cells,
                           std::span<const double> got, std::span<const double> want,
                           std::span<const double> magnitudes, std::int64_t taps,
                           const ErrorModel& model, const Tolerance& tolerance,
                           const std::optional<ErrorModel>& want_model) {
  Judge judge(!magnitudes.empty(), model, tolerance, want_model);
  judge.result.taps.resize(static_cast<std::size_t>(taps));
  for (std::size_t i = 0; i < want.size(); ++i) {
    const Errors e =
        judge.element(indices[i], got[i], want[i], magnitudes.empty() ? 0 : magnitudes[i]);
    TapErrors& tap = judge.result.taps[static_cast<std::size_t>(indices[i] / cells)];
    ++tap.count;
    tap.mismatches += e.pass ? 0 : 1;
    tap.max_abs = std::max(tap.max_abs, e.abs);
    tap.max_ratio = std::max(tap.max_ratio, judge.result.has_bound ? e.ratio : 0);
  }
  return judge.result;
}

Comparison compare_gradients(std::span<const double> got, std::span<const double> want,
                             std::span<const double> magnitudes, std::int64_t taps,
                             const ErrorModel& model, const Tolerance& tolerance,
                             const std::optional<ErrorModel>& want_model) {
  Judge judge(!magnitudes.empty(), model, tolerance, want_model);
  Comparison& result = judge.result;
  const std::size_t cells = want.size() / static_cast<std::size_t>(taps);
  const std::array<std::size_t, 2> shape = {static_cast<std::size_t>(taps), cells};
  xt::xtensor<double, 2> abs(shape), ratio(shape);
  xt::xtensor<std::int64_t, 2> failed(shape);
  for (std::size_t i = 0; i < want.size(); ++i) {
    const Errors e = judge.element(static_cast<std::int64_t>(i), got[i], want[i],
                                   magnitudes.empty() ? 0 : magnitudes[i]);
    abs.flat(i) = e.abs;
    ratio.flat(i) = result.has_bound ? e.ratio : 0;
    failed.flat(i) = e.pass ? 0 : 1;
  }
  for (std::size_t tap = 0; tap < shape[0]; ++tap) {
    result.taps.push_back(
        {static_cast<std::int64_t>(cells), xt::sum(xt::view(failed, tap, xt::all()))(),
         xt::amax(xt::view(abs, tap, xt::all()))(), xt::amax(xt::view(ratio, tap, xt::all()))()});
  }
  return result;
}

}  // namespace convgrad
