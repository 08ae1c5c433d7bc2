// judge.cpp - judges whether the suspect is what a fault predicts, with one of the fillings.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>

#include "check/diagnosis/search.hpp"
#include "check/rounding.hpp"

namespace convgrad::diagnosis {
namespace {

using Instead = Filling::Instead;
using Number = Filling::Number;

// An explanation must leave at most this part of the sum of squared errors:
// scripts/measure_diagnosis names as many with 1/2 and with 1/256, and none wrongly. A first look
// is more patient.
constexpr double kUnexplained = 1.0 / 16, kUnexplainedAtFirst = 0.5;
// A fault must be so many bits more likely than chance, besides what it took to find it: one of
// 4096 that are tried. scripts/measure_diagnosis names 99.8 % with 4 bits, 98.8 % with 24.
constexpr double kLeastBits = 12;
// A factor this near 1 is not told from rounding where a result is rounded twice: about a step of
// bfloat16.
constexpr double kFactorSeen = 0.01;

// Adds up the bits by which a fault is more likely than chance. Elements that hold the same
// numbers, and of which the same is predicted, count once.
class Pieces {
 public:
  void add(std::size_t want, double predicted, double bits, bool repeated) {
    double& most = repeated ? pieces_[{want, std::bit_cast<std::uint64_t>(predicted)}] : sum_;
    most = repeated ? std::max(most, bits) : most + bits;
  }
  double sum() const {
    return std::accumulate(pieces_.begin(), pieces_.end(), sum_,
                           [](double sum, const auto& piece) { return sum + piece.second; });
  }

