// alternatives.cpp - finds readings that hold in a range of pixels alone, and those of which one
// number is missing. What a reading adds at each pixel is summed from the first on: the error of
// every entry must be a difference of two such sums, or a multiple of one.
#include <algorithm>
#include <cmath>
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
constexpr const char* kPixel = "pixel_repeated";

// Returns the number of the fewest digits from low to high; if it needs more digits than a person
// writes, it is the one next to the best.
std::optional<std::pair<double, std::string>> roundest(double low, double high, double best) {
  if (!(low <= high)) return std::nullopt;
  best = std::clamp(best, low, high);
  const double size = std::max(std::fabs(low), std::fabs(high));
  for (int count = 1; count <= kRoundDigits && size > 0; ++count) {
    const double unit = std::pow(10, std::floor(std::log10(size)) + 1 - count);
    for (int i = 0; i < kRoundTries; ++i) {  // the nearest to the best, then its neighbours
      const int away = i % 2 == 0 ? i / 2 : -(i + 1) / 2;
      const std::string text = digits((std::round(best / unit) + away) * unit, count + 1);
      const double value = std::strtod(text.c_str(), nullptr);
      if (value >= low && value <= high) return std::pair(value, text);
    }
  }
  for (int count = kRoundDigits + 1; count <= 17; ++count) {  // more tell no double from another
    const std::string text = digits(best, count);
    const double value = std::strtod(text.c_str(), nullptr);
    if (std::fabs(value - best) <= kAsGood * (high - low) || count == 17) {
      return std::pair(value, text);
    }
  }
  return std::nullopt;
}

class Alternatives {
 public:
  Alternatives(const Evidence& evidence, const Sample& sample, const TermsBy& terms_by)
      : pb_(evidence.problem()),
        terms_by_(terms_by),
        plain_(plain_reading(pb_)),
        clues_(clues(evidence, sample, kEntries)) {
    for (const Clue& clue : clues_) {
      entries_.push_back(entry_terms(pb_, evidence.index(sample.at[clue.entry])));
    }
  }

  std::vector<Fault> take() {
    if (clues_.empty()) return {};
    for (const bool of_x : {false, true}) {
      Reading reading = plain_;
      reading.only_of_x = of_x;
      (of_x ? by_x_ : by_dy_) = terms_by_(entries_, reading);
    }
    find_weights();
    find_padding();
    entries_.resize(std::min(entries_.size(), kRangeEntries));
    for (const Fault& fault : list()) find_in_ranges(fault);
    return std::move(found_);
  }

