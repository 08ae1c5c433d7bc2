#include "check/rounding.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "check/groups.hpp"
#include "check/term_batch.hpp"

namespace convgrad {
namespace {

// Adders of tensor cores cut this off a sum for each of its terms, as a part of u, on the average:
// 16-bit numbers are added 16 at a time, and TF32 numbers 8 at a time, three times for 3xTF32.
constexpr double kCut16 = 1.0 / 16, kCut32 = 3.0 / 8;
// Plain sums of data that round both ways stay below this times group_factor(n, 8).
constexpr double kPlainSlack = 1.2;
// Where errors of one sign would reach 1/64 of what they could at most, a quarter of that is
// granted: another order of the same sum may well be there.
constexpr double kDriftSeen = 1.0 / 64, kDriftGranted = 1.0 / 4;
// Chance widens scales in far fewer elements: one group in 3,000 is over the limit.
constexpr double kSystematicPart = 1.0 / 4;
// Squares of float64 terms may be less than float64 can hold.
constexpr double kLeastSquares = 0x1p-900;

// Returns what cutting takes from a sum of n terms, as a part of its size.
double cut_off(double n, DType data, const Summation& summation) {
  if (!summation.cuts(data)) return 0;
  if (data == DType::f32) return unit_roundoff(DType::f32) * kCut32 * n;
  const std::int64_t run = summation.longest_sum > 0 ? summation.longest_sum : kUsualCutRun;
  return unit_roundoff(DType::f32) * kCut16 * std::min(n, static_cast<double>(run));
}

// The root mean square of plain sums' errors over n elements stays below this by chance.
double plain_limit(double n) { return kPlainSlack * group_factor(n, 8); }

// Grants the rounding of a number of this size in the accumulator's type.
void grant_rounding(double unit, double size, double& scale, double& limit) {
  if (!std::isfinite(size)) return;
  scale = root_of_squares(scale, unit * size / std::sqrt(3));
  limit += unit * std::fabs(size);
}

}  // namespace

double root_of_squares(double a, double b) {
  return std::isinf(a) || std::isinf(b) ? HUGE_VAL : std::hypot(a, b, 0.0);
}

double group_factor(double n, double exponent) {
  return std::sqrt(1 + 2 * std::sqrt(exponent / n) + 2 * exponent / n);
}

bool Summation::cuts(DType data) const {
  const bool narrow = data == DType::f16 || data == DType::bf16;
  return adders == Adders::tensor_core ? data != DType::f64 : adders == Adders::usual && narrow;
}

double mean_walk(const WgradProblem& problem, std::int64_t pixels, double squares) {
  const bool every = term_count(problem) < kLookedAtEach;
  const std::int64_t looks = every ? pixels : pixels / kBatchPixels;
  return looks > 0 ? squares / static_cast<double>(looks) : 0;
}

RoundingScale rounding_scale(const TermStatistics& s, DType data, const Summation& summation) {
  const DType accumulator = accumulator_dtype(data);
  const double u = unit_roundoff(accumulator), tiny = smallest_subnormal(accumulator);
  const double n = std::max(s.terms, 1.0);
  const double run =
      summation.longest_sum > 0 ? std::min(n, static_cast<double>(summation.longest_sum)) / n : 1;
  const double square = s.sum * s.sum;
  // The sum on its way has the mean square that was seen, and at least that of a random order.
  const double walk = std::max(s.walk, square / 3 * run * run + s.squares / 6 * run);
  const double cut = cut_off(n * (data == DType::f32 ? run : 1), data, summation);
  const double variance = u * u / 3 * (n * walk + s.squares + square) +
                          cut * cut * std::max({s.squares, square, s.walk});
  const bool countable = std::isfinite(variance) && (s.squares > kLeastSquares || s.magnitude == 0);
  RoundingScale result;
  // Where squares leave float64's range, their roots' bounds by the magnitude have to do.
  const double fallback = u * std::sqrt(n / 3) * s.magnitude;
  result.scale = (countable ? std::sqrt(variance) : fallback) + tiny * std::sqrt(n);
  const double steps = data == DType::f16 || data == DType::bf16 ? 2 : 1;
  result.limit = (n + 1) * (steps * u * s.magnitude + tiny);
  result.plain = std::isfinite(s.plain_error) ? s.plain_error / result.scale : 0;
  result.drift = countable ? u * n * std::sqrt(s.walk) : 0;
  return result;
}

double walk_scale(double terms, double walk, bool alike, DType data, const Summation& summation) {
  const double u = unit_roundoff(accumulator_dtype(data)), n = std::max(terms, 1.0);
  const double cut = cut_off(n, data, summation);
  const double drift = alike ? kDriftGranted * u * n : 0;
  const double size = std::fabs(summation.factor) * std::sqrt(walk);
  return std::max(std::sqrt(u * u / 3 * n + cut * cut), drift) * size;
}

void multiply(DType data, double factor, Expected& e) {
  if (factor == 1) return;
  const double u = unit_roundoff(accumulator_dtype(data)), size = std::fabs(factor);
  for (std::size_t i = 0; i < e.values.size(); ++i) {
    const double exact = e.values[i];
    e.values[i] = factor * exact;
    if (!e.tails.empty()) {
      const double rest = std::fma(factor, exact, -e.values[i]) + factor * e.tails[i];
      e.tails[i] = std::isfinite(e.values[i]) ? rest : 0;
    }
    e.magnitudes[i] *= size;
    e.scales[i] *= size;
    e.limits[i] *= size;
    grant_rounding(u, e.values[i], e.scales[i], e.limits[i]);
  }
  e.squares *= size * size;
}

void add_to_buffer(DType data, DType out, double beta, std::span<const double> buffer,
                   Expected& e) {
  const double u = unit_roundoff(accumulator_dtype(data));
  const bool is_product_exact = std::fabs(beta) == 1 || beta == 0;
  e.added.resize(e.values.size());
  for (std::size_t i = 0; i < e.values.size(); ++i) {
    const double held = beta == 0 ? 0 : buffer[i];  // BLAS does not read it, which may be NaN
    const double part = beta * held;
    e.added[i] = part;
    double none = 0;
    double& tail = e.tails.empty() ? none : e.tails[i];
    add_exactly(part, e.values[i], tail);
    tail = std::isfinite(e.values[i]) ? tail + std::fma(beta, held, -part) : 0;
    if (!is_product_exact) grant_rounding(u, part, e.scales[i], e.limits[i]);
    if (unit_roundoff(out) > u) grant_rounding(u, e.values[i], e.scales[i], e.limits[i]);
  }
}

void set_scales(const WgradProblem& pb, bool whole, const Summation& summation,
                std::span<const RoundingScale> judged, Expected& expected) {
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  const double used =
      number(std::ranges::count_if(judged, [](const RoundingScale& j) { return j.drift > 0; }));
  // All that have terms, elements of the same c and k, of the same tap and k, and of the same tap
  // and x channel: groups of so many each. All elements of a sample are one group.
  const std::int64_t taps = pb.taps(), Cg = pb.group_c();
  const std::int64_t counts[] = {1, Cg * pb.K, taps * pb.K, taps * pb.C};
  const double each[] = {whole ? used : number(std::ssize(judged)), number(taps), number(Cg),
                         number(pb.group_k())};
  const std::size_t kinds = whole ? 4 : 1;
  std::array<std::vector<double>, 4> rms;  // of plain sums' errors
  for (std::size_t m = 0; m < kinds; ++m) rms[m].resize(static_cast<std::size_t>(counts[m]));
  const auto for_each = [&](const auto& visit) {
    const auto C = static_cast<std::size_t>(pb.C), K = static_cast<std::size_t>(pb.K);
    visit_entries(pb, {}, judged.size(), [&](std::size_t at, const EntryPlaces& p) {
      visit(at, std::array{std::size_t{0}, p.c * K + p.k, p.tap * K + p.k, p.tap * C + p.x});
    });
  };
  for_each([&](std::size_t at, const std::array<std::size_t, 4>& of) {
    const double square = judged[at].plain * judged[at].plain;
    for (std::size_t m = 0; m < kinds; ++m) rms[m][of[m]] += square;
  });
  std::array<double, 4> limits{};
  for (std::size_t m = 0; m < kinds; ++m) {
    limits[m] = plain_limit(each[m]);
    for (double& square : rms[m]) square = each[m] > 0 ? std::sqrt(square / each[m]) : 0;
  }
  const double own_limit = plain_limit(1);
  expected.scales.reserve(judged.size());
  expected.limits.reserve(judged.size());
  double wider = 0;
  for_each([&](std::size_t at, const std::array<std::size_t, 4>& of) {
    const auto& [own, limit, plain, drift] = judged[at];
    double& scale = expected.scales.emplace_back(own);
    expected.limits.push_back(limit);
    double largest = std::fabs(plain);
    bool systematic = largest > own_limit;
    for (std::size_t m = 0; m < kinds; ++m) {
      largest = std::max(largest, rms[m][of[m]]);
      systematic = systematic || rms[m][of[m]] > limits[m];
    }
    if (!systematic) return;
    ++wider;
    scale *= largest;
    if (scale > kDriftSeen * drift) scale = std::max(scale, kDriftGranted * drift);
  });
  using Bias = Expected::Bias;
  const bool any = wider > kSystematicPart * used;
  expected.bias = any ? Bias::any : summation.cuts(pb.dtype) ? Bias::smaller : Bias::none;
}

}  // namespace convgrad
