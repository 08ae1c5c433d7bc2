// sizes.cpp - finds sums that were rounded to a narrower type in an order that cannot be repeated:
// only their errors can tell.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

// Errors count as those of narrow sums within these factors of the simulated ones: sums in pieces
// or trees have smaller ones (0.2 to 0.7 of them in 4 lanes, or chunks of 16 and 64).
constexpr double kLeastSize = 1.0 / 6, kMostSize = 3;
// They count only if at least this part of all entries is wrong, of so many:
// scripts/measure_diagnosis met 13 errors of noise that look like those of sums.
constexpr double kLeastFailing = 0.25;
constexpr std::size_t kLeastEntries = 32;
// Errors of a tap or channel of so many elements must be within these factors of all errors. A
// rounding is half to all of a step, so half to twice the size may be; scripts/measure_diagnosis
// names as many with 2 and with 6.
constexpr double kLeastAlike = 1.0 / 3, kMostAlike = 3, kLeastGroup = 8;
// Errors of sums must be likelier than those of inputs or terms by this log2: where they are at
// least half as large as those pixel by pixel, and where they are smaller, as more faults make
// them. With 128 entries sums in one run have -1 (all terms positive: they tell nothing) to 80, dy
// as int8 or without its small numbers -10 and less; in 16-bit results, where rounding hides much,
// up to -1.
constexpr double kLeastOdds = -1, kLeastOddsOfSmall = 8, kSmall = 0.5;

// Returns the root mean square of the errors of values, in units of sum |x||dy|.
double error_size(const Evidence& evidence, const Sample& sample,
                  const std::function<double(std::size_t)>& value) {
  Squares errors;
  for (std::size_t i = 0; i < sample.at.size(); ++i) {
    const double size = evidence.suspect().expected.magnitudes[sample.at[i]];
    const double error = value(i) - evidence.want(sample.at[i]);
    if (std::isfinite(error) && size > 0) errors.add(error / size);
  }
  return errors.rms();
}

// Tells whether everything about the gradient is as sums in this type would leave it.
bool plausible(const Evidence& evidence, DType type) {
  const Expected& expected = evidence.suspect().expected;
  const DType out = evidence.problem().out_dtype;
  const bool narrower = unit_roundoff(type) > unit_roundoff(out);
  const double terms = static_cast<double>(term_count(evidence.problem()));
  bool seen = false;
  for (const std::size_t at : evidence.all()) {
    const double error = unexplained_error(out, evidence.got(at), evidence.want(at));
    const double bound = kBoundFactor * std::sqrt(terms) *
                         (unit_roundoff(type) * expected.magnitudes[at] + smallest_subnormal(type));
    if (!(error <= bound)) return false;
    // A result of a wider dtype then holds nothing but values of the narrow type.
    if (narrower && rounded(type, evidence.got(at)) != evidence.got(at)) return false;
    const double step = rounding_step(type, evidence.got(at));
    seen = seen || std::fabs(evidence.got(at) - evidence.want(at)) > step;
  }
  if (!seen) return false;  // a single rounding in any direction
  return static_cast<double>(evidence.wrong().size()) >=
         kLeastFailing * static_cast<double>(evidence.size());
}

// Narrow sums are added in an order: in lanes that take pixels in turns, in chunks of pixels whose
// sums are added, from the last pixel on, or in no order at all.
struct Walk {
  std::size_t lanes = 1, chunk = 0;
  bool backwards = false, mixed = false;
};
constexpr Walk kWalks[] = {{}, {1, 0, true}, {1, 0, false, true}, {4}, {1, 16}, {1, 64}};

// Multiples of it, modulo count, visit everything, each far from the last: the golden section.
std::size_t golden_stride(std::size_t count) {
  auto stride = static_cast<std::size_t>(0.618 * static_cast<double>(count)) | 1;
  while (std::gcd(stride, count) > 1) ++stride;
  return stride;
}

// Returns the mean square of these sums' rounding errors: a twelfth of each step's.
double spread(const Terms& terms, DType type, const Walk& walk) {
  const std::size_t count = terms.x.size();
  const std::size_t stride = golden_stride(count);
  std::vector<double> sums(walk.lanes, 0.0);
  double squares = 0, total = 0;
  const auto round = [&](double value) {
    const double step = value == 0 ? 0 : rounding_step(type, value);
    squares += step * step / 12;
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = walk.backwards ? count - 1 - i : walk.mixed ? i * stride % count : i;
    double& sum = sums[i % walk.lanes];
    sum += terms.x[at] * terms.dy[at];
    round(sum);
    if (walk.chunk == 0 || (i + 1) % walk.chunk != 0) continue;
    total += sum;
    sum = 0;
    round(total);
  }
  return squares;
}

