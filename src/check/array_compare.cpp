// array_compare.cpp - see array_compare.hpp. Every check is written "pass only if", so that NaN
// fails.
#include "check/array_compare.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace convgrad {
namespace {

Tolerance relative(double rtol, double atol) {
  return {.criterion = Criterion::tolerance, .rtol = rtol, .atol = atol};
}

}  // namespace

Tolerance default_tolerance(DType got, DType want) {
  const auto of = [](DType dtype) -> Tolerance {
    switch (dtype) {
      case DType::f16:
        return relative(1e-3, 1e-5);
      case DType::bf16:
        return relative(1.6e-2, 1e-5);
      case DType::f32:
        return relative(1.3e-6, 1e-5);
      case DType::f64:
        return relative(1e-7, 1e-7);
      default:  // a step between two numbers
        return relative(2 * unit_roundoff(dtype), smallest_subnormal(dtype));
    }
  };
  return of(coarser_dtype(got, want));
}

DType coarser_dtype(DType a, DType b) { return unit_roundoff(a) >= unit_roundoff(b) ? a : b; }

// True if the pair matches.
bool ArrayComparison::add_pair(double got, double want, std::int64_t index) {
  const Tolerance& t = tolerance_.tolerance;
  if (std::isnan(got) && std::isnan(want)) return tolerance_.equal_nan;
  const bool equal = got == want;
  const bool same_bits = equal && std::signbit(got) == std::signbit(want);
  if (!std::isfinite(got) || !std::isfinite(want)) return equal;
  if (equal) return same_bits || t.criterion != Criterion::bitwise;

  const double error = std::fabs(got - want);
  const std::int64_t steps = ulp_distance(tolerance_.ulp_dtype, got, want);
  const double ulp_here = ulp_error(steps);
  abs.keep_larger({error, index, got, want});
  if (want != 0) rel.keep_larger({error / std::fabs(want), index, got, want});
  ulp.keep_larger({ulp_here, index, got, want});
  switch (t.criterion) {
    case Criterion::max_ulp:
      return std::isfinite(ulp_here) && steps <= t.max_ulp;
    case Criterion::tolerance:
      return error <= t.atol + t.rtol * std::fabs(want);
    default:
      return false;
  }
}

void ArrayComparison::add(std::span<const double> got, std::span<const double> want,
                          std::span<double> difference, std::span<unsigned char> failed) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double g = got[i], w = want[i];
    const bool match = add_pair(g, w, count);
    if (!difference.empty()) {
      const bool same = g == w || (std::isnan(g) && std::isnan(w) && tolerance_.equal_nan);
      difference[i] = same ? 0 : g - w;
    }
    if (!failed.empty()) failed[i] = match ? 0 : 1;
    got_nonfinite.count(g);
    want_nonfinite.count(w);
    if (!match) {
      const ElementError here = {std::fabs(g - w), count, g, w};
      const bool finite = std::isfinite(g) && std::isfinite(w);
      if (!finite && nonfinite_mismatches++ == 0) first_nonfinite = here;
      if (mismatches++ == 0) first_mismatch = here;
    }
    ++count;
  }
}

}  // namespace convgrad
