// pixels.cpp - finds faults of some pixels alone: left out, counted twice or with a weight,
// rounded, stale; and constants in the padding, of which one number is missing.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>

#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

using By = Pixels::By;

// Entries are wrong by so many scales, and explained within so many: right sums in the order of the
// definition stay below 4 with 64 entries (normal errors of 0.7), those in other orders below 12.
// What passes here is confirmed as any fault is, so these bound the time alone, as the numbers of
// entries, ranges and ends do.
constexpr double kLeastError = 8, kTolerance = 4, kOtherOrders = 12;
constexpr std::size_t kEntries = 64, kEntriesOfMany = 12;
// A number is read off to as many digits as bring it so near to the best one, as a part of what
// the entries leave of it: their errors are about an eighth of that.
constexpr double kAsGood = 1.0 / 4;
// A stage holds so many pixels; which walk it was is worth some bits.
constexpr std::int64_t kLeastStage = 8, kMostStage = 256;
constexpr double kWalkBits = 4;
constexpr std::size_t kMostCandidates = 4, kMostKept = 64;
// Every pixel is tried as an end, or only beginnings of rows and chunks if they are more than this.
constexpr std::int64_t kMostEnds = std::int64_t{1} << 18;
constexpr double kMostSteps = 1e7;  // comparisons of a walk
// Tiles and lanes have these sizes; the second line of entries is enough for the few ranges there.
constexpr std::int64_t kTiles[] = {4, 8, 16, 32}, kLanes[] = {2, 4, 8, 16, 32, 64, 128};
constexpr std::size_t kEntriesOfFew = 32;

// A clue is an entry of the sample that is wrong for certain.
struct Clue {
  std::size_t at;
  const Terms* terms;
  double error, step, scale;  // step: half of the result's
  double tolerance(double scales) const { return step + scales * scale; }
};
// What a fault adds to each clue's entry at each pixel, in the order n, z, p, q.
using Added = std::vector<std::vector<double>>;

struct Candidate {
  Pixels pixels;
  double misfit = 0;
  int form = 0;
};

// How usual it is that pixels of a form are lost: 0 is the most usual.
constexpr int kImages = 0, kEnds = 8, kAnyForm = 9;

// Returns those that rule out the most first: large errors with small tolerances.
std::vector<Clue> clues_of(const Evidence& evidence, const Sample& sample) {
  std::vector<Clue> result;
  for (std::size_t e = 0; e < sample.at.size(); ++e) {
    const std::size_t at = sample.at[e];
    const double error = evidence.got(at) - evidence.want(at);
    // If the fault is in one place only, the other entries are right.
    const bool right = !evidence.wrong().empty() && evidence.error(at) < kLeastError;
    if (!std::isfinite(error) || right) continue;
    const double step = rounding_step(evidence.problem().out_dtype, evidence.got(at)) / 2;
    result.push_back({at, &sample.terms[e], error, step, evidence.scale(at)});
  }
  std::ranges::stable_sort(result, std::greater<>(), [](const Clue& clue) {
    return std::fabs(clue.error) / clue.tolerance(kTolerance);
  });
  return result;
}

// Tells whether a walk's ranges are single steps: two tiles in a row are no shape.
bool is_single(const Pixels& walk) {
  return walk.by == By::place || walk.by == By::tile || walk.by == By::image_tile;
}

// The usual forms come first, then those that fit best, to a bit; of equal ones the first.
bool before(const Candidate& a, const Candidate& b) {
  const auto rank = [](const Candidate& c) {
    return std::tuple(c.form, std::floor(std::log2(1 + c.misfit)), c.pixels.range.begin);
  };
  return rank(a) < rank(b);
}

// Returns the walk in the order n, z, p, q, lines, places, tiles and lanes.
std::vector<Pixels> all_walks(const WgradProblem& pb) {
  std::vector<Pixels> walks = {Pixels{}};
  const auto add = [&](By by, std::int64_t unit) {
    const Pixels walk = {by, unit, {}};
    if (step_count(pb, walk) > 1) walks.push_back(walk);
  };
  for (std::int64_t a = 0; a < 3; ++a) add(By::line, a);
  add(By::place, 0);
  for (const std::int64_t tile : kTiles) {
    if (pb.axis[1].out < 2 * tile || pb.axis[2].out < 2 * tile) continue;
    add(By::tile, tile);
    add(By::image_tile, tile);
  }
  for (const std::int64_t lanes : kLanes) {
    if (2 * lanes <= term_count(pb)) add(By::lane, lanes);
  }
  return walks;
}

