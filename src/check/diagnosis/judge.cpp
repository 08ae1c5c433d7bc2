// judge.cpp - see judge.hpp.
#include "check/diagnosis/judge.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "check/rounding.hpp"

namespace convgrad::diagnosis {
namespace {

using Instead = Filling::Instead;

// An explanation must leave at most this part of the sum of squared errors:
// scripts/measure_diagnosis names as many with 1/2 and with 1/256, and none wrongly. A first look
// is more patient.
constexpr double kUnexplained = 1.0 / 16, kUnexplainedAtFirst = 0.5;
// One element tells at most the bits of a float32.
constexpr double kMostBits = 24;
// By chance an error takes at most a quarter of numbers to the other of a grid that they became.
constexpr double kBitsOfSlip = 2;
// A factor this near 1, about a step of bfloat16, is not told from rounding twice.
constexpr double kFactorSeen = 0.01;

// A known factor is one of about 2^4 that are within reach of what is measured.
constexpr double kFactorBits = 4;
// A decimal digit is log2(10) bits, and more digits than 17 tell no double from another.
constexpr double kDigitBits = 3.4;
constexpr int kMostDigits = 17;
// Sums that are added to over and over are whole multiples, up to this; loss scales begin at 2^16
// and double as long as nothing overflows (Apex stops at 2^24).
constexpr int kMostAdded = 16, kLargestScale = 24;

struct Factor {
  double value;
  std::string text;  // " (1/N)", after its digits
  double bits = kFactorBits;
};

std::string digits(double value, int count) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", count, value);
  return text;
}

std::vector<Factor> known_factors(const WgradProblem& pb) {
  std::vector<Factor> factors;
  // Small whole numbers are sums that were added to, whatever else has that value.
  for (const double small : {2.0, 3.0, 4.0}) factors.push_back({small, ""});
  const auto add = [&](double count, const std::string& name) {
    if (!(count > 1)) return;
    factors.push_back({1 / count, cat(" (1/", name, ")")});
    factors.push_back({count, cat(" (", name, ")")});
  };
  const double N = static_cast<double>(pb.N), pixels = static_cast<double>(pb.out_pixels());
  const int rank = pb.spatial_rank();
  const char* const out = rank > 2 ? "Z*P*Q)" : rank > 1 ? "P*Q)" : "Q)";
  add(N, "N");
  add(N * pixels, cat("(N*", out));
  add(pixels, cat("(", out));
  add(static_cast<double>(pb.taps()), rank > 2 ? "(T*R*S)" : rank > 1 ? "(R*S)" : "S");
  add(static_cast<double>(pb.groups), "groups");
  add(static_cast<double>(pb.C), "C");
  add(static_cast<double>(pb.K), "K");
  for (int count = 2; count <= kMostAdded; ++count) {
    factors.push_back({1.0 / count, cat(" (1/", count, ")")});
  }
  for (int power = 5; power <= kLargestScale; ++power) {
    add(std::ldexp(1.0, power), cat("2^", power));
  }
  return factors;
}

// Says what usually brings a factor about; most numbers have no cause.
std::string causes_of(double factor) {
  const double size = std::fabs(factor);
  const auto whole = [](double v) { return v > 1 && std::fabs(v - std::round(v)) <= 1e-6 * v; };
  int exponent = 0;
  const bool power = std::frexp(size, &exponent) == 0.5 && std::abs(exponent - 1) >= 5;
  std::string causes;
  const auto add = [&](bool is_so, const char* cause) {
    if (is_so) causes += (causes.empty() ? "" : "; ") + std::string(cause);
  };
  add(factor < 0, "a sign: the gradient of -loss, or an update in place of a gradient");
  add(power, "a loss scale that was left in, or divided out twice");
  add(!power && whole(size) && size <= kMostAdded,
      "a sum that is added to what was there: beta = 1, backward twice without zeroing, a warm-up "
      "run, or atomics on a buffer that was not set to 0");
  add(!power && whole(size) && size > kMostAdded, "a sum in place of a mean");
  add(whole(1 / size), "a mean in place of a sum");
  return causes;
}

double grid_step(const Grid& grid, double value) {
  return rounding_step(grid.like, value) * grid.part;
}

// A trial puts a filling with its number on top of what is predicted.
struct Trial {
  const Evidence& e;
  const Positions& positions;
  const Expected& predicted;
  const Filling& filling;
  bool plain, lenient;
  double needed;  // bits that it cost to find all this
  double factor = 1;
  Fit::Part number = {};

  struct Rest {
    double left = 0, unit = 0;  // in units; the unit itself
    double larger = 0;          // of the unit and the entry's scale
    bool is_replaced = false;   // by the filling
  };

