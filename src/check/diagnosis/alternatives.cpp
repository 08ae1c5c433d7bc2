// alternatives.cpp - finds faults of some pixels alone: left out, counted twice or with a weight,
// rounded, stale; and constants in the padding, of which one number is missing.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

// Entries are wrong by so many scales, and explained within so many: right sums in the order of the
// definition stay below 4 with 64 entries (normal errors of 0.7), those in other orders below 12.
// What passes here is confirmed as any fault is, so these bound the time alone, as the numbers of
// entries do.
constexpr double kLeastError = 8, kTolerance = 4;
constexpr std::size_t kEntries = 64, kEntriesOfMany = 12;
// A number is read off to as many digits as bring it so near to the best one, as a part of what
// the entries leave of it: their errors are about an eighth of that.
constexpr double kAsGood = 1.0 / 4;
// A stage holds so many pixels; which walk it was is worth some bits.
constexpr std::int64_t kLeastStage = 8, kMostStage = 256;
constexpr double kWalkBits = 4;

// Returns change(clue, terms, pixel) of each clue's terms: what a fault adds there.
template <typename Change>
Added added_by(const Sample& sample, const std::vector<Clue>& clues, Change&& change) {
  Added result;
  for (std::size_t e = 0; e < clues.size(); ++e) {
    const Terms& terms = sample.terms[clues[e].entry];
    std::vector<double>& own = result.emplace_back();
    for (std::size_t i = 0; i < terms.x.size(); ++i) {
      const double added = change(e, terms, i);
      own.push_back(std::isfinite(added) ? added : 0);
    }
  }
  return result;
}

// Returns how many bits it takes to say which pixels of a walk these are.
double bits_of(const WgradProblem& pb, const Pixels& pixels) {
  if (form_of(pb, pixels) == kImages) return std::log2(static_cast<double>(pb.N));
  return 2 * std::log2(static_cast<double>(step_count(pb, pixels))) +
         (pixels.by == Pixels::By::pixel ? 0 : kWalkBits);
}

// Returns the first clues, those that rule out the most.
std::vector<Clue> first_of(std::vector<Clue> all, std::size_t count) {
  all.resize(std::min(all.size(), count));
  return all;
}

class Alternatives {
 public:
  Alternatives(const Evidence& evidence, const Sample& sample, const TermsBy& terms_by)
      : pb_(evidence.problem()),
        evidence_(evidence),
        sample_(sample),
        terms_by_(terms_by),
        plain_(plain_reading(pb_)),
        clues_(first_of(diagnosis::clues(evidence, sample), kEntries)),
        few_(first_of(clues_, kEntriesOfMany)) {}

  std::vector<Fault> take() {
    if (clues_.empty()) return {};
    find_weights();
    find_padding();
    find_roundings();
    find_stages();
    return std::move(found_);
  }

 private:
  // Adds what the reading does in the pixels in which it explains the errors.
  void add_in_pixels(const Fault& everywhere, const Added& added, int least_usual) {
    if (fits_everywhere(few_, added)) {
      found_.push_back(everywhere);
      return;
    }
    for (const Candidate& c : find_ranges(pb_, few_, added, {Pixels{}}, 1, least_usual)) {
      Fault& fault = found_.emplace_back(everywhere);
      fault.text += cat(", in ", pixels_text(pb_, c.pixels, ""), " alone");
      fault.reading.only = c.pixels;
      fault.bits = bits_of(pb_, c.pixels);
    }
  }

  // x or dy is rounded in some images, or in the first or last pixels: a split.
  void find_roundings() {
    for (const Fault& fault : roundings(pb_)) {
      const Treatment x = fault.reading.x.treatment, dy = fault.reading.dy.treatment;
      const auto lost = [&](std::size_t, const Terms& t, std::size_t i) {
        return treated(x, pb_.dtype, t.x[i]) * treated(dy, pb_.dtype, t.dy[i]) - t.x[i] * t.dy[i];
      };
      add_in_pixels(fault, added_by(sample_, few_, lost), kEnds);
    }
  }

