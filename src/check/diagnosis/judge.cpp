// judge.cpp - see judge.hpp.
#include "check/diagnosis/judge.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "check/rounding.hpp"

namespace convgrad::diagnosis {
namespace {

using Instead = Filling::Instead;

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

}  // namespace

double Judge::unexplained(std::size_t at, double value, const std::optional<Grid>& grid) const {
  const double result = e_.got(at);
  if (!grid) return unexplained_error(e_.problem().out_dtype, result, value);
  if (!std::isfinite(result)) return unexplained_error(grid->like, result, value);
  const double step = rounding_step(grid->like, result) * grid->part;
  const double sign = std::copysign(1.0, result == 0 ? value : result);
  const double outward = sign * (value - result);  // of the result, in the direction of its sign
  const double least = grid->cut ? 0 : -step / 2, most = grid->cut ? step : step / 2;
  return std::max({0.0, least - outward, outward - most});
}

// Tells whether the number stands where the filling puts something else, and is that.
bool Judge::replaced(const Filling& filling, std::size_t at, double value) const {
  const double result = e_.got(at);
  switch (filling.instead) {
    case Instead::zero:
      return result == 0;
    case Instead::nan:
      return std::isnan(result);
    case Instead::finite:
      return std::isfinite(result) && !std::isfinite(value);
    case Instead::limit:
      return result == std::copysign(filling.limit, value) && std::fabs(value) > filling.limit;
    default:
      return false;
  }
}

// Returns the bits by which an entry that is explained is told from a right one: how often its
// error exceeds what rounding would hide.
double Judge::told(const Trial& t, std::size_t i, double larger, bool spared) const {
  const std::size_t at = t.at[i];
  const Filling& filling = t.filling;
  const double value = t.value(i), error = std::fabs(e_.got(at) - e_.want(at));
  if (replaced(filling, at, value)) return kMostBits;
  if (!(error < HUGE_VAL)) {
    if (e_.error(at) <= kWrong) return 0;  // NaN for NaN, or the same infinity
    return std::isinf(e_.got(at)) && std::isinf(e_.want(at)) ? 1 : kMostBits;
  }
  const double tolerance = kSlack * larger + rounding_step(e_.problem().out_dtype, e_.want(at)) / 2;
  const double bits = std::clamp(std::log2(error / tolerance), 0.0, kMostBits);
  // A rounding in one direction is told from one in the other.
  const bool directed = filling.grid && filling.grid->own && !spared &&
                        std::fabs(e_.got(at) - value) > kSlack * larger;
  return directed ? std::max(bits, 1.0) : bits;
}

// Returns what the explanation leaves of an entry's error.
Judge::Rest Judge::rest(const Trial& t, std::size_t i) const {
  const std::optional<Grid>& grid = t.filling.grid;
  const std::size_t at = t.at[i];
  const double own = e_.scale(at), scaled = std::fabs(t.factor) * t.predicted.scales[i];
  Rest rest;
  // A fault that leaves an entry no terms has a scale of 0, by which no error can be divided.
  rest.unit = std::isfinite(scaled) ? std::max(scaled, 0x1p-40 * own) : own;
  rest.larger = std::max(rest.unit, own);
  const double value = t.value(i);
  rest.is_replaced = replaced(t.filling, at, value);
  double left = rest.is_replaced ? 0 : unexplained(at, value, grid);
  // What is scaled, or rounded to a narrow type, may have been rounded before that.
  const bool twice = (grid && !grid->own) || std::fabs(t.factor - 1) > kFactorSeen;
  if (twice && left > 0) {
    const double step = rounding_step(e_.problem().out_dtype, t.predicted.values[i]);
    left -= std::fabs(t.factor) * step / 2;
  }
  rest.left = left <= 0 ? 0 : left / rest.unit;  // may be NaN: Inf for -Inf
  rest.spared = t.filling.instead == Instead::plain && e_.error(at) < rest.left;
  if (rest.spared) rest.left = e_.error(at);
  return rest;
}

// Returns the root mean square of error/scale, if all is as a right explanation leaves it.
std::optional<double> Judge::misfit(const Trial& t) const {
  double before = 0, after = 0, squares = 0;
  // The bits by which a fault is more likely than chance. Elements that hold the same numbers, and
  // of which the same is predicted, count once.
  double bits = 0;
  std::map<std::pair<std::size_t, std::uint64_t>, double> pieces;
  for (std::size_t i = 0; i < t.at.size(); ++i) {
    const std::size_t at = t.at[i];
    const Rest r = rest(t, i);
    if (!(r.left <= kWrong)) return std::nullopt;
    squares += r.left * r.left;
    // What the filling replaces says nothing for a fault: any fault leaves it explained.
    if (r.is_replaced && (!t.plain || e_.error(at) <= kWrong)) continue;
    // Errors may be infinite, and any rest would then be a small part of them.
    const double old = std::min(e_.error(at) * e_.scale(at) / r.larger, 1e6);
    before += old * old;
    after += std::pow(r.left * r.unit / r.larger, 2);
    double more = told(t, i, r.larger, r.spared);
    if (!e_.are_different()) {
      const auto number = std::bit_cast<std::uint64_t>(t.predicted.values[i]);
      double& most = pieces[{e_.first_alike(at), number}];
      more = std::max(more - most, 0.0);
      most += more;
    }
    bits += more;
  }
  const auto count = static_cast<double>(t.at.size());
  const double rms = std::sqrt(squares / count);
  const double part = t.lenient ? kUnexplainedAtFirst : kUnexplained;
  const bool good = rms <= kSlack * group_factor(count) && after <= part * before &&
                    (t.lenient || bits >= kLeastBits + t.bits);
  return good ? std::optional(rms) : std::nullopt;
}

std::optional<Fit> Judge::judge(const Positions& at, const Expected& predicted, double bits,
                                bool plain, bool lenient) const {
  for (const Filling& filling : fillings_) {
    // Three faults at once would explain anything.
    const std::size_t faults =
        filling.parts.size() + (filling.multiplied ? 1 : 0) + (plain ? 0 : 1);
    if (faults < 1 || faults > 2 || (filling.alone && !plain)) continue;
    Trial trial = {at, predicted, filling, plain, lenient, bits + filling.bits};
    if (filling.multiplied && !find_factor(trial)) continue;
    const auto rms = misfit(trial);
    if (!rms) continue;
    Fit fit = {*rms, filling.parts, filling.only, filling.instead == Instead::finite};
    if (!trial.number.name.empty()) fit.parts.insert(fit.parts.begin(), trial.number);
    return fit;
  }
  return std::nullopt;
}

Finding finding(const Fit::Part& fault, const Fit& fit, Certainty certainty, std::size_t checked) {
  Finding result;
  std::vector<Fit::Part> parts = fit.parts;
  if (!fault.name.empty()) parts.insert(parts.begin(), fault);
  for (const Fit::Part& part : parts) {
    const bool first = &part == &parts.front();
    result.fault += (first ? "" : "+") + part.name;
    result.text += (first ? "" : ", and ") + part.text;
    if (part.cause.empty()) continue;
    result.cause += (result.cause.empty() ? "" : "; ") + part.cause;
  }
  if (!fit.only.empty()) result.text += ", in " + fit.only + " alone";
  result.certainty = certainty;
  result.checked = static_cast<std::int64_t>(checked);
  result.only_rounds = parts.size() == 1 && parts[0].rounds;
  return result;
}

}  // namespace convgrad::diagnosis
