// rounding.cpp - see rounding.hpp.
#include "check/rounding.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace convgrad {
namespace {

// The longest run of terms that adders of tensor cores are taken to sum before the rest is added in
// float32; each step cuts at most a sixteenth of u of the largest number, on the average.
constexpr double kCutRun = 4096, kCutPart = 1.0 / 16;
// Plain sums of data that round both ways stay below this times group_factor(n, 8).
constexpr double kPlainSlack = 1.2;
// Where errors of one sign would reach 1/64 of what they could at most, a quarter of that is
// granted: another order of the same sum may well be there.
constexpr double kDriftSeen = 1.0 / 64, kDriftGranted = 1.0 / 4;
// Squares of float64 terms may be less than float64 can hold.
constexpr double kLeastSquares = 0x1p-900;

// The root mean square over the elements that share an id.
class GroupRms {
 public:
  explicit GroupRms(std::int64_t ids)
      : squares_(static_cast<std::size_t>(ids)), counts_(static_cast<std::size_t>(ids)) {}
  void add(std::int64_t id, double value) {
    const auto i = static_cast<std::size_t>(id);
    squares_[i] += value * value;
    ++counts_[i];
  }
  double rms(std::int64_t id) const {
    const auto i = static_cast<std::size_t>(id);
    return std::sqrt(squares_[i] / counts_[i]);
  }
  double count(std::int64_t id) const { return counts_[static_cast<std::size_t>(id)]; }

 private:
  std::vector<double> squares_, counts_;
};

bool is_systematic(double plain, double n) { return plain > kPlainSlack * group_factor(n, 8); }

}  // namespace

double group_factor(double n, double exponent) {
  return std::sqrt(1 + 2 * std::sqrt(exponent / n) + 2 * exponent / n);
}

RoundingScale rounding_scale(const TermStatistics& s, DType data, const Summation& summation) {
  const DType accumulator = accumulator_dtype(data);
  const double u = unit_roundoff(accumulator), tiny = smallest_subnormal(accumulator);
  const double n = std::max(s.terms, 1.0);
  const double run =
      summation.longest_sum > 0 ? std::min(n, static_cast<double>(summation.longest_sum)) / n : 1;
  const double square = s.sum * s.sum;
  // The mean square of the sum on its way: as it was seen, and at least that of terms in an order
  // that knows nothing of them.
  const double walk = std::max(s.walk, square / 3 * run * run + s.squares / 6 * run);
  double variance = u * u / 3 * (n * walk + s.squares + square);
  if ((data == DType::f16 || data == DType::bf16) && summation.cutting_adders) {
    const double cut = u * kCutPart * std::min(n, kCutRun);
    variance += cut * cut * std::max({s.squares, square, s.walk});
  }
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

void widen_scales(const WgradProblem& pb, bool whole, std::span<const double> plain,
                  std::span<const double> drift, std::span<double> scales) {
  const auto count = static_cast<std::int64_t>(plain.size());
  const std::int64_t rows = pb.group_c(), row = pb.K, cells = rows * row;
  // Groups of the same c and k, of the same tap and k, and of the same tap and c.
  GroupRms taps(whole ? cells : 1), columns(whole ? pb.taps() * row : 0),
      lines(whole ? pb.taps() * rows * pb.groups : 0);
  const auto tap_id = [&](std::int64_t i) { return whole ? i % cells : 0; };
  const auto column_id = [&](std::int64_t i) { return i / cells * row + i % row; };
  const auto line_id = [&](std::int64_t i) { return i / row * pb.groups + i % row / pb.group_k(); };
  double squares = 0, used = 0;  // of elements that have terms
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = plain[static_cast<std::size_t>(i)];
    squares += value * value;
    used += drift[static_cast<std::size_t>(i)] > 0 ? 1 : 0;
    taps.add(tap_id(i), value);
    if (!whole) continue;
    columns.add(column_id(i), value);
    lines.add(line_id(i), value);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    double largest = 0;
    bool systematic = false;
    const auto look = [&](double value, double n) {
      largest = std::max(largest, value);
      systematic = systematic || is_systematic(value, n);
    };
    look(plain[at], 1);
    if (whole && used > 0) look(std::sqrt(squares / used), used);
    look(taps.rms(tap_id(i)), taps.count(tap_id(i)));
    if (whole) {
      look(columns.rms(column_id(i)), columns.count(column_id(i)));
      look(lines.rms(line_id(i)), lines.count(line_id(i)));
    }
    if (!systematic) continue;
    const double widened = scales[at] * largest;
    scales[at] =
        widened > kDriftSeen * drift[at] ? std::max(widened, kDriftGranted * drift[at]) : widened;
  }
}

}  // namespace convgrad
