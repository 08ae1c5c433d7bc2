// alternatives.cpp - finds readings that hold in a range of pixels alone, and those of which one
// number is missing. What a reading adds at each pixel is summed from the first on: the error of
// every entry must be a difference of two such sums, or a multiple of one.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

// So many entries are looked at for a number and for a range. They are wrong by so many scales, and
// explained within so many: right sums stay below 3 with 64 entries (normal errors of 0.7). What
// passes here is confirmed as any fault is, so these bound the time alone.
constexpr std::size_t kEntries = 64, kRangeEntries = 12;
constexpr double kLeastError = 8, kTolerance = 4;
// Up to so many images every range of them is tried, else single ones and what is before or after.
constexpr std::int64_t kFewImages = 64;
constexpr std::size_t kKept = 2;
// A number of more digits than a person writes must be as good as the best, to this part of what
// the entries leave of it: others need its digits too.
constexpr int kRoundDigits = 4, kRoundTries = 9;
constexpr double kAsGood = 0.1;

struct Alternative {
  std::string name, text, cause;
  Reading reading;
  bool pixels = false;  // single ones are likely, and not the last ones
  bool rare = true;
};

class Alternatives {
 public:
  Alternatives(const Evidence& evidence, const Sample& sample, const TermsBy& terms_by)
      : evidence_(evidence),
        pb_(evidence.problem()),
        terms_by_(terms_by),
        plain_(plain_reading(pb_)) {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t e = 0; e < sample.at.size(); ++e) {
      const std::size_t at = sample.at[e];
      const double error = evidence.got(at) - evidence.want(at);
      if (!std::isfinite(error)) continue;
      if (evidence.error(at) >= kLeastError)
        // Large errors with small tolerances rule out the most.
        order.emplace_back(-std::fabs(error) / tolerance(at), at);
    }
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < std::min(order.size(), kEntries); ++i) {
      const std::size_t at = order[i].second;
      at_.push_back(at);
      errors_.push_back(evidence.got(at) - evidence.want(at));
      tolerances_.push_back(tolerance(at));
      entries_.push_back(entry_terms(pb_, evidence.index(at)));
    }
  }

  std::vector<Fault> take() {
    if (at_.empty()) return {};
    for (const bool of_x : {false, true}) {
      Reading reading = plain_;
      reading.only_of_x = of_x;
      (of_x ? by_x_ : by_dy_) = terms_by_(entries_, reading);
    }
    find_weights();
    find_padding();
    entries_.resize(std::min(entries_.size(), kRangeEntries));
    for (const Alternative& a : list()) find_in_ranges(a);
    return std::move(found_);
  }

 private:
  double tolerance(std::size_t at) const {
    return rounding_step(pb_.out_dtype, evidence_.got(at)) / 2 + kTolerance * evidence_.scale(at);
  }

  std::vector<Alternative> list() const {
    std::vector<Alternative> result;
    for (Fault& f : faults_of_inputs(pb_, {})) {
      const bool both = f.reading.x.treatment == f.reading.dy.treatment;
      const bool rounds = f.name == "input_precision" && both;
      if (rounds || f.name == "product_precision" || f.name == "line_repeated") {
        result.push_back({f.name, f.text, f.cause, f.reading, false, f.rare});
      }
    }
    for (const bool x : {true, false}) {
      const char* const of = x ? "input" : "out_backprop";
      for (const int by : {1, -1}) {
        Reading reading = plain_;
        if (pb_.N > 1) {
          (x ? reading.x : reading.dy).images = {Images::rotated, (by + pb_.N) % pb_.N};
          result.push_back({"image_order",
                            cat("the image ", by < 0 ? "before" : "after", " it is read of ", of),
                            "an offset of the batch that is one off", reading});
        }
        constexpr const char* kAlong[] = {"d", "h", "w"};
        for (std::size_t a = 0; a < 3; ++a) {
          const SpatialAxis& axis = pb_.axis[a];
          if ((x ? axis.in : axis.out) < 2) continue;
          reading = plain_;
          reading.only_of_x = x;
          (x ? reading.x : reading.dy).neighbour = {static_cast<std::int8_t>(a), 0,
                                                    static_cast<std::int8_t>(by)};
          result.push_back({"pixel_repeated",
                            cat(of, " is that ", by < 0 ? "before" : "after", " it in ", kAlong[a]),
                            "an index that is one off", reading, true, true});
        }
      }
    }
    return result;
  }

  // Sums what the reading adds to each entry over the pixels so far.
  std::vector<std::vector<double>> sums(const Reading& reading) const {
    const std::vector<Terms> others = terms_by_(entries_, reading);
    const std::vector<Terms>& plain = reading.only_of_x ? by_x_ : by_dy_;
    std::vector<std::vector<double>> result;
    for (std::size_t e = 0; e < others.size(); ++e) {
      const Terms& a = others[e];
      const Terms& b = plain[e];
      std::vector<double> sum(1);
      for (std::size_t i = 0; i < a.x.size(); ++i) {
        const double added =
            product(reading.product, pb_.dtype, a.x[i], a.dy[i]) - b.x[i] * b.dy[i];
        sum.push_back(sum.back() + (std::isfinite(added) ? added : 0));
      }
      result.push_back(std::move(sum));
    }
    return result;
  }

  std::vector<Range> ranges(const Alternative& a, std::int64_t pixels) const {
    const std::int64_t image = pixels / pb_.N;
    std::vector<Range> result;
    for (std::int64_t i = 0; i < pb_.N; ++i) {
      for (std::int64_t j = i + 1; j <= pb_.N; ++j) {
        if (pb_.N > kFewImages && j - i > 1 && i > 0 && j < pb_.N) continue;
        result.push_back({i * image, j * image});
      }
    }
    for (std::int64_t at = 0; at < pixels; ++at) {
      result.push_back(a.pixels ? Range{at, at + 1} : Range{at, pixels});
    }
    return result;
  }

  void find_in_ranges(const Alternative& a) {
    const auto of = sums(a.reading);
    const auto pixels = static_cast<std::int64_t>(of[0].size()) - 1;
    std::vector<std::pair<double, Range>> kept;
    for (const Range& range : ranges(a, pixels)) {
      double misfit = 0;
      for (std::size_t e = 0; e < of.size() && misfit < HUGE_VAL; ++e) {
        const double added = of[e][static_cast<std::size_t>(range.end)] -
                             of[e][static_cast<std::size_t>(range.begin)];
        const double off = std::fabs(added - errors_[e]) / tolerances_[e];
        misfit = off <= 1 ? misfit + off * off : HUGE_VAL;
      }
      if (misfit < HUGE_VAL) kept.emplace_back(misfit, range);
    }
    std::stable_sort(kept.begin(), kept.end(),
                     [](const auto& x, const auto& y) { return x.first < y.first; });
    kept.resize(std::min(kept.size(), kKept));
    for (const auto& [misfit, range] : kept) {
      Fault fault;
      fault.name = a.name;
      fault.text = cat(a.text, ", in ", range_text(pb_, range, a.reading.only_of_x, ""), " alone");
      fault.cause = a.cause;
      fault.rare = a.rare;
      fault.reading = a.reading;
      fault.reading.only = range;
      fault.bits = std::log2(static_cast<double>(pixels));
      found_.push_back(std::move(fault));
    }
  }

  // Returns offset + errors / units, if that is one number: units are what 1 of it adds.
  std::optional<std::pair<double, std::string>> multiple(const std::vector<double>& units,
                                                         double offset) const {
    double products = 0, squares = 0, low = -HUGE_VAL, high = HUGE_VAL;
    for (std::size_t e = 0; e < units.size(); ++e) {
      if (units[e] == 0) {
        if (std::fabs(errors_[e]) > tolerances_[e]) return std::nullopt;
        continue;
      }
      const double value = offset + errors_[e] / units[e];
      const double slack = std::fabs(tolerances_[e] / units[e]);
      // All entries must agree within their slack; the mean weighs each by its precision.
      low = std::max(low, value - slack);
      high = std::min(high, value + slack);
      products += value / (slack * slack);
      squares += 1 / (slack * slack);
    }
    if (!(squares > 0)) return std::nullopt;
    return roundest(low, high, products / squares, [](double) { return true; });
  }

  // Some images have another weight than the others.
  void find_weights() {
    std::vector<std::vector<double>> of;
    for (const Terms& terms : by_dy_) {
      std::vector<double> sum(1);
      for (std::size_t i = 0; i < terms.x.size(); ++i) {
        sum.push_back(sum.back() + terms.x[i] * terms.dy[i]);
      }
      of.push_back(std::move(sum));
    }
    for (std::int64_t i = 0; i < pb_.N; ++i) {
      for (std::int64_t j = i + 1; j <= pb_.N; ++j) {
        // Ranges are one image, or begin or end the batch; all images are a factor instead.
        if ((j - i > 1 && i > 0 && j < pb_.N) || j - i == pb_.N) continue;
        const Range range = {i * pb_.out_pixels(), j * pb_.out_pixels()};
        std::vector<double> units;
        units.reserve(of.size());
        for (const std::vector<double>& sum : of) {
          units.push_back(sum[static_cast<std::size_t>(range.end)] -
                          sum[static_cast<std::size_t>(range.begin)]);
        }
        const auto weight = multiple(units, 1);
        if (!weight || weight->first == 1) continue;
        Fault fault;
        fault.name = "weighted_images";
        fault.text = range_text(pb_, range, false, "multiplied by " + weight->second);
        fault.cause = "a part of the batch with a scale of its own, or a sum that was added twice";
        fault.reading = plain_;
        fault.reading.only = range;
        fault.reading.weight = weight->first;
        // A decimal digit that was read off costs log2(10) bits.
        fault.bits = std::log2(static_cast<double>(pb_.N)) +
                     3.4 * static_cast<double>(weight->second.size());
        found_.push_back(std::move(fault));
      }
    }
  }

  void find_padding() {
    Reading reading = plain_;
    reading.outside = Outside::constant;
    // Sums are linear in the constant, so what 1 adds tells it.
    reading.padding = 1;
    std::vector<double> units;
    for (const auto& sum : sums(reading)) units.push_back(sum.back());
    const auto value = multiple(units, 0);
    if (!value || value->first == 0) return;
    reading.padding = value->first;
    Fault fault;
    fault.name = "padding_values";
    fault.text = cat("padding holds ", value->second, " instead of zeros");
    fault.cause = "a value that 0 becomes before it is padded (a mean, a zero point)";
    fault.reading = reading;
    fault.bits = 3.4 * static_cast<double>(value->second.size());
    found_.push_back(std::move(fault));
  }

  const Evidence& evidence_;
  const WgradProblem& pb_;
  const TermsBy& terms_by_;
  const Reading plain_;
  std::vector<std::size_t> at_;
  std::vector<EntryTerms> entries_;
  std::vector<double> errors_, tolerances_;
  std::vector<Terms> by_dy_, by_x_;
  std::vector<Fault> found_;
};

