// compare.cpp - see compare.hpp. Every check is written "pass only if", so that NaN fails.
#include "convgrad/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "check/groups.hpp"
#include "check/rounding.hpp"
#include "check/structure.hpp"

namespace convgrad {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kAlone = group_factor(1);  // of one element
// An error that is uniform in a gradient with steps h takes elements over the middle between two
// numbers in error/h of the cases; what is then unexplained has the mean square kStepShare *
// error^3 / h (measured by simulation; the integral over a uniform place in a step gives 1/2).
constexpr double kStepShare = 0.53;
// What right sums in the accumulator's type are off by, in units of the scale: 0.61 to 0.85 of it
// one after another (three orders of normal, positive and half-zero data, 128 to 16384 terms; a
// test of verify has one of them), less in lanes.
constexpr double kRightPart = 0.65;

// Half the distance from a number of out to the next one, away from or towards 0.
double half_step(DType out, double value, bool inward) {
  // Without its significand, a number is the power of two below it, or 0 if it is subnormal.
  constexpr std::uint64_t kExponent = 0x7ffULL << 52;
  const double power = std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) & kExponent);
  const double half = unit_roundoff(out) * power;
  const bool below_power = inward && power == std::fabs(value);
  return std::max(below_power ? half / 2 : half, smallest_subnormal(out) / 2);
}

// One element's errors under all measures.
struct Errors {
  double target = 0;  // what got should be, as a number of its dtype
  double abs = 0, rel = 0, ulp = 0, ratio = 0;
  double rounding = 0, limit = 0;  // in units of the scale, and of the limit
  bool pass = false, within_bound = false, equal = false;
};

// Infinite where there is nothing to measure with.
double quotient(double error, double unit) {
  const double value = error > 0 ? error / unit : 0;
  return std::isnan(value) ? kInfinity : value;
}

struct Judge {
  const WgradProblem& problem;
  const DType out;
  const std::span<const double> all_got;
  const Expected& expected;
  const Tolerance& tolerance;
  Comparison result = {};
  // Squares of numbers that float64 may not hold.
  long double error_squares = 0, want_squares = 0;
  bool any_finite = false;  // got with a finite want

  Errors element(std::int64_t index, std::size_t at) {
    const double got = all_got[at], want = expected.values[at];
    const Errors e = errors(at);
    if (tolerance.needs_terms() && !e.pass && std::isfinite(got) && std::isfinite(want) &&
        !std::isfinite(expected.magnitudes[at])) {
      throw Error(ErrorKind::unavailable,
                  "the sum of |x*dy| of an element overflows float64, so how far it may be off is "
                  "not known",
                  Hint("use --rtol and --atol, --max-ulp or --bitwise"));
    }
    ++result.count;
    const auto keep = [&](ElementError& kept, double value) {
      kept.keep_larger({value, index, got, want});
    };
    keep(result.abs, e.abs);
    keep(result.rel, e.rel);
    keep(result.ulp, e.ulp);
    const double scale = expected.scales.empty() ? 0 : expected.scales[at];
    if (scale <= kClear * std::fabs(want)) keep(result.clear_rel, e.rel);
    if (e.ulp > result.clear_ulp.value && scale <= rounding_step(out, want)) {
      keep(result.clear_ulp, e.ulp);
    }
    if (result.has_bound) keep(result.ratio, e.ratio);
    if (!e.pass && result.mismatches++ == 0) result.first_mismatch = {e.abs, index, got, want};
    result.got_nonfinite.count(got);
    result.want_nonfinite.count(e.target);
    result.all_zero = result.all_zero && want == 0;
    result.within_bound = result.within_bound && e.within_bound;
    if (std::isfinite(e.abs) && std::isfinite(got) && std::isfinite(want)) {
      any_finite = true;
      error_squares += static_cast<long double>(e.abs) * e.abs;
      want_squares += static_cast<long double>(want) * want;
    }
    return e;
  }

  Comparison take() {
    const auto norm = [](long double squares) { return static_cast<double>(std::sqrt(squares)); };
    const double error = norm(error_squares);
    result.relative_error = error > 0 ? error / norm(want_squares) : 0;
    if (!any_finite && result.mismatches > 0) result.relative_error = 1;
    return std::move(result);
  }

