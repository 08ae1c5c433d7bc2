// array_compare.cpp - see array_compare.hpp. Checks are written "pass only if", so that NaN fails.
#include "check/array_compare.hpp"

#include <cmath>
#include <type_traits>
#include <utility>

namespace convgrad {

Tolerance default_tolerance(DType got, DType want) {
  const DType dtype = coarser_dtype(got, want);
  Tolerance result = {.criterion = Criterion::tolerance, .atol = 1e-5};
  if (dtype == DType::f64) {
    result.rtol = result.atol = 1e-7;
  } else if (is_float8(dtype)) {  // a step between two numbers
    result.rtol = 2 * unit_roundoff(dtype);
    result.atol = smallest_subnormal(dtype);
  } else {
    result.rtol = dtype == DType::f16 ? 1e-3 : dtype == DType::bf16 ? 1.6e-2 : 1.3e-6;
  }
  return result;
}

DType coarser_dtype(DType a, DType b) { return unit_roundoff(a) >= unit_roundoff(b) ? a : b; }

// Returns true if the pair matches.
template <typename Value>
bool ArrayComparison::add_pair(Value got, Value want) {
  const Tolerance& t = tolerance_.tolerance;
  if (std::isnan(got) && std::isnan(want)) return tolerance_.equal_nan;
  const bool equal = got == want;
  if (!std::isfinite(got) || !std::isfinite(want)) return equal;
  if (equal) return t.criterion != Criterion::bitwise || std::signbit(got) == std::signbit(want);

  const Value error = std::fabs(got - want);
  std::uint64_t steps = 0;
  if constexpr (std::is_same_v<Value, double>) {
    steps = ulp_distance(tolerance_.ulp_dtype, got, want);
  }
  const double ulp = ulp_error(steps);
  bool match = false;
  if (t.criterion == Criterion::max_ulp) {
    match = std::isfinite(ulp) && std::cmp_less_equal(steps, t.max_ulp);
  } else if (t.criterion == Criterion::tolerance) {
    match = error <= t.atol + t.rtol * std::fabs(want);
  }
  // The difference of two finite numbers may be infinite; that of their halves is not.
  const Value relative = std::fabs(got / 2 - want / 2) / std::fabs(want / 2);
  for (LargestErrors* largest : {&all, &failing}) {
    if (largest == &failing && match) continue;
    const auto keep = [&](PairError& kept, Value value) {
      kept.keep_larger({static_cast<double>(value), count, got, want});
    };
    keep(largest->abs, error);
    keep(largest->ulp, ulp);
    if (want != 0) {
      keep(largest->rel, std::isfinite(error) ? error / std::fabs(want) : relative);
    } else {
      ++largest->zero_wants;
    }
  }
  return match;
}

template <typename Value>
void ArrayComparison::add(const std::vector<Value>& got, const std::vector<Value>& want,
                          std::span<double> difference) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const Value g = got[i], w = want[i];
    const bool match = add_pair(g, w);
    if (!difference.empty()) {
      const bool same = g == w || (std::isnan(g) && std::isnan(w) && tolerance_.equal_nan);
      difference[i] = same ? 0 : static_cast<double>(g - w);
    }
    got_nonfinite.count(static_cast<double>(g));
    want_nonfinite.count(static_cast<double>(w));
    if (!match) {
      const PairError here = {static_cast<double>(std::fabs(g - w)), count, g, w};
      const bool finite = std::isfinite(g) && std::isfinite(w);
      if (!finite && nonfinite_mismatches++ == 0) first_nonfinite = here;
      if (mismatches++ == 0) first_mismatch = here;
    }
    ++count;
  }
}

template void ArrayComparison::add(const std::vector<double>&, const std::vector<double>&,
                                   std::span<double>);
template void ArrayComparison::add(const std::vector<long double>&, const std::vector<long double>&,
                                   std::span<double>);

}  // namespace convgrad