int form_of(const WgradProblem& pb, const Pixels& pixels) {
  constexpr int kForms[] = {0, 2, 5, 6, 6, 7};  // of lines, places, tiles and lanes
  if (pixels.by != By::pixel) return kForms[static_cast<std::size_t>(pixels.by)];
  const Range r = pixels.range;
  const std::int64_t image = pb.out_pixels(), row = pb.axis[2].out;
  const auto whole = [&](std::int64_t unit) { return r.begin % unit == 0 && r.end % unit == 0; };
  const bool last = r.end == term_count(pb);
  if (whole(image)) return kImages;
  if (whole(row)) return 1;
  if (r.begin % kPixelChunk == 0 && (last || r.end % kPixelChunk == 0)) return 3;
  return r.size() == 1 ? 4 : last || r.begin == 0 ? kEnds : kAnyForm;
}

// Finds ranges of steps of walks that add the errors of the clues.
struct Ranges {
  using Sums = std::vector<std::vector<double>>;  // of each clue, of the first steps

  const WgradProblem& pb;
  const std::vector<Clue>& clues;
  const Added& added;
  int least_usual;
  std::vector<Candidate> found = {};

  // Of single pixels only if fine.
  std::vector<std::int64_t> ends(const Pixels& walk, bool fine) const {
    const std::int64_t count = step_count(pb, walk), row = pb.axis[2].out;
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i <= count; ++i) {
      const bool some = walk.by != By::pixel || (fine && count <= kMostEnds);
      if (some || i == count || i % row == 0 || i % kPixelChunk == 0) result.push_back(i);
    }
    return result;
  }

  Sums sums(const Pixels& walk, const std::vector<std::int64_t>& ends) const {
    std::vector<std::size_t> steps;
    for (std::int64_t i = 0; i < std::ssize(added[0]); ++i) {
      steps.push_back(static_cast<std::size_t>(step_of(pb, walk, i)));
    }
    const bool few = walk.by != By::pixel;
    Sums result;
    std::vector<double> each;
    for (std::size_t e = 0; e < added.size() && !(few && e == kEntriesOfFew); ++e) {
      each.assign(static_cast<std::size_t>(ends.back()), 0);
      for (std::size_t i = 0; i < steps.size(); ++i) each[steps[i]] += added[e][i];
      std::vector<double> own;
      double sum = 0;
      std::int64_t at = 0;
      for (const std::int64_t end : ends) {
        for (; at < end; ++at) sum += each[static_cast<std::size_t>(at)];
        own.push_back(sum);
      }
      result.push_back(std::move(own));
    }
    return result;
  }

  std::optional<double> misfit(const Sums& sums, std::size_t begin, std::size_t end) const {
    double squares = 0;
    for (std::size_t e = 0; e < sums.size(); ++e) {
      const double off = std::fabs(sums[e][end] - sums[e][begin] - clues[e].error);
      if (!(off <= clues[e].tolerance(kOtherOrders))) return std::nullopt;
      squares += std::pow(std::max(0.0, off - clues[e].step) / clues[e].scale, 2);
    }
    return squares;
  }

  // Calls keep for ends between which the first clue's sums differ by its error. They are sorted,
  // so that each begin finds its ends by bisection.
  template <typename Keep>
  void each_pair(const Sums& sums, bool single, Keep&& keep) const {
    const std::vector<double>& first = sums[0];
    if (single) {
      for (std::size_t a = 0; a + 1 < first.size(); ++a) keep(a, a + 1);
      return;
    }
    std::vector<std::pair<double, std::size_t>> sorted;
    for (std::size_t i = 0; i < first.size(); ++i) sorted.emplace_back(first[i], i);
    std::sort(sorted.begin(), sorted.end());
    const double slack = clues[0].tolerance(kOtherOrders);
    double steps = 0;
    for (std::size_t a = 0; a < first.size() && steps < kMostSteps; ++a) {
      const double wanted = first[a] + clues[0].error;
      auto b =
          std::lower_bound(sorted.begin(), sorted.end(), std::pair(wanted - slack, std::size_t{0}));
      for (; b != sorted.end() && b->first <= wanted + slack; ++b, ++steps) {
        if (b->second > a) keep(a, b->second);
      }
    }
  }

  // Adds the ranges of a walk that explain the errors.
  void find_by(const Pixels& walk, bool fine) {
    if (fine && walk.by != By::pixel) return;  // all of their ends are tried at first
    const std::vector<std::int64_t> at = ends(walk, fine);
    const Sums of = sums(walk, at);
    each_pair(of, is_single(walk), [&](std::size_t begin, std::size_t end) {
      // A range of all pixels is a zero or a factor, which fillings name.
      if (begin == 0 && end + 1 == at.size()) return;
      const auto off = misfit(of, begin, end);
      if (!off) return;
      Candidate c = {walk, *off};
      c.pixels.range = {at[begin], at[end]};
      c.form = form_of(pb, c.pixels);
      if (c.form > least_usual) return;
      found.push_back(c);
      if (found.size() < 2 * kMostKept) return;
      std::sort(found.begin(), found.end(), before);
      found.resize(kMostKept);
    });
  }
};