  Errors errors(std::size_t at) const {
    Errors e;
    const double got = all_got[at], want = expected.values[at];
    const double tail = expected.tails.empty() ? 0 : expected.tails[at];
    const double target = e.target = rounded(out, want);
    const bool same = same_bits(got, target);
    e.equal = same || got == target;  // also 0 and -0
    const std::uint64_t ulp = ulp_distance(out, got, target);
    e.ulp = ulp_error(ulp);
    double bound = std::numeric_limits<double>::quiet_NaN();
    if (result.has_bound) bound = error_bound(problem, out, want, expected.magnitudes[at]);
    if (std::isfinite(got) && std::isfinite(want)) {
      e.abs = std::fabs((got - want) - tail);
      e.rel = want != 0 ? e.abs / std::fabs(want) : (e.abs > 0 ? kInfinity : 0);
      e.ratio = e.abs > 0 ? (std::isinf(bound) ? kInfinity : e.abs / bound) : 0;
    } else if (!e.equal) {
      e.abs = e.rel = e.ratio = kInfinity;
    }
    const bool overflows = std::isinf(got) && std::isfinite(want) &&
                           std::signbit(got) == std::signbit(want) &&
                           std::fabs(want) + bound > largest_finite(out);
    e.within_bound = e.equal || e.ratio <= 1 || overflows;
    if (result.has_bound && !e.equal) {
      const double error = unexplained_error(out, got, want, tail);
      e.rounding = quotient(error, expected.scales[at]);
      e.limit = quotient(error, expected.limits[at]);
    }
    e.pass = passes(e, same, want, ulp);
    return e;
  }

  bool passes(const Errors& e, bool same, double want, std::uint64_t ulp) const {
    if (e.equal && tolerance.criterion != Criterion::bitwise) return true;
    switch (tolerance.criterion) {
      case Criterion::rounding:
        return e.rounding <= tolerance.slack * kAlone && e.limit <= 1;
      case Criterion::bound:
        return e.within_bound;
      case Criterion::tolerance:
        return std::isfinite(e.abs) && e.abs <= tolerance.atol + tolerance.rtol * std::fabs(want);
      case Criterion::max_ulp:
        return std::isfinite(e.abs) && std::isfinite(e.ulp) &&
               std::cmp_less_equal(ulp, tolerance.max_ulp);
      default:
        return same;
    }
  }
};

struct Groups {
  const double slack;
  GroupSums<Squares> squares;
  RoundingErrors result = {};

  void add(const EntryPlaces& at, const Errors& e) {
    squares.visit(at, [&](Squares& group) { group.add(e.rounding); });
    const auto index = static_cast<std::int64_t>(at.index);
    keep({GroupKind::element, index, e.rounding, slack * kAlone});
    keep({GroupKind::limit, index, e.limit, 1});
  }

  // Only of a whole gradient are channels judged: a sample has few elements of each.
  RoundingErrors take(bool whole) {
    const double all = squares.of[0][0].count;
    for (std::size_t kind = 0; kind < (whole ? 4 : 2); ++kind) {
      for (std::size_t i = 0; i < squares.of[kind].size(); ++i) {
        const Squares& group = squares.of[kind][i];
        const GroupError error = {static_cast<GroupKind>(kind), static_cast<std::int64_t>(i),
                                  group.rms(), slack * group_factor(group.count)};
        if (kind == 0) result.all = error;
        // A group of all elements is all of them.
        if (group.count == 0 || (kind > 0 && group.count == all)) continue;
        if (!(error.score() <= 1)) ++result.failing;
        keep(error);
      }
    }
    if (result.worst.rms == 0) result.worst = result.all;
    return result;
  }

  void keep(const GroupError& error) {
    if (!(error.score() <= result.worst.score())) result.worst = error;
  }
};

// The smallest faults that would have failed.
void add_power(const WgradProblem& pb, DType out, const Expected& expected, double slack,
               RoundingErrors& result) {
  double scales = 0, steps = 0, elements = 0, count = 0;
  long double squares = 0;  // of numbers that float64 may not hold
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double want = expected.values[i];
    if (!std::isfinite(want) || !std::isfinite(expected.scales[i])) continue;
    if (shown_in(out, pb, want, expected.magnitudes[i]) != Shown::yes) continue;
    const double own = want - (expected.added.empty() ? 0 : expected.added[i]);
    squares += static_cast<long double>(own) * own;
    const double half = half_step(out, rounded(out, want), false);
    ++count;
    scales += expected.scales[i] * expected.scales[i];
    steps += half * half;
    const double element = slack * kAlone * expected.scales[i] + half;
    elements += element * element;
  }
  const auto norm = static_cast<double>(std::sqrt(squares));
  if (count == 0) return;
  const double scale = std::sqrt(scales / count), step = 2 * std::sqrt(steps / count);
  const double rms = norm / std::sqrt(count);
  result.scale = scale;
  result.zero = rms <= kReferenceNoise * scale;
  if (result.zero) return;
  result.right = std::sqrt(kRightPart * kRightPart * scales + steps / 3) / norm;
  const auto least = [&](double n) {
    const double limit = slack * group_factor(n);
    return std::max(limit * scale, std::cbrt(limit * limit * scale * scale * step / kStepShare));
  };
  result.element = std::sqrt(elements / count) / rms;
  result.tap = least(std::min(count, static_cast<double>(pb.group_c() * pb.K))) / rms;
  result.gradient = least(count) / rms;
  // m pixels change the sums by m/L of their values, and as much as m of the terms do by chance.
  const double terms = static_cast<double>(std::max<std::int64_t>(term_count(pb), 1));
  const double a = norm * norm / (terms * terms), b = expected.squares / terms;
  const double c = count * least(count) * least(count);
  const double pixels = a > 0 ? (std::sqrt(b * b + 4 * a * c) - b) / (2 * a) : c / b;
  result.pixels = pixels <= terms ? std::max(1.0, std::ceil(pixels)) : 0;
}

}  // namespace

