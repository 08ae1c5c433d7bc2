// compare.hpp - is one gradient as good as another? Element by element, against a bound that grows
// with sum |x||dy| of that element. docs/numerics.md derives it.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convgrad/problem.hpp"

namespace convgrad {

// |got - want| <= u_out*|want| + c*sqrt(L)*u_acc*sum|x||dy| + underflow, with c = kBoundFactor:
// L independent roundings of a sum stay within 4*sqrt(L)*u but with probability 1 - 2*exp(-8)
// (Higham, Mary: A new approach to probabilistic rounding error analysis, 2019).
inline constexpr double kBoundFactor = 4;

struct ErrorModel {
  DType out = DType::f32;          // dtype of the result that is judged
  DType accumulator = DType::f32;  // in which it may have been summed
  std::int64_t terms = 1;          // L
};
double error_bound(const ErrorModel& model, double want, double magnitude);
// One element, by Criterion::bound.
bool within_bound(double got, double want, double magnitude, const ErrorModel& model);

enum class Criterion { bound, tolerance, max_ulp, bitwise };
struct Tolerance {
  Criterion criterion = Criterion::bound;
  double rtol = 0, atol = 0;  // |got - want| <= atol + rtol*|want|
  std::int64_t max_ulp = 0;   // steps between numbers of the result's dtype
};

struct ElementError {
  double value = 0;         // of the measure; infinity where one side only is finite
  std::int64_t index = -1;  // in [tap][c][k] order; -1: no element differs
  double got = 0, want = 0;
  void keep_larger(const ElementError& other) {
    if (other.value > value) *this = other;
  }
};
struct TapErrors {
  std::int64_t count = 0;  // elements of this tap that were compared
  std::int64_t mismatches = 0;
  double max_abs = 0, max_ratio = 0;
};
struct NonFinite {
  std::int64_t nan = 0, inf = 0;
  void count(double value) {
    nan += std::isnan(value) ? 1 : 0;
    inf += std::isinf(value) ? 1 : 0;
  }
};
struct Comparison {
  std::int64_t count = 0, mismatches = 0;
  ElementError abs, rel, ulp, ratio;  // the largest of each; ratio is error / bound
  ElementError first_mismatch;
  std::vector<TapErrors> taps;
  NonFinite got_nonfinite, want_nonfinite;
  bool all_zero = true;  // of want: such a comparison proves little
  bool has_bound = false;
  bool match() const { return mismatches == 0; }
};

// got holds values of model.out, want float64 values, both in [tap][c][k] order with `taps` taps.
// magnitudes may be empty: then ratios are not known and the criterion must not be bound.
// want_model: set if want is itself a computed result (a golden file), whose own bound is added.
// NaN matches NaN and an infinity one of its sign; nothing else that is not finite matches, except
// an infinity where a finite want is within the bound of the overflow threshold.
// Error(unavailable) where the criterion is the bound, and that overflows float64 for elements that
// are finite and differ.
Comparison compare_gradients(std::span<const double> got, std::span<const double> want,
                             std::span<const double> magnitudes, std::int64_t taps,
                             const ErrorModel& model, const Tolerance& tolerance,
                             const std::optional<ErrorModel>& want_model = {});

// The same for some elements of a gradient with `taps` taps of `cells` elements each: indices[i] is
// where got[i], want[i] and magnitudes[i] stand in [tap][c][k] order. The indices that the result
// names are those; its count is how many there are.
Comparison compare_entries(std::span<const std::int64_t> indices, std::int64_t cells,
                           std::span<const double> got, std::span<const double> want,
                           std::span<const double> magnitudes, std::int64_t taps,
                           const ErrorModel& model, const Tolerance& tolerance,
                           const std::optional<ErrorModel>& want_model = {});

// Steps between two values, rounded to a dtype; NaN to NaN and an infinity to itself are 0. The
// largest int64 where there are no steps to count: from NaN or an infinity to anything else, also
// from what becomes an infinity when it is rounded.
std::int64_t ulp_distance(DType dtype, double a, double b);
// The same as an error: infinite where there are no steps to count.
double ulp_error(std::int64_t distance);

}  // namespace convgrad
