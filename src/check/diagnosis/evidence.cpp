// evidence.cpp - see search.hpp.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>

#include "check/diagnosis/search.hpp"
#include "check/rounding.hpp"

namespace convgrad::diagnosis {
namespace {

// An explanation must leave at most this part of the sum of squared errors.
constexpr double kUnexplained = 1.0 / 16, kUnexplainedAtFirst = 0.5;
constexpr double kSlack = Tolerance{}.slack;
// A fault must be so many bits more likely than chance, besides what it took to find it.
constexpr double kLeastBits = 12, kMostBits = 24;
constexpr double kInsteadBits = 8, kFactorBits = 4, kDigitBits = 3.4, kNarrowBits = 4;
// A factor this near 1 is not told from rounding where a result is rounded twice.
constexpr double kFactorSeen = 0.01;
// Errors in units of the scale: of an entry that is wrong for certain, and of one that may be
// right.
constexpr double kWrong = 25.4, kRight = 8;
// Of a place, so much must be seen to be wrong.
constexpr double kLeastSeen = 0.25;
constexpr std::size_t kMostChosen = 4096;
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

}  // namespace

Evidence::Evidence(const Suspect& suspect) : suspect_(suspect), all_(size()) {
  std::iota(all_.begin(), all_.end(), std::size_t{0});
  for (const std::size_t at : all_) {
    const double error = unexplained(at, want(at), nullptr);
    errors_.push_back(error > 0 ? error / scale(at) : 0);
    if (errors_[at] > kWrong) wrong_.push_back(at);
  }
  where_ = find_where();
  const auto place_where = [&](const std::function<Mark(std::size_t)>& mark) {
    std::vector<Marked> marks;
    bool any = false;
    for (const std::size_t at : all_) {
      marks.push_back({index(at), mark(at)});
      any = any || marks.back().mark == Mark::in;
    }
    return any ? place_of(problem(), marks) : Place();
  };
  zeros_ = place_where([&](std::size_t at) {
    const bool lost = errors_[at] > kWrong && want(at) != 0;
    return got(at) != 0 ? Mark::out : lost ? Mark::in : Mark::either;
  });
  nans_ = place_where([&](std::size_t at) {
    return !std::isnan(got(at)) ? Mark::out : std::isnan(want(at)) ? Mark::either : Mark::in;
  });
  // Drawn with weights (Efraimidis, Spirakis: Weighted random sampling with a reservoir, 2006).
  std::mt19937_64 random(1);
  std::vector<std::pair<double, std::size_t>> keys;
  for (const std::size_t at : all_) {
    const double u = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
    const double most = std::min(errors_[at], 30.0);
    keys.emplace_back(std::log(u) / (1 + most * most), at);
  }
  const std::size_t count = std::min(kMostChosen, size());
  std::partial_sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(count), keys.end(),
                    std::greater<>());
  for (std::size_t i = 0; i < count; ++i) drawn_.push_back(keys[i].second);
  find_narrow();
}

double Evidence::scale(std::size_t at) const {
  const double scale = suspect_.expected.scales[at], least = smallest_subnormal(DType::f64);
  return std::isfinite(scale) ? std::max(scale, least) : least;
}

Place Evidence::find_where() const {
  std::vector<Marked> marks;
  for (const std::size_t at : all_) {
    marks.push_back({index(at), errors_[at] > kWrong   ? Mark::in
                                : errors_[at] > kRight ? Mark::either
                                                       : Mark::out});
  }
  Place by_entries = place_of(problem(), marks);
  if (by_entries.pattern && !by_entries.text.empty()) return by_entries;
  // Where single entries do not show it: where the planes of every axis are wrong.
  const std::vector<EntryAxis> axes = entry_axes(problem());
  struct Group {
    double squares = 0, count = 0;
    bool wrong() const { return std::sqrt(squares / count) > kSlack * group_factor(count); }
    void add(double error) {
      squares += error * error;
      ++count;
    }
  };
  std::vector<std::vector<Group>> planes;
  planes.reserve(axes.size());
  for (const EntryAxis& axis : axes) planes.emplace_back(static_cast<std::size_t>(axis.extent));
  const auto plane = [&](std::size_t a, std::size_t at) -> Group& {
    return planes[a][static_cast<std::size_t>(entry_place(axes, index(at))[a])];
  };
  for (const std::size_t at : all_) {
    for (std::size_t a = 0; a < axes.size(); ++a) plane(a, at).add(errors_[at]);
  }
  Group others;
  double in = 0, seen = 0;
  for (const std::size_t at : all_) {
    bool wrong = true;
    for (std::size_t a = 0; a < axes.size(); ++a) wrong = wrong && plane(a, at).wrong();
    marks[at].mark = wrong ? Mark::in : Mark::out;
    in += wrong ? 1 : 0;
    seen += wrong && errors_[at] > kSlack ? 1 : 0;
    if (!wrong) others.add(errors_[at]);
  }
  const bool all_there = others.count == 0 || !others.wrong();
  if (!all_there || seen < kLeastSeen * in) return by_entries;
  return place_of(problem(), marks);
}