  // Stages of dy are those before them, or change places with the next.
  void find_stages() {
    for (const bool exchanged : {false, true}) {
      for (std::int64_t stage = kLeastStage; stage <= kMostStage; stage *= 2) {
        if (2 * stage > term_count(pb_)) break;
        Fault fault = {"stale_pixels",
                       exchanged ? cat("stages of ", stage, " pixels of dy change places")
                                 : cat("a stage of ", stage, " pixels of dy is the one before it"),
                       "a buffer of stages that is read before it is written", plain_};
        fault.reading.stage = stage;
        fault.reading.stages_exchanged = exchanged;
        add_in_pixels(fault, added_by_reading(few_, fault.reading), kAnyForm);
      }
    }
  }

  // Returns what the reading adds to entries at each pixel, less what the definition does.
  Added added_by_reading(const std::vector<Clue>& clues, const Reading& reading) const {
    std::vector<EntryTerms> entries;
    for (const Clue& clue : clues) {
      entries.push_back(entry_terms(pb_, evidence_.index(sample_.at[clue.entry])));
    }
    const std::vector<Terms> others = terms_by_(entries, reading);
    return added_by(sample_, clues, [&](std::size_t e, const Terms& own, std::size_t i) {
      return others[e].x[i] * others[e].dy[i] - own.x[i] * own.dy[i];
    });
  }

  // Returns offset + errors / units, if that is one number: units are what 1 of it adds.
  std::optional<std::pair<double, std::string>> number_of(const std::vector<double>& units,
                                                          double offset) const {
    double products = 0, squares = 0, low = -HUGE_VAL, high = HUGE_VAL;
    for (std::size_t e = 0; e < units.size(); ++e) {
      const double tolerance = clues_[e].step + kTolerance * clues_[e].scale;
      if (units[e] == 0) {
        if (std::fabs(clues_[e].error) > tolerance) return std::nullopt;
        continue;
      }
      // All entries must agree within their slack; the mean weighs each by its precision.
      const double value = offset + clues_[e].error / units[e];
      const double slack = std::fabs(tolerance / units[e]);
      low = std::max(low, value - slack);
      high = std::min(high, value + slack);
      products += value / (slack * slack);
      squares += 1 / (slack * slack);
    }
    if (!(squares > 0) || !(low <= high)) return std::nullopt;
    if (low <= 0 && high >= 0) return std::pair(0.0, std::string("0"));
    const double best = std::clamp(products / squares, low, high);
    for (int count = 1;; ++count) {
      const std::string text = digits(best, count);
      const double value = std::strtod(text.c_str(), nullptr);
      if (std::fabs(value - best) <= kAsGood * (high - low) || count == kMostDigits) {
        return std::pair(value, text);
      }
    }
  }
  void add(Fault fault, double bits, const std::string& number) {
    fault.bits = bits + kDigitBits * static_cast<double>(number.size());
    found_.push_back(std::move(fault));
  }

  // One image, or those that begin or end the batch, have another weight than the others.
  void find_weights() {
    std::vector<std::vector<double>> of;
    for (const Clue& clue : clues_) of.push_back(running_sums(sample_.terms[clue.entry]));
    for (std::int64_t i = 0; i < pb_.N; ++i) {
      for (std::int64_t j = i + 1; j <= pb_.N; ++j) {
        if ((j - i > 1 && i > 0 && j < pb_.N) || j - i == pb_.N) continue;
        Pixels images;
        images.range = {i * pb_.out_pixels(), j * pb_.out_pixels()};
        std::vector<double> units;
        units.reserve(of.size());
        for (const std::vector<double>& sum : of) {
          units.push_back(sum[static_cast<std::size_t>(images.range.end)] -
                          sum[static_cast<std::size_t>(images.range.begin)]);
        }
        const auto weight = number_of(units, 1);
        // Images that are left out or counted twice are found as such.
        if (!weight || weight->first == 0 || weight->first == 1 || weight->first == 2) continue;
        Fault fault = {
            "weighted_images", pixels_text(pb_, images, "multiplied by " + weight->second),
            "a part of the batch with a scale of its own, or a sum that was added twice", plain_};
        fault.reading.only = images;
        fault.reading.weight = weight->first;
        add(std::move(fault), std::log2(static_cast<double>(pb_.N)), weight->second);
      }
    }
  }

