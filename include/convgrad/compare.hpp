// compare.hpp - the verdict on a gradient. Its errors are compared with those that rounding makes
// in a right sum of the same terms, or with the worst that it could make, or with a tolerance.
// docs/numerics.md derives both.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convgrad/problem.hpp"
#include "convgrad/reference.hpp"

namespace convgrad {

// |got - want| <= u_out*|want| + c*sqrt(L)*u_acc*sum|x||dy| + underflow, with c = kBoundFactor:
// L independent roundings of a sum stay within 4*sqrt(L)*u but with probability 1 - 2*exp(-8)
// (Higham, Mary: A new approach to probabilistic rounding error analysis, 2019).
inline constexpr double kBoundFactor = 4;
// out is the dtype of the result that is judged.
double error_bound(const WgradProblem& problem, DType out, double want, double magnitude);

// rounding: the root mean square of error/scale (Expected::scales) over the gradient, each tap,
// each input and output channel, and each element, is at most slack * group_factor(n) for n
// elements, no error is above Expected::limits, and errors have no structure. An error counts as
// far as the last rounding does not explain it.
enum class Criterion { rounding, bound, tolerance, max_ulp, bitwise };
struct Tolerance {
  Criterion criterion = Criterion::rounding;
  double slack = 3;
  double rtol = 0, atol = 0;  // |got - want| <= atol + rtol*|want|
  std::int64_t max_ulp = 0;   // steps between numbers of the result's dtype
  // Tells whether errors are judged by what the reference says of the terms.
  bool needs_terms() const { return criterion <= Criterion::bound; }
};

template <typename Value>
struct ErrorOf {
  double value = 0;         // of the measure; infinity where one side only is finite
  std::int64_t index = -1;  // in [tap][c][k] order; -1: no element differs
  Value got = 0, want = 0;
  void keep_larger(const ErrorOf& other) {
    if (other.value > value) *this = other;
  }
};
using ElementError = ErrorOf<double>;
struct TapErrors {
  std::int64_t count = 0;  // elements of this tap that were compared
  std::int64_t mismatches = 0;
  double max_abs = 0, max_ratio = 0;
  double rounding = 0;  // root mean square of error/scale
};
struct NonFinite {
  std::int64_t nan = 0, inf = 0;
  void count(double value) {
    nan += std::isnan(value) ? 1 : 0;
    inf += std::isinf(value) ? 1 : 0;
  }
};

// Tells whether a result of dtype `out` can show an element: it cannot where the exact sum is
// finite and overflows it, or is not 0 and becomes 0, as terms of that size with random signs do.
enum class Shown : std::uint8_t { yes, overflow, underflow };
Shown shown_in(DType out, const WgradProblem& problem, double want, double magnitude);

// The errors of a group's elements are judged together. limit is an element by Expected::limits.
enum class GroupKind : std::uint8_t { all, tap, input_channel, output_channel, element, limit };
struct GroupError {
  GroupKind kind = GroupKind::all;
  std::int64_t index = 0;  // which tap, channel (over all groups) or element
  double rms = 0;          // of error/scale, or error/limit
  double allowed = 1;
  double score() const { return rms / allowed; }
};
struct RoundingErrors {
  GroupError all;
  GroupError worst;          // by score: it matches where that is at most 1
  std::int64_t failing = 0;  // groups other than elements
  // These are the smallest faults that would not have passed, typically: the error of one element,
  // and the root mean square of those of a tap and of the gradient, relative to the gradient's.
  // pixels is how many would have to be left out; 0 means that no number of them would be seen.
  double element = 0, tap = 0, gradient = 0, pixels = 0;
  double scale = 0;   // root mean square of Expected::scales
  bool zero = false;  // the gradient is 0 as far as the reference's own rounding shows
  double right = 0;   // relative error that right sums typically have
};

// A relative error says something of an element that has three digits in right sums.
inline constexpr double kClear = 0x1p-10;

// Errors may have a form that rounding does not give them, however small they are. factor: they are
// the gradient times a number. digits: they are the steps of the result's dtype, away from 0 or
// towards it. pixel: they are the terms of one pixel. inputs: they are what x or dy lose when they
// are rounded.
struct Structure {
  enum class Form : std::uint8_t { factor, digits, pixel, inputs } form = Form::factor;
  GroupKind kind = GroupKind::all;  // of factor and digits: where
  std::int64_t index = 0;           // of that; or the pixel, counted over n, z, p, q
  double size = 0;                  // errors are so many times that
  double bits = 0;                  // those of right sums are by chance once in 2^bits times
  std::string text;  // of inputs: "x and dy are rounded to TF32 before they are multiplied"
};

struct Comparison {
  std::int64_t count = 0, mismatches = 0;
  ElementError abs, rel, ulp, ratio;  // the largest of each; ratio is error / error_bound()
  // These are the largest where terms do not cancel: a right sum's error (Expected::scales, if
  // known) is at most kClear of want, or one step of the result's dtype.
  ElementError clear_rel, clear_ulp;
  ElementError first_mismatch;
  std::vector<TapErrors> taps;
  NonFinite got_nonfinite, want_nonfinite;  // as numbers of the result's dtype
  double relative_error = 0;  // root of sum (got-want)^2 / sum want^2, over finite pairs
  bool all_zero = true;       // of want
  bool has_bound = false;
  bool within_bound = true;  // every element
  std::optional<RoundingErrors> rounding;
  std::optional<Structure> structure;
  bool match() const {
    return mismatches == 0 && (!rounding || rounding->worst.score() <= 1) && !structure;
  }
};

// got holds values of `out`, one for each of `indices` or for the whole gradient. expected has its
// values alone, or all its members; with all, errors are measured by the bound and by rounding too,
// and without, the criterion must be neither. Elements fail by their own errors, groups do not
// count. NaN matches NaN and an infinity one of its sign; nothing else that is not finite matches,
// except an infinity where a finite want is that close to the overflow threshold. failed, if not
// empty, gets 1 for each element that fails, else 0. Error(unavailable) where the criterion needs
// what the terms say and that overflows float64 for elements that are finite and differ.
Comparison compare_gradients(const WgradProblem& problem, DType out,
                             std::span<const std::int64_t> indices, std::span<const double> got,
                             const Expected& expected, const Tolerance& tolerance,
                             std::span<unsigned char> failed = {});

// Returns the least error before the last rounding, to out, that explains got where the exact value
// is want + tail. An infinity is explained by what is at least the overflow threshold.
double unexplained_error(DType out, double got, double want, double tail = 0);

// Returns the distance from a number of out to the next larger one in size.
double rounding_step(DType out, double value);

// Tells whether the bits of two values are equal; those of any two NaN count as equal.
bool same_bits(double a, double b);

// Counts the steps between two values, rounded to a dtype; NaN to NaN and an infinity to itself are
// 0. Returns the largest uint64 where there are no steps to count: from NaN or an infinity to
// anything else, also from what becomes an infinity when it is rounded.
std::uint64_t ulp_distance(DType dtype, double a, double b);
// Returns a distance as an error, which is infinite where there are no steps to count.
double ulp_error(std::uint64_t distance);

}  // namespace convgrad