 private:
  std::map<std::pair<std::size_t, std::uint64_t>, double> pieces_;
  double sum_ = 0;
};

}  // namespace

double Evidence::unexplained(std::size_t at, double value, const Grid* grid) const {
  const double result = got(at);
  if (grid == nullptr) return unexplained_error(problem().out_dtype, result, value);
  if (!std::isfinite(result)) return unexplained_error(grid->like, result, value);
  const double step = rounding_step(grid->like, result) * grid->part;
  const double sign = std::copysign(1.0, result == 0 ? value : result);
  const double outward = sign * (value - result);  // of the result, in the direction of its sign
  const double least = grid->cut ? 0 : -step / 2, most = grid->cut ? step : step / 2;
  return std::max({0.0, least - outward, outward - most});
}

bool Evidence::fits(std::size_t at, double value, double scale) const {
  return unexplained(at, value, nullptr) <= kWrong * scale;
}

// Tells whether the number stands where the filling puts something else, and is that.
bool Evidence::replaced(const Filling& filling, std::size_t at, double value) const {
  const double result = got(at);
  return (filling.instead == Instead::zero && result == 0) ||
         (filling.instead == Instead::nan && std::isnan(result)) ||
         (filling.instead == Instead::finite && std::isfinite(result) && !std::isfinite(value));
}

// Returns the bits by which an entry that is explained is told from a right one: how often its
// error exceeds what rounding would hide.
double Evidence::told(const Trial& t, std::size_t i, double larger, bool spared) const {
  const std::size_t at = t.at[i];
  const Filling& filling = t.filling;
  const double value = t.value(i), error = std::fabs(got(at) - want(at));
  const bool stops = filling.known_most && std::fabs(got(at)) == filling.most &&
                     !(std::fabs(t.predicted.values[i]) <= filling.most);
  if (stops || replaced(filling, at, value)) return kMostBits;
  if (!(error < HUGE_VAL)) {
    if (errors_[at] <= kWrong) return 0;  // NaN for NaN, or the same infinity
    return std::isinf(got(at)) && std::isinf(want(at)) ? 1 : kMostBits;
  }
  const double tolerance = kSlack * larger + rounding_step(problem().out_dtype, want(at)) / 2;
  const double bits = std::clamp(std::log2(error / tolerance), 0.0, kMostBits);
  // A rounding in one direction is told from one in the other.
  const bool directed = filling.grid != nullptr && filling.grid->own && !spared &&
                        std::fabs(got(at) - value) > kSlack * larger;
  return directed ? std::max(bits, 1.0) : bits;
}

// Returns what the explanation leaves of an entry's error.
Evidence::Rest Evidence::rest(const Trial& t, std::size_t i) const {
  const Grid* const grid = t.filling.grid;
  const std::size_t at = t.at[i];
  const double own = scale(at), scaled = std::fabs(t.factor) * t.predicted.scales[i];
  Rest rest;
  // A fault that leaves an entry no terms has a scale of 0, by which no error can be divided.
  rest.unit = std::isfinite(scaled) ? std::max(scaled, 0x1p-40 * own) : own;
  rest.larger = std::max(rest.unit, own);
  const double value = t.value(i);
  rest.is_replaced = replaced(t.filling, at, value);
  double left = rest.is_replaced ? 0 : unexplained(at, value, grid);
  // What is scaled, or rounded to a narrow type, may have been rounded before that.
  const bool twice =
      (grid != nullptr && !grid->own) || std::fabs(t.factor - 1) > kFactorSeen || t.offset != 0;
  if (twice && left > 0) {
    const double step = rounding_step(problem().out_dtype, t.predicted.values[i]);
    left -= std::fabs(t.factor) * step / 2;
  }
  rest.left = left <= 0 ? 0 : left / rest.unit;  // may be NaN: Inf for -Inf
  rest.spared = t.filling.instead == Instead::plain && errors_[at] < rest.left;
  if (rest.spared) rest.left = errors_[at];
  return rest;
}

// Returns the root mean square of error/scale, if all is as a right explanation leaves it.
std::optional<double> Evidence::misfit(const Trial& t) const {
  double before = 0, after = 0, squares = 0;
  Pieces bits;
  for (std::size_t i = 0; i < t.at.size(); ++i) {
    const std::size_t at = t.at[i];
    const Rest r = rest(t, i);
    if (!(r.left <= kWrong)) return std::nullopt;
    squares += r.left * r.left;
    // What the filling replaces says nothing for a fault: any fault leaves it explained.
    if (r.is_replaced && (!t.plain || errors_[at] <= kWrong)) continue;
    // Errors may be infinite, and any rest would then be a small part of them.
    const double old = std::min(errors_[at] * scale(at) / r.larger, 1e6);
    before += old * old;
    after += std::pow(r.left * r.unit / r.larger, 2);
    bits.add(alike_.empty() ? at : alike_[at], t.predicted.values[i],
             told(t, i, r.larger, r.spared), !alike_.empty());
  }
  const auto count = static_cast<double>(t.at.size());
  const double rms = std::sqrt(squares / count);
  const double part = t.lenient ? kUnexplainedAtFirst : kUnexplained;
  const bool good = rms <= kSlack * group_factor(count) && after <= part * before &&
                    (t.lenient || bits.sum() >= kLeastBits + t.bits);
  return good ? std::optional(rms) : std::nullopt;
}

std::optional<Fit> Evidence::judge(const Positions& at, const Predicted& predicted, double bits,
                                   bool plain, bool lenient) const {
  for (const Filling& filling : fillings_) {
    // Three faults at once would explain anything.
    const std::size_t faults =
        filling.parts.size() + (filling.number != Number::none ? 1 : 0) + (plain ? 0 : 1);
    if (faults < 1 || faults > 2 || (filling.alone && !plain)) continue;
    Trial trial = {at, predicted, filling, plain, lenient, bits + filling.bits};
    if (filling.number == Number::factor && !find_factor(trial)) continue;
    if (filling.number == Number::offset && !find_offset(trial)) continue;
    const auto rms = misfit(trial);
    if (!rms) continue;
    Fit fit = {*rms, filling.parts, filling.only};
    if (!trial.number.name.empty()) fit.parts.insert(fit.parts.begin(), trial.number);
    return fit;
  }
  return std::nullopt;
}

}  // namespace convgrad::diagnosis