bool same_bits(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

double error_bound(const WgradProblem& problem, DType out, double want, double magnitude) {
  const double terms = static_cast<double>(term_count(problem));
  const DType accumulator = accumulator_dtype(problem.dtype);
  const double underflow = 0.5 * smallest_subnormal(out) + terms * smallest_subnormal(accumulator);
  return unit_roundoff(out) * std::fabs(want) +
         kBoundFactor * std::sqrt(terms) * unit_roundoff(accumulator) * magnitude + underflow;
}

Shown shown_in(DType out, const WgradProblem& problem, double want, double magnitude) {
  const double size = std::fabs(want);
  const bool in_range = size >= smallest_subnormal(out) && size <= largest_finite(out);
  if (in_range || !std::isfinite(want)) return Shown::yes;
  const double target = rounded(out, want);
  if (!std::isfinite(target)) return Shown::overflow;
  const double at_random = magnitude / std::sqrt(static_cast<double>(term_count(problem)));
  const bool lost = target == 0 && want != 0 && at_random < smallest_subnormal(out);
  return lost ? Shown::underflow : Shown::yes;
}

double rounding_step(DType out, double value) { return 2 * half_step(out, value, false); }

double unexplained_error(DType out, double got, double want, double tail) {
  if (std::isinf(got) && std::isfinite(want) && std::signbit(got) == std::signbit(want)) {
    const double largest = largest_finite(out);
    return std::max(0.0, largest - std::fabs(want) + half_step(out, largest, false));
  }
  if (!std::isfinite(got) || !std::isfinite(want)) return same_bits(got, want) ? 0 : kInfinity;
  const double difference = (got - want) - tail;
  const bool inward = got != 0 && (difference > 0) == (got > 0);
  return std::max(0.0, std::fabs(difference) - half_step(out, got, inward));
}

std::uint64_t ulp_distance(DType dtype, double a, double b) {
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (std::isnan(a) || std::isnan(b)) return kNone;
  if (a == b) return 0;
  if (!std::isfinite(rounded(dtype, a)) || !std::isfinite(rounded(dtype, b))) return kNone;
  // Returns the bits of a value as an integer that grows with the value; both zeros are 0. It has
  // no sign, so that the distance of any two fits.
  const auto ordered = [dtype](double value) {
    static_assert(std::endian::native == std::endian::little);
    std::uint64_t bits = 0;
    if (is_float8(dtype)) {
      bits = float8_bits(dtype, value);
    } else {
      round_to(dtype, &value, 1, &bits);
    }
    const std::uint64_t sign = std::uint64_t{1} << (8 * dtype_bytes(dtype) - 1);
    return (bits & sign) != 0 ? sign - bits : bits;
  };
  return ordered(std::max(a, b)) - ordered(std::min(a, b));
}

double ulp_error(std::uint64_t distance) {
  const bool countable = distance < std::numeric_limits<std::uint64_t>::max();
  return countable ? static_cast<double>(distance) : kInfinity;
}

Comparison compare_gradients(const WgradProblem& problem, DType out,
                             std::span<const std::int64_t> indices, std::span<const double> got,
                             const Expected& expected, const Tolerance& tolerance,
                             std::span<unsigned char> failed) {
  Judge judge = {problem, out, got, expected, tolerance};
  Comparison& result = judge.result;
  result.has_bound = !expected.magnitudes.empty();
  Groups groups = {tolerance.slack, GroupSums<Squares>(problem)};
  result.taps.resize(static_cast<std::size_t>(problem.taps()));
  visit_entries(problem, indices, expected.values.size(),
                [&](std::size_t i, const EntryPlaces& at) {
                  const Errors e = judge.element(static_cast<std::int64_t>(at.index), i);
                  TapErrors& tap = result.taps[at.tap];
                  ++tap.count;
                  tap.mismatches += e.pass ? 0 : 1;
                  tap.max_abs = std::max(tap.max_abs, e.abs);
                  tap.max_ratio = std::max(tap.max_ratio, result.has_bound ? e.ratio : 0);
                  groups.add(at, e);
                  if (!failed.empty()) failed[i] = e.pass ? 0 : 1;
                });
  for (std::size_t t = 0; t < result.taps.size(); ++t) {
    result.taps[t].rounding = groups.squares.of[1][t].rms();
  }
  if (tolerance.criterion == Criterion::rounding) {
    result.rounding = groups.take(indices.empty());
    if (result.match()) {
      result.structure = factor_or_digits(problem, errors_of(indices, expected, got, out), out,
                                          expected.bias, false);
    }
    add_power(problem, out, expected, tolerance.slack, *result.rounding);
  }
  return judge.take();
}

}  // namespace convgrad
