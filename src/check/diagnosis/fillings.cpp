// fillings.cpp - see search.hpp: what may stand in the place of what a fault predicts, and whether
// the suspect is explained with it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "check/diagnosis/search.hpp"
#include "check/rounding.hpp"

namespace convgrad::diagnosis {
namespace {

using Instead = Filling::Instead;
using Number = Filling::Number;

// An explanation must leave at most this part of the sum of squared errors.
constexpr double kUnexplained = 1.0 / 16, kUnexplainedAtFirst = 0.5;
constexpr double kSlack = Tolerance{}.slack;
// A fault must be so many bits more likely than chance, besides what it took to find it.
constexpr double kLeastBits = 12, kMostBits = 24;
constexpr double kInsteadBits = 8, kFactorBits = 4, kDigitBits = 3.4, kNarrowBits = 4;
// A factor this near 1 is not told from rounding where a result is rounded twice.
constexpr double kFactorSeen = 0.01;
// More digits tell no double from another.
constexpr int kMostDigits = 17;

std::string digits(double value, int count) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", count, value);
  return text;
}

struct Factor {
  double value;
  std::string name;
};

std::vector<Factor> known_factors(const WgradProblem& pb) {
  std::vector<Factor> factors;
  const auto add = [&](double count, const std::string& name) {
    if (!(count > 1)) return;
    factors.push_back({1 / count, "1/" + name});
    factors.push_back({count, name});
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
  return factors;
}

Fit::Part factor_part(const std::string& text) {
  return {"scale_factor", "it is multiplied by " + text,
          "a mean in place of a sum, or a loss scale that was left in"};
}

Fit::Part grid_part(const Grid& grid) {
  const bool cut = grid.rounding == Rounding::cut;
  return {"result_precision",
          cat("it is ", cut ? "cut off" : "rounded", " to ", grid.name, " once"),
          cut ? "taking the upper half of a float32" : "a result that was stored in that type"};
}

}  // namespace

void Evidence::find_grids() {
  const DType out = problem().out_dtype;
  struct Type {
    const char* name;
    DType like;
    double part;
    Treatment treatment;
  };
  for (const Type& type : {Type{"bfloat16", DType::bf16, 1, Treatment::bf16},
                           Type{"float16", DType::f16, 1, Treatment::f16},
                           Type{"TF32", DType::bf16, 1.0 / 8, Treatment::tf32_cut},
                           Type{"float32", DType::f32, 1, Treatment::f32}}) {
    if (unit_roundoff(type.like) * type.part <= unit_roundoff(out)) continue;
    std::size_t others = 0, nonzero = 0;
    bool holds = true;
    for (const std::size_t at : all_) {
      const auto kept = [&](double v) {
        return !std::isfinite(v) || treated(type.treatment, out, v) == v;
      };
      holds = holds && kept(got(at));
      nonzero += want(at) != 0 ? 1 : 0;
      others += kept(rounded(out, want(at))) ? 0 : 1;
    }
    if (!holds || 2 * others <= nonzero) continue;
    // Both have 11 bits; numbers within float16's range do not tell them apart.
    const bool either = type.like == DType::f16 && unit_roundoff(out) < unit_roundoff(DType::f16);
    for (const Rounding rounding : {Rounding::nearest, Rounding::cut}) {
      grids_.push_back({either ? "float16 or TF32" : type.name, type.like, type.part, rounding});
    }
    return;
  }
}

// Parts that are 0 or NaN, and places, by themselves and with numbers of a narrow type; then the
// same multiplied.
void Evidence::make_fillings() {
  std::vector<Filling> parts(1);
  const auto add_part = [&](Instead instead, const Place& place, const char* name,
                            const char* value, const char* cause) {
    if (!place.pattern || place.text.empty()) return;
    Filling& filling = parts.emplace_back();
    filling.instead = instead;
    filling.bits = kInsteadBits;
    filling.whole = place.everything;
    filling.parts.push_back({name,
                             place.everything ? cat("every element is set to ", value)
                                              : cat(value, " is in place of ", place.text),
                             cause});
  };
  add_part(Instead::zero, zeros_, "zero", "0", "a part that no block of threads wrote, or a mask");
  add_part(Instead::nan, nans_, "nan", "NaN", "memory that was never written, or 0 * Inf");
  if (where_.pattern && !where_.everything && !where_.text.empty()) {
    Filling& filling = parts.emplace_back();
    filling.instead = Instead::plain;
    filling.bits = kInsteadBits;
    filling.only = where_.text;
  }
  for (const Number number : {Number::none, Number::factor}) {
    for (Filling filling : parts) {
      filling.number = number;
      fillings_.push_back(filling);
      for (const Grid& grid : grids_) {
        Filling narrow = filling;
        narrow.grid = &grid;
        narrow.bits += kNarrowBits;
        narrow.parts.push_back(grid_part(grid));
        fillings_.push_back(std::move(narrow));
      }
    }
  }
}

double Evidence::unexplained(std::size_t at, double value, const Grid* grid) const {
  const double result = got(at);
  if (grid == nullptr) return unexplained_error(problem().out_dtype, result, value);
  if (!std::isfinite(result)) return unexplained_error(grid->like, result, value);
  const double step = rounding_step(grid->like, result) * grid->part;
  if (grid->rounding == Rounding::nearest) {
    return std::max(0.0, std::fabs(value - result) - step / 2);
  }
  const double beyond = std::copysign(1.0, result == 0 ? value : result) * (value - result);
  return std::max({0.0, -beyond, beyond - step});
}

bool Evidence::fits(std::size_t at, double value, double scale) const {
  return unexplained(at, value, nullptr) <= kWrong * scale;
}

// The root mean square of error/scale, if that and all else are as a right explanation leaves them.
std::optional<double> Evidence::misfit(const Trial& t) const {
  const Filling& filling = t.filling;
  const DType out = problem().out_dtype;
  double before = 0, after = 0, squares = 0, bits = 0;
  for (std::size_t i = 0; i < t.at.size(); ++i) {
    const std::size_t at = t.at[i];
    const double own = scale(at);
    const double scaled = std::fabs(t.factor) * t.predicted.scales[i];
    const double unit = std::isfinite(scaled) ? std::max(scaled, 0x1p-40 * own) : own;
    const double larger = std::max(unit, own);
    double left = unexplained(at, t.factor * t.predicted.values[i], filling.grid);
    // What is scaled, or rounded to a narrow type, may have been rounded before that.
    if (filling.grid != nullptr || std::fabs(t.factor - 1) > kFactorSeen) {
      left -= std::fabs(t.factor) * rounding_step(out, t.predicted.values[i]) / 2;
    }
    left = left > 0 ? left / unit : 0;
    const bool replaced = (filling.instead == Instead::zero && got(at) == 0) ||
                          (filling.instead == Instead::nan && std::isnan(got(at)));
    if (replaced) left = 0;
    if (filling.instead == Instead::plain && errors_[at] < left) left = errors_[at];
    if (!(left <= kWrong)) return std::nullopt;
    squares += left * left;
    if (replaced && (!t.plain || errors_[at] <= kWrong)) continue;
    const double old = std::min(errors_[at] * own / larger, 1e6);
    before += old * old;
    after += std::pow(left * unit / larger, 2);
    const double error = std::fabs(got(at) - want(at));
    const double tolerance = kSlack * larger + rounding_step(out, want(at)) / 2;
    bits += replaced || !(error < HUGE_VAL)
                ? kMostBits
                : std::clamp(std::log2(error / tolerance), 0.0, kMostBits);
  }
  const auto count = static_cast<double>(t.at.size());
  const double rms = std::sqrt(squares / count);
  const double part = t.lenient ? kUnexplainedAtFirst : kUnexplained;
  const bool good = rms <= kSlack * group_factor(count) && after <= part * before &&
                    (t.lenient || bits >= kLeastBits + t.bits);
  return good ? std::optional(rms) : std::nullopt;
}

// What the predicted values are multiplied by: a known factor, or the number of the fewest digits
// that explains everything.
bool Evidence::find_factor(Trial& trial) const {
  struct Ratio {
    double ratio, value, got, unit;
  };
  std::vector<Ratio> ratios;
  for (std::size_t i = 0; i < trial.at.size(); ++i) {
    const std::size_t at = trial.at[i];
    const double value = trial.predicted.values[i];
    const double unit = trial.predicted.scales[i] + rounding_step(problem().out_dtype, value);
    if (trial.filling.instead == Instead::plain && errors_[at] <= kWrong) continue;
    if (!std::isfinite(got(at)) || !(std::fabs(value) > 4 * unit)) continue;
    if (trial.filling.instead == Instead::zero && got(at) == 0) continue;
    ratios.push_back({got(at) / value, value, got(at), unit});
  }
  if (ratios.empty()) return false;
  const auto middle = ratios.begin() + std::ssize(ratios) / 2;
  std::nth_element(ratios.begin(), middle, ratios.end(),
                   [](const Ratio& a, const Ratio& b) { return a.ratio < b.ratio; });
  const double median = middle->ratio;
  double products = 0, squares = 0;
  for (const Ratio& r : ratios) {
    if (std::fabs(r.got - median * r.value) > 30 * r.unit + 0.02 * std::fabs(r.got)) continue;
    products += r.value / r.unit * (r.got / r.unit);
    squares += r.value / r.unit * (r.value / r.unit);
  }
  const double fitted = products / squares;
  if (!std::isfinite(fitted) || fitted == 0 || fitted == 1) return false;
  const double bits = trial.bits;
  const auto good = [&](double value, double more) {
    trial.factor = value;
    trial.bits = bits + more;
    return misfit(trial).has_value();
  };
  for (const Factor& known : known_factors(problem())) {
    if (std::fabs(known.value / fitted - 1) > 0.1 || !good(known.value, kFactorBits)) continue;
    trial.number = factor_part(cat(digits(known.value, 9), " (", known.name, ")"));
    return true;
  }
  // The fitted number itself need not: it has the errors of what it was fitted to.
  for (int count = 1; count <= kMostDigits; ++count) {
    const std::string text = digits(fitted, count);
    const double value = std::strtod(text.c_str(), nullptr);
    if (value == 1 || !good(value, kFactorBits + count * kDigitBits)) continue;
    trial.number = factor_part(text);
    return true;
  }
  return false;
}

std::optional<Fit> Evidence::judge(const Positions& at, const Predicted& predicted, double bits,
                                   bool plain, bool lenient) const {
  for (const Filling& filling : fillings_) {
    // One or two faults at once; what is 0 everywhere has no other.
    const std::size_t faults =
        filling.parts.size() + (filling.number != Number::none ? 1 : 0) + (plain ? 0 : 1);
    if (faults < 1 || faults > 2 || (filling.whole && !plain)) continue;
    Trial trial = {at, predicted, filling, plain, lenient, bits + filling.bits};
    if (filling.number == Number::factor && !find_factor(trial)) continue;
    const auto rms = misfit(trial);
    if (!rms) continue;
    Fit fit = {*rms, filling.parts, filling.only};
    if (!trial.number.name.empty()) fit.parts.insert(fit.parts.begin(), trial.number);
    return fit;
  }
  return std::nullopt;
}

}  // namespace convgrad::diagnosis