// Tells whether the terms of all pixels are the errors.
bool fits_everywhere(const std::vector<Clue>& clues, const Added& added) {
  for (std::size_t e = 0; e < clues.size(); ++e) {
    const double sum = std::accumulate(added[e].begin(), added[e].end(), 0.0);
    if (!(std::fabs(sum - clues[e].error) <= clues[e].tolerance(kOtherOrders))) return false;
  }
  return !clues.empty();
}

// Finds what some pixels do that others do not: every entry's error is what these pixels add to it,
// which is the difference of two sums of a walk over all pixels. Returns the pixels of the most
// usual form, by one of the walks; at most as unusual a form is looked for.
std::vector<Candidate> find_ranges(const WgradProblem& pb, const std::vector<Clue>& clues,
                                   const Added& added, const std::vector<Pixels>& walks,
                                   int least_usual) {
  if (clues.empty()) return {};
  Ranges ranges = {pb, clues, added, least_usual};
  // Rows and chunks first: single pixels have many more ends.
  for (const bool fine : {false, true}) {
    if (!ranges.found.empty()) break;
    for (const Pixels& walk : walks) ranges.find_by(walk, fine);
  }
  std::vector<Candidate> found = std::move(ranges.found);
  std::sort(found.begin(), found.end(), before);
  std::erase_if(found, [form = found.empty() ? 0 : found[0].form](const Candidate& c) {
    return c.form > form;
  });
  found.resize(std::min(found.size(), kMostCandidates));
  return found;
}

// Returns change(clue, terms, pixel) of each clue's terms: what a fault adds there.
template <typename Change>
Added added_by(const std::vector<Clue>& clues, Change&& change) {
  Added result;
  for (std::size_t e = 0; e < clues.size(); ++e) {
    const Terms& terms = *clues[e].terms;
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
         (pixels.by == By::pixel ? 0 : kWalkBits);
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
        terms_by_(terms_by),
        plain_(plain_reading(pb_)),
        clues_(first_of(clues_of(evidence, sample), kEntries)),
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
    for (const Candidate& c : find_ranges(pb_, few_, added, {Pixels{}}, least_usual)) {
      if (c.pixels.range.size() < everywhere.reading.stage) continue;  // a part of one
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
      if (fault.rare && x != Treatment::tf32_even && dy != Treatment::tf32_even) continue;
      const auto lost = [&](std::size_t, const Terms& t, std::size_t i) {
        return treated(x, pb_.dtype, t.x[i]) * treated(dy, pb_.dtype, t.dy[i]) - t.x[i] * t.dy[i];
      };
      add_in_pixels(fault, added_by(few_, lost), kEnds);
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
    entries.reserve(clues.size());
    for (const Clue& clue : clues) {
      entries.push_back(entry_terms(pb_, evidence_.index(clue.at)));
    }
    const std::vector<Terms> others = terms_by_(entries, reading);
    return added_by(clues, [&](std::size_t e, const Terms& own, std::size_t i) {
      return others[e].x[i] * others[e].dy[i] - own.x[i] * own.dy[i];
    });
  }

  // Returns offset + errors / units, if that is one number: units are what 1 of it adds.
  std::optional<std::pair<double, std::string>> number_of(const std::vector<double>& units,
                                                          double offset) const {
    double products = 0, squares = 0, low = -HUGE_VAL, high = HUGE_VAL;
    for (std::size_t e = 0; e < units.size(); ++e) {
      const double tolerance = clues_[e].tolerance(kTolerance);
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
    for (const Clue& clue : clues_) of.push_back(running_sums(*clue.terms));
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
  const TermsBy& terms_by_;
  const Reading plain_;
  const std::vector<Clue> clues_, few_;  // the first ones
  std::vector<Fault> found_;
};

}  // namespace

std::vector<Fault> find_lost_pixels(const Evidence& evidence, const Sample& sample) {
  const WgradProblem& pb = evidence.problem();
  const std::vector<Clue> all = clues_of(evidence, sample);
  std::vector<Fault> result;
  int usual = kAnyForm;
  for (const bool doubled : {false, true}) {
    const Added added = added_by(all, [&](std::size_t, const Terms& t, std::size_t i) {
      return (doubled ? t.x[i] : -t.x[i]) * t.dy[i];
    });
    for (const Candidate& c : find_ranges(pb, all, added, all_walks(pb), usual)) {
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