void Evidence::find_narrow() {
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
    for (const bool cut : {false, true}) {
      narrow_.push_back({either ? "float16 or TF32" : type.name, type.like, type.part, cut});
    }
    return;
  }
}

double Evidence::unexplained(std::size_t at, double value, const Narrow* narrow) const {
  const double result = got(at);
  if (narrow == nullptr) return unexplained_error(problem().out_dtype, result, value);
  if (!std::isfinite(result)) return unexplained_error(narrow->like, result, value);
  const double step = rounding_step(narrow->like, result) * narrow->part;
  if (!narrow->cut) return std::max(0.0, std::fabs(value - result) - step / 2);
  const double beyond = std::copysign(1.0, result == 0 ? value : result) * (value - result);
  return std::max({0.0, -beyond, beyond - step});
}

Positions Evidence::choose(std::size_t count) const {
  Positions result(drawn_.begin(),
                   drawn_.begin() + static_cast<std::ptrdiff_t>(std::min(count, drawn_.size())));
  std::sort(result.begin(), result.end());
  return result;
}

bool Evidence::fits(std::size_t at, double value, double scale) const {
  return unexplained(at, value, nullptr) <= kWrong * scale;
}

// The root mean square of error/scale, if that and all else are as a right explanation leaves them.
std::optional<double> Evidence::misfit(const Positions& at, const Predicted& predicted, bool plain,
                                       const Variation& v) const {
  double before = 0, after = 0, squares = 0, bits = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double own = scale(at[i]);
    const double scaled = std::fabs(v.factor) * predicted.scales[i];
    const double unit = std::isfinite(scaled) ? std::max(scaled, 0x1p-40 * own) : own;
    const double value = v.factor * predicted.values[i];
    const double larger = std::max(unit, own);
    double left = unexplained(at[i], value, v.narrow);
    // What is scaled, or rounded to a narrow type, may have been rounded before that.
    if (v.narrow != nullptr || std::fabs(v.factor - 1) > kFactorSeen) {
      const double step = rounding_step(problem().out_dtype, predicted.values[i]);
      left -= std::fabs(v.factor) * step / 2;
    }
    left = left > 0 ? left / unit : 0;
    bool replaced = (v.instead == Instead::zero && got(at[i]) == 0) ||
                    (v.instead == Instead::nan && std::isnan(got(at[i])));
    if (replaced) left = 0;
    if (v.instead == Instead::plain && errors_[at[i]] < left) left = errors_[at[i]];
    if (!(left <= kWrong)) return std::nullopt;
    squares += left * left;
    if (replaced && (!plain || errors_[at[i]] <= kWrong)) continue;
    const double old = std::min(errors_[at[i]] * own / larger, 1e6);
    before += old * old;
    after += std::pow(left * unit / larger, 2);
    const double error = std::fabs(got(at[i]) - want(at[i]));
    const double tolerance = kSlack * larger + rounding_step(problem().out_dtype, want(at[i])) / 2;
    bits += replaced || !(error < HUGE_VAL)
                ? kMostBits
                : std::clamp(std::log2(error / tolerance), 0.0, kMostBits);
  }
  const auto count = static_cast<double>(at.size());
  const double rms = std::sqrt(squares / count);
  const double part = v.lenient ? kUnexplainedAtFirst : kUnexplained;
  const bool good = rms <= kSlack * group_factor(count) && after <= part * before &&
                    (v.lenient || bits >= kLeastBits + v.bits);
  return good ? std::optional(rms) : std::nullopt;
}