  double unexplained(std::size_t at, double value) const {
    const std::optional<Grid>& grid = filling.grid;
    const double result = e.got(at);
    if (!grid) return e.unexplained(at, value);
    if (!std::isfinite(result)) return unexplained_error(grid->like, result, value);
    const double step = grid_step(*grid, result);
    const double sign = std::copysign(1.0, result == 0 ? value : result);
    const double outward = sign * (value - result);  // of the result, in the direction of its sign
    const double least = grid->cut ? 0 : -step / 2, most = grid->cut ? step : step / 2;
    return std::max({0.0, least - outward, outward - most});
  }

  // Tells whether the number stands where the filling puts something else, and is that.
  bool replaced(std::size_t at, double value) const {
    const double result = e.got(at);
    if (filling.instead == Instead::zero) return result == 0;
    if (filling.instead == Instead::nan) return std::isnan(result);
    return filling.instead == Instead::finite && std::isfinite(result) && !std::isfinite(value);
  }

  // Returns the bits by which an entry that is explained is told from a right one: how often its
  // error, beyond a part of its value, exceeds what rounding hides, or the explanation leaves.
  double told(std::size_t i, const Rest& r, double part) const {
    const std::size_t at = positions[i];
    const double value = factor * predicted.values[i], change = e.got(at) - e.want(at);
    const double error = std::min(
        std::fabs(change), std::fabs(change - part * e.want(at)));  // the first, where that is NaN
    if (replaced(at, value)) return kMostBits;
    // NaN for NaN, or the same infinity, tell nothing.
    if (!(error < HUGE_VAL)) return e.error(at) <= kWrong ? 0 : kMostBits;
    const std::optional<Grid>& grid = filling.grid;
    const bool beside = grid && !plain;
    const double step =
        beside ? grid_step(*grid, e.got(at)) * (grid->cut ? 2 : 1) : e.step(at, e.want(at));
    const double tolerance =
        std::max({kSlack * r.larger, e.grain() / 2, r.left * r.unit}) + step / 2;
    const double bits = std::clamp(std::log2(error / tolerance), 0.0, kMostBits);
    // Beside a grid another fault is told by what the grid does not explain.
    if (beside && unexplained(at, e.want(at)) > kWrong * r.larger) {
      return std::max(bits, kBitsOfSlip);
    }
    // A number that it did not take to another was spared by chance.
    if (beside) return -std::log2(1 - std::min(std::fabs(value - e.want(at)) / step, 0.75));
    // A rounding in one direction is told from one in the other, but not in a place alone.
    const bool directed = grid && grid->own && filling.instead != Instead::plain &&
                          std::fabs(e.got(at) - value) > kSlack * r.larger;
    return directed ? std::max(bits, 1.0) : bits;
  }

  // Returns what the explanation leaves of an entry's error.
  Rest rest(std::size_t i) const {
    const std::optional<Grid>& grid = filling.grid;
    const std::size_t at = positions[i];
    const double own = e.scale(at), scaled = std::fabs(factor) * predicted.scales[i];
    Rest rest;
    // A fault that leaves an entry no terms has a scale of 0, by which no error can be divided.
    rest.unit = std::isfinite(scaled) ? std::max(scaled, 0x1p-40 * own) : own;
    rest.larger = std::max(rest.unit, own);
    const double value = factor * predicted.values[i];
    rest.is_replaced = replaced(at, value);
    double left = rest.is_replaced ? 0 : unexplained(at, value);
    // What is scaled, or rounded to a narrow type, may have been rounded before that.
    const bool twice = (grid && !grid->own) || std::fabs(factor - 1) > kFactorSeen;
    if (twice && left > 0) left -= std::fabs(factor) * e.step(at, predicted.values[i]) / 2;
    rest.left = left <= 0 ? 0 : left / rest.unit;  // may be NaN: Inf for -Inf
    if (filling.instead == Instead::plain && e.error(at) < rest.left) rest.left = e.error(at);
    return rest;
  }

  // Returns the bits by which the fault is more likely than chance. Elements that hold the same
  // numbers, and of which the same is predicted, count once.
  double told(const std::vector<Rest>& rests, double part) const {
    double bits = 0, most = 0;
    std::map<std::pair<std::size_t, std::uint64_t>, double> pieces;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      if (!counts(i, rests[i])) continue;
      double more = told(i, rests[i], part);
      if (part != 0) most = std::max(most, told(i, rests[i], 0));
      if (!e.are_different()) {
        const auto same = std::bit_cast<std::uint64_t>(predicted.values[i]);
        double& piece = pieces[{e.first_alike(positions[i]), same}];
        more = std::max(more - piece, 0.0);
        piece += more;
      }
      bits += more;
    }
    return bits + most;
  }

  // What the filling replaces says nothing for a fault: any fault leaves it explained.
  bool counts(std::size_t i, const Rest& r) const {
    return !r.is_replaced || (plain && e.error(positions[i]) > kWrong);
  }