// Returns log2 of how likely these errors are if their mean squares are these, times the factor
// that makes them the likeliest, plus those of the last rounding.
double likelihood(std::span<const double> errors, std::span<const double> squares,
                  std::span<const double> rounding) {
  double size = 0, expected = 0, best = -HUGE_VAL;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    size += errors[i] * errors[i];
    expected += squares[i];
  }
  for (int half_bits = -12; half_bits <= 12; ++half_bits) {
    const double factor = std::exp2(half_bits / 2.0);
    double bits = 0;
    for (std::size_t i = 0; i < errors.size(); ++i) {
      const double square = squares[i] * factor * size / expected + rounding[i];
      bits -= (std::log2(square) + errors[i] * errors[i] / square / std::log(2.0)) / 2;
    }
    best = std::max(best, bits);
  }
  return best;
}

// Tells whether errors are the larger the larger the sums are on their way, as those of narrow sums
// are. Those of inputs that are off, or of terms, are as large as x, dy or the terms, whatever
// their sums.
bool follows_sums(const Evidence& evidence, const Sample& sample, DType type, double least_odds) {
  const DType out = evidence.problem().out_dtype;
  const DType stored = unit_roundoff(type) > unit_roundoff(out) ? type : out;
  constexpr std::size_t kWays = std::size(kWalks), kOthers = 4;
  std::vector<double> errors, rounding, squares[kWays + kOthers];
  for (std::size_t e = 0; e < sample.at.size(); ++e) {
    const double want = evidence.want(sample.at[e]), error = evidence.got(sample.at[e]) - want;
    const Terms& terms = sample.terms[e];
    double x = 0, dy = 0, products = 0;
    for (std::size_t i = 0; i < terms.x.size(); ++i) {
      x += terms.x[i] * terms.x[i];
      dy += terms.dy[i] * terms.dy[i];
      products += std::pow(terms.x[i] * terms.dy[i], 2);
    }
    if (!std::isfinite(error) || !(products > 0)) continue;
    errors.push_back(error);
    rounding.push_back(std::pow(rounding_step(stored, want), 2) / 12);
    for (std::size_t w = 0; w < kWays; ++w) squares[w].push_back(spread(terms, type, kWalks[w]));
    squares[kWays].push_back(x);
    squares[kWays + 1].push_back(dy);
    squares[kWays + 2].push_back(products);
    squares[kWays + 3].push_back(1);
  }
  double sums = -HUGE_VAL, others = -HUGE_VAL;
  for (std::size_t w = 0; w < kWays + kOthers; ++w) {
    double& best = w < kWays ? sums : others;
    best = std::max(best, likelihood(errors, squares[w], rounding));
  }
  return !errors.empty() && sums - others >= least_odds;
}

// Narrow sums spare no tap and no channel: the errors of each, in units of the scale, are about as
// large as all.
bool alike_everywhere(const Evidence& evidence) {
  std::vector<double> errors;
  for (const std::size_t at : evidence.all()) {
    const bool tells = std::isfinite(evidence.want(at)) && evidence.want(at) != 0;
    errors.push_back(tells ? evidence.error(at) : NAN);
  }
  const GroupSums<Squares> groups = evidence.groups_of(errors);
  const double all = groups.of[0][0].rms();
  return !groups.any([&](const Squares& group) {
    const bool alike = group.rms() >= kLeastAlike * all && group.rms() <= kMostAlike * all;
    return group.count >= kLeastGroup && !alike;
  });
}

}  // namespace

std::vector<DType> narrow_types(const WgradProblem& pb) {
  std::vector<DType> types = {DType::f16, DType::bf16};
  if (pb.dtype == DType::f64) types.push_back(DType::f32);
  return types;
}

std::optional<Finding> find_size(const Evidence& evidence, const Sample& sample) {
  const WgradProblem& pb = evidence.problem();
  std::optional<Finding> result;
  if (evidence.size() < kLeastEntries) return result;
  double best = std::numeric_limits<double>::infinity();
  const double got =
      error_size(evidence, sample, [&](std::size_t i) { return evidence.got(sample.at[i]); });
  for (const DType type : narrow_types(pb)) {
    if (unit_roundoff(type) < unit_roundoff(pb.dtype)) continue;
    std::vector<double> sums;
    for (const Terms& terms : sample.terms) sums.push_back(simulated(terms, {type}));
    const double size = error_size(evidence, sample, [&](std::size_t i) { return sums[i]; });
    const double distance = std::fabs(std::log(got / size));
    const bool of_that_size = got >= kLeastSize * size && got <= kMostSize * size;
    if (!of_that_size || distance >= best || !plausible(evidence, type) ||
        !alike_everywhere(evidence) ||
        !follows_sums(evidence, sample, type,
                      got >= kSmall * size ? kLeastOdds : kLeastOddsOfSmall)) {
      continue;
    }
    best = distance;
    result = finding({"low_precision_sums", cat("sums are rounded to ", dtype_name(type)),
                      "an accumulator of that type", true},
                     {}, Certainty::size, evidence.size());
  }
  return result;
}

}  // namespace convgrad::diagnosis