  // Sums are linear in a constant outside x, so what 1 adds tells it.
  void find_padding() {
    Fault fault = {"padding_values", "",
                   "a value that 0 becomes before it is padded (a mean, a zero point)", plain_};
    fault.reading.outside = Outside::constant;
    fault.reading.padding = 1;
    std::vector<double> units;
    for (const std::vector<double>& added : added_by_reading(clues_, fault.reading)) {
      units.push_back(std::accumulate(added.begin(), added.end(), 0.0));
    }
    const auto value = number_of(units, 0);
    if (!value || value->first == 0) return;
    fault.reading.padding = value->first;
    fault.text = cat("padding holds ", value->second, " instead of zeros");
    add(std::move(fault), 0, value->second);
  }

  const WgradProblem& pb_;
  const Evidence& evidence_;
  const Sample& sample_;
  const TermsBy& terms_by_;
  const Reading plain_;
  const std::vector<Clue> clues_, few_;  // the first ones
  std::vector<Fault> found_;
};

}  // namespace

std::vector<Clue> clues(const Evidence& evidence, const Sample& sample) {
  std::vector<Clue> result;
  for (std::size_t e = 0; e < sample.at.size(); ++e) {
    const std::size_t at = sample.at[e];
    const double error = evidence.got(at) - evidence.want(at);
    // If the fault is in one place only, the other entries are right.
    const bool right = !evidence.wrong().empty() && evidence.error(at) < kLeastError;
    if (!std::isfinite(error) || right) continue;
    const double step = rounding_step(evidence.problem().out_dtype, evidence.got(at)) / 2;
    result.push_back({e, error, step, evidence.scale(at)});
  }
  std::ranges::stable_sort(result, std::greater<>(), [](const Clue& clue) {
    return std::fabs(clue.error) / (clue.step + kTolerance * clue.scale);
  });
  return result;
}

std::vector<Fault> find_lost_pixels(const Evidence& evidence, const Sample& sample) {
  const WgradProblem& pb = evidence.problem();
  const std::vector<Clue> all = clues(evidence, sample);
  const Added added = added_by(
      sample, all, [](std::size_t, const Terms& t, std::size_t i) { return t.x[i] * t.dy[i]; });
  std::vector<Fault> result;
  int usual = kAnyForm;
  for (const bool doubled : {false, true}) {
    for (const Candidate& c : find_ranges(pb, all, added, all_walks(pb), doubled ? 1 : -1, usual)) {
      // The first or last line is one of the known faults.
      const Range& r = c.pixels.range;
      const bool border = r.begin == 0 || r.end == step_count(pb, c.pixels);
      const bool line = c.pixels.by == Pixels::By::line && r.size() == 1;
      if (line && border && !doubled) continue;
      usual = c.form;
      Reading reading = plain_reading(pb);
      reading.only = c.pixels;
      reading.weight = doubled ? 2 : 0;
      result.push_back(
          {cat(doubled ? "doubled_" : "missing_", c.form == kImages ? "image" : "pixels"),
           pixels_text(pb, c.pixels, doubled ? "counted twice" : "left out"),
           doubled ? "parts of the sum that overlap, or a buffer that was not cleared"
                   : "a loop or a split of K that ends too early, a mask, or a race",
           reading});
      result.back().bits = bits_of(pb, c.pixels);
    }
  }
  return result;
}

std::vector<Fault> find_alternatives(const Evidence& evidence, const Sample& sample,
                                     const TermsBy& terms_by) {
  return Alternatives(evidence, sample, terms_by).take();
}

}  // namespace convgrad::diagnosis