std::string digits_of(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

}  // namespace

std::optional<std::pair<double, std::string>> roundest(double low, double high, double best,
                                                       const std::function<bool(double)>& good) {
  if (!(low <= high)) return std::nullopt;
  best = std::clamp(best, low, high);
  const double size = std::max(std::fabs(low), std::fabs(high));
  for (int digits = 1; digits <= kRoundDigits && size > 0; ++digits) {
    const double unit = std::pow(10, std::floor(std::log10(size)) + 1 - digits);
    for (int i = 0; i < kRoundTries; ++i) {  // the nearest to the best, then its neighbours
      const int away = i % 2 == 0 ? i / 2 : -(i + 1) / 2;
      const std::string text = digits_of((std::round(best / unit) + away) * unit, digits + 1);
      const double value = std::strtod(text.c_str(), nullptr);
      if (value >= low && value <= high && good(value)) return std::pair(value, text);
    }
  }
  for (int digits = kRoundDigits + 1; digits <= 17; ++digits) {  // more tell no double from another
    const std::string text = digits_of(best, digits);
    const double value = std::strtod(text.c_str(), nullptr);
    const bool near = std::fabs(value - best) <= kAsGood * (high - low) || digits == 17;
    if (near && good(value)) return std::pair(value, text);
  }
  return std::nullopt;
}

std::vector<Fault> find_alternatives(const Evidence& evidence, const Sample& sample,
                                     const TermsBy& terms_by) {
  return Alternatives(evidence, sample, terms_by).take();
}

}  // namespace convgrad::diagnosis