  // Returns the part of their values by which most entries are off, if that is most of their
  // errors, or 0. Terms of one sign make it alike in all entries, whatever is wrong: then it tells
  // as much as one entry does.
  double common_part() const {
    std::vector<double> parts;
    for (const std::size_t at : positions) {
      const double part = e.got(at) / e.want(at) - 1;
      if (std::isfinite(part)) parts.push_back(part);
    }
    const double middle = median(std::move(parts));
    Squares left, all;
    for (const std::size_t at : positions) {
      const double change = (e.got(at) - e.want(at)) / e.scale(at);
      if (!std::isfinite(change)) continue;
      all.add(change);
      left.add(change - middle * e.want(at) / e.scale(at));
    }
    return left.rms() < all.rms() / 2 ? middle : 0;
  }

  // Returns the root mean square of error/scale, if all is as a right explanation leaves it.
  std::optional<double> misfit() const {
    double before = 0, after = 0, squares = 0;
    std::vector<Rest> rests;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const std::size_t at = positions[i];
      const Rest& r = rests.emplace_back(rest(i));
      if (!(r.left <= kWrong)) return std::nullopt;
      squares += r.left * r.left;
      if (!counts(i, r)) continue;
      // Errors may be infinite, and any rest would then be a small part of them.
      const double old = std::min(e.error(at) * e.scale(at) / r.larger, 1e6);
      before += old * old;
      after += std::pow(r.left * r.unit / r.larger, 2);
    }
    const auto count = static_cast<double>(positions.size());
    const double rms = std::sqrt(squares / count);
    const double part = lenient ? kUnexplainedAtFirst : kUnexplained;
    if (rms > kSlack * group_factor(count) || after > part * before) return std::nullopt;
    if (lenient) return rms;
    const double common = filling.multiplied ? 0 : common_part();
    return told(rests, common) >= kLeastBits + needed ? std::optional(rms) : std::nullopt;
  }

  // Returns by which number the predicted values are multiplied to be nearest to what was got, or 0
  // where that cannot be told.
  double fitted_factor() const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const std::size_t at = positions[i];
      const double value = predicted.values[i];
      const double unit = predicted.scales[i] + e.step(at, value);
      if (filling.instead == Instead::plain && e.error(at) <= kWrong) continue;
      // The ratio of small values is mostly rounding.
      if (!std::isfinite(e.got(at)) || !(std::fabs(value) > 4 * unit)) continue;
      if (filling.instead == Instead::zero && e.got(at) == 0) continue;
      ratios.push_back(e.got(at) / value);
    }
    return median(std::move(ratios));
  }

  // Finds what the predicted values are multiplied by: a known factor, or the number of the fewest
  // digits that explains everything.
  bool find_factor() {
    const double fitted = fitted_factor();
    if (fitted == 0) return false;
    // A factor that changes no number by more than its rounding is none.
    const std::optional<Grid>& grid = filling.grid;
    const double u =
        grid ? unit_roundoff(grid->like) * grid->part : unit_roundoff(e.problem().out_dtype);
    if (std::fabs(fitted - 1) <= u) return false;
    std::vector<Factor> tried = known_factors(e.problem());
    std::erase_if(tried, [&](const Factor& f) { return std::fabs(f.value / fitted - 1) > 0.1; });
    for (Factor& known : tried) known.text = digits(known.value, 9) + known.text;
    // The fitted number itself need not be the one: it has the errors of what it was fitted to.
    for (int count = 1; count <= kMostDigits; ++count) {
      const std::string text = digits(fitted, count);
      const double value = std::strtod(text.c_str(), nullptr);
      if (value != 1) tried.push_back({value, text, kFactorBits + count * kDigitBits});
    }
    const double own = needed;
    for (const Factor& each : tried) {
      factor = each.value;
      needed = own + each.bits;
      if (!misfit()) continue;
      number = {"scale_factor", "it is multiplied by " + each.text, causes_of(factor)};
      return true;
    }
    return false;
  }
};

}  // namespace

std::optional<Fit> Judge::judge(const Positions& at, const Expected& predicted, double bits,
                                bool plain, bool lenient) const {
  for (const Filling& filling : fillings_) {
    // Three faults at once would explain anything.
    const std::size_t faults =
        filling.parts.size() + (filling.multiplied ? 1 : 0) + (plain ? 0 : 1);
    if (faults < 1 || faults > 2 || (filling.alone && !plain)) continue;
    Trial trial = {e_, at, predicted, filling, plain, lenient, bits + filling.bits};
    if (filling.multiplied && !trial.find_factor()) continue;
    const auto rms = trial.misfit();
    if (!rms) continue;
    Fit fit = {*rms, filling.parts, filling.only};
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