 private:
  std::vector<Fault> list() const {
    std::vector<Fault> result;
    for (Fault& f : faults_of_inputs(pb_, {})) {
      const bool both = f.reading.x.treatment == f.reading.dy.treatment;
      const bool rounds = f.name == "input_precision" && both;
      if (rounds || f.name == "product_precision" || f.name == "line_repeated") {
        result.push_back(std::move(f));
      }
    }
    const auto add = [&](const char* name, const std::string& text, const char* cause,
                         const Reading& reading) {
      result.push_back({name, text, cause, reading});
      result.back().rare = true;
    };
    for (const bool x : {true, false}) {
      const char* const of = tensor_name(x);
      for (const int by : {1, -1}) {
        const char* const where = by < 0 ? "before" : "after";
        Reading reading = plain_;
        if (pb_.N > 1) {
          reading.tensor(x).starts =
              image_starts(pb_, x, [&](std::int64_t n) { return (n + by + pb_.N) % pb_.N; });
          add("image_order", cat("the image ", where, " it is read of ", of),
              "an offset of the batch that is one off", reading);
        }
        for (std::size_t a = 0; a < 3; ++a) {
          if (extents_of(pb_, x)[a] < 2) continue;
          reading = plain_;
          reading.only_of_x = x;
          reading.tensor(x).neighbour = {static_cast<std::int8_t>(a), 0,
                                         static_cast<std::int8_t>(by)};
          add(kPixel, cat(of, " is that ", where, " it in ", kAxisNames[a]),
              "an index that is one off", reading);
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

  // Single pixels are likely to be repeated, and not the last ones.
  std::vector<Range> ranges(bool single, std::int64_t pixels) const {
    const std::int64_t image = pixels / pb_.N;
    std::vector<Range> result;
    for (std::int64_t i = 0; i < pb_.N; ++i) {
      for (std::int64_t j = i + 1; j <= pb_.N; ++j) {
        if (pb_.N > kFewImages && j - i > 1 && i > 0 && j < pb_.N) continue;
        result.push_back({i * image, j * image});
      }
    }
    for (std::int64_t at = 0; at < pixels; ++at) {
      result.push_back(single ? Range{at, at + 1} : Range{at, pixels});
    }
    return result;
  }

  void find_in_ranges(const Fault& everywhere) {
    const auto of = sums(everywhere.reading);
    const auto pixels = static_cast<std::int64_t>(of[0].size()) - 1;
    std::vector<std::pair<double, Range>> kept;
    for (const Range& range : ranges(everywhere.name == kPixel, pixels)) {
      double misfit = 0;
      for (std::size_t e = 0; e < of.size() && misfit < HUGE_VAL; ++e) {
        const double added = of[e][static_cast<std::size_t>(range.end)] -
                             of[e][static_cast<std::size_t>(range.begin)];
        const double off = std::fabs(added - clues_[e].error) / clues_[e].tolerance;
        misfit = off <= 1 ? misfit + off * off : HUGE_VAL;
      }
      if (misfit < HUGE_VAL) kept.emplace_back(misfit, range);
    }
    std::stable_sort(kept.begin(), kept.end(),
                     [](const auto& x, const auto& y) { return x.first < y.first; });
    kept.resize(std::min(kept.size(), kKept));
    for (const auto& [misfit, range] : kept) {
      Fault& fault = found_.emplace_back(everywhere);
      const bool of_x = fault.reading.only_of_x;
      fault.text += cat(", in ", range_text(pb_, range, of_x, ""), " alone");
      fault.reading.only = range;
      fault.bits = std::log2(static_cast<double>(pixels));
    }
  }

  // Returns offset + errors / units, if that is one number: units are what 1 of it adds.
  std::optional<std::pair<double, std::string>> multiple(const std::vector<double>& units,
                                                         double offset) const {
    double products = 0, squares = 0, low = -HUGE_VAL, high = HUGE_VAL;
    for (std::size_t e = 0; e < units.size(); ++e) {
      if (units[e] == 0) {
        if (std::fabs(clues_[e].error) > clues_[e].tolerance) return std::nullopt;
        continue;
      }
      const double value = offset + clues_[e].error / units[e];
      const double slack = std::fabs(clues_[e].tolerance / units[e]);
      // All entries must agree within their slack; the mean weighs each by its precision.
      low = std::max(low, value - slack);
      high = std::min(high, value + slack);
      products += value / (slack * slack);
      squares += 1 / (slack * slack);
    }
    if (!(squares > 0)) return std::nullopt;
    return roundest(low, high, products / squares);
  }

  // Some images have another weight than the others.
  void find_weights() {
    std::vector<std::vector<double>> of;
    for (const Terms& terms : by_dy_) of.push_back(running_sums(terms));
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
        Reading reading = plain_;
        reading.only = range;
        reading.weight = weight->first;
        found_.push_back(
            {"weighted_images", range_text(pb_, range, false, "multiplied by " + weight->second),
             "a part of the batch with a scale of its own, or a sum that was added twice",
             reading});
        found_.back().bits = std::log2(static_cast<double>(pb_.N)) + bits_of(weight->second);
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
    found_.push_back({"padding_values", cat("padding holds ", value->second, " instead of zeros"),
                      "a value that 0 becomes before it is padded (a mean, a zero point)",
                      reading});
    found_.back().bits = bits_of(value->second);
  }

  // A decimal digit that was read off costs log2(10) bits.
  static double bits_of(const std::string& number) {
    return 3.4 * static_cast<double>(number.size());
  }

  const WgradProblem& pb_;
  const TermsBy& terms_by_;
  const Reading plain_;
  const std::vector<Clue> clues_;
  std::vector<EntryTerms> entries_;
  std::vector<Terms> by_dy_, by_x_;
  std::vector<Fault> found_;
};

}  // namespace

std::vector<Clue> clues(const Evidence& evidence, const Sample& sample, std::size_t most) {
  std::vector<Clue> result;
  for (std::size_t e = 0; e < sample.at.size(); ++e) {
    const std::size_t at = sample.at[e];
    const double error = evidence.got(at) - evidence.want(at);
    if (!std::isfinite(error) || evidence.error(at) < kLeastError) continue;
    const double step = rounding_step(evidence.problem().out_dtype, evidence.got(at));
    result.push_back({e, error, step / 2 + kTolerance * evidence.scale(at)});
  }
  std::ranges::stable_sort(result, std::greater<>(),
                           [](const Clue& clue) { return std::fabs(clue.error) / clue.tolerance; });
  result.resize(std::min(result.size(), most));
  return result;
}

std::vector<Fault> find_alternatives(const Evidence& evidence, const Sample& sample,
                                     const TermsBy& terms_by) {
  return Alternatives(evidence, sample, terms_by).take();
}

}  // namespace convgrad::diagnosis