// What the predicted values are multiplied by, and its name: a known factor, or the number of the
// fewest digits that explains everything.
std::optional<std::pair<double, std::string>> Evidence::factor(const Positions& at,
                                                               const Predicted& predicted,
                                                               bool plain, Variation v) const {
  struct Ratio {
    double ratio, value, got, unit;
  };
  std::vector<Ratio> ratios;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double value = predicted.values[i];
    const double unit = predicted.scales[i] + rounding_step(problem().out_dtype, value);
    if (v.instead == Instead::plain && errors_[at[i]] <= kWrong) continue;
    if (!std::isfinite(got(at[i])) || !(std::fabs(value) > 4 * unit)) continue;
    if (v.instead == Instead::zero && got(at[i]) == 0) continue;
    ratios.push_back({got(at[i]) / value, value, got(at[i]), unit});
  }
  if (ratios.empty()) return std::nullopt;
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
  if (!std::isfinite(fitted) || fitted == 0 || fitted == 1) return std::nullopt;
  const auto good = [&](double value, double bits) {
    Variation tried = v;
    tried.factor = value;
    tried.bits += bits;
    return misfit(at, predicted, plain, tried).has_value();
  };
  for (const Factor& known : known_factors(problem())) {
    if (std::fabs(known.value / fitted - 1) > 0.1 || !good(known.value, kFactorBits)) continue;
    return std::pair(known.value, cat(digits(known.value, 9), " (", known.name, ")"));
  }
  // The fitted number itself need not: it has the errors of what it was fitted to.
  for (int count = 1; count <= kMostDigits; ++count) {
    const std::string text = digits(fitted, count);
    const double value = std::strtod(text.c_str(), nullptr);
    if (value != 1 && good(value, kFactorBits + count * kDigitBits)) return std::pair(value, text);
  }
  return std::nullopt;
}

std::optional<Fit> Evidence::judge(const Positions& at, const Predicted& predicted, double bits,
                                   bool plain, bool lenient) const {
  std::vector<const Narrow*> types = {nullptr};
  for (const Narrow& narrow : narrow_) types.push_back(&narrow);
  const auto result = [&](const Variation& v, const std::string& factor) -> std::optional<Fit> {
    const auto rms = misfit(at, predicted, plain, v);
    if (!rms) return std::nullopt;
    Fit fit;
    fit.rms = *rms;
    if (v.factor != 1) {
      fit.parts.push_back({"scale_factor", "it is multiplied by " + factor,
                           "a mean in place of a sum, or a loss scale that was left in"});
    }
    if (v.instead == Instead::zero || v.instead == Instead::nan) {
      const bool zero = v.instead == Instead::zero;
      const Place& place = zero ? zeros_ : nans_;
      const char* value = zero ? "0" : "NaN";
      fit.parts.push_back({zero ? "zero" : "nan",
                           place.everything ? cat("every element is set to ", value)
                                            : cat(value, " is in place of ", place.text),
                           zero ? "a part that no block of threads wrote, or a mask"
                                : "memory that was never written, or 0 * Inf"});
    }
    if (v.narrow != nullptr) {
      fit.parts.push_back(
          {"result_precision",
           cat("it is ", v.narrow->cut ? "cut off" : "rounded", " to ", v.narrow->name, " once"),
           v.narrow->cut ? "taking the upper half of a float32"
                         : "a result that was stored in that type"});
    }
    if (v.instead == Instead::plain) fit.only = where_.text;
    return fit;
  };
  std::vector<Instead> fillings = {Instead::nothing};
  if (zeros_.pattern && !zeros_.text.empty() && (plain || !zeros_.everything)) {
    fillings.push_back(Instead::zero);
  }
  if (nans_.pattern && !nans_.text.empty() && (plain || !nans_.everything)) {
    fillings.push_back(Instead::nan);
  }
  if (where_.pattern && !where_.everything && !where_.text.empty()) {
    fillings.push_back(Instead::plain);
  }
  for (const bool scaled : {false, true}) {
    for (const Instead instead : fillings) {
      const bool filled = instead == Instead::zero || instead == Instead::nan;
      for (const Narrow* narrow : types) {
        Variation v = {1, narrow, instead, bits, lenient};
        const int others =
            (plain ? 0 : 1) + (scaled ? 1 : 0) + (filled ? 1 : 0) + (narrow != nullptr ? 1 : 0);
        if (others < 1 || others > 2) continue;
        v.bits += (instead != Instead::nothing ? kInsteadBits : 0) +
                  (narrow != nullptr ? kNarrowBits : 0);
        std::string name;
        if (scaled) {
          const auto found = factor(at, predicted, plain, v);
          if (!found) continue;
          v.factor = found->first;
          name = found->second;
        }
        if (auto fit = result(v, name)) return fit;
      }
    }
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
  return result;
}

}  // namespace convgrad::diagnosis
