// pixels.cpp - finds faults of some pixels alone: left out, counted twice, rounded, stale.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

using By = Pixels::By;

// Entries are wrong by so many scales, and explained within so many: right sums stay below 12 in
// any order. What passes here is confirmed as any fault is, so these bound the time alone, as the
// numbers of entries, ranges and ends do.
constexpr double kLeastError = 8, kTolerance = 12;
constexpr std::size_t kEntriesOfMany = 12;
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
  const Terms* terms;
  double error, step, scale;  // step: half of the result's
  double tolerance() const { return step + kTolerance * scale; }
};
// What a fault adds to each clue's entry at each pixel, in the order n, z, p, q.
using Added = std::vector<std::vector<double>>;

struct Candidate {
  Pixels pixels;
  double misfit = 0;
  int form = 0;
};

constexpr int kImages = 0;  // the most usual form of pixels that are lost

std::vector<Clue> clues_of(const Evidence& evidence, const Sample& sample) {
  std::vector<Clue> result;
  for (std::size_t e = 0; e < sample.at.size(); ++e) {
    const std::size_t at = sample.at[e];
    const double error = evidence.got(at) - evidence.want(at);
    // If the fault is in one place only, the other entries are right.
    const bool right = !evidence.wrong().empty() && evidence.error(at) < kLeastError;
    if (!std::isfinite(error) || right) continue;
    const double step = evidence.step(at, evidence.got(at)) / 2;
    result.push_back({&sample.terms[e], error, step, evidence.scale(at)});
  }
  std::ranges::stable_sort(result, std::greater<>(), [](const Clue& clue) {
    return std::fabs(clue.error) / clue.tolerance();
  });
  return result;
}

// The usual forms come first, then those that fit best, to a bit; of equal ones the first.
bool before(const Candidate& a, const Candidate& b) {
  const auto rank = [](const Candidate& c) {
    return std::tuple(c.form, std::floor(std::log2(1 + c.misfit)), c.pixels.range.begin);
  };
  return rank(a) < rank(b);
}

// Returns the walk in the order n, z, p, q, and lanes that take images in turns.
std::vector<Pixels> image_walks(const WgradProblem& pb) {
  std::vector<Pixels> walks = {Pixels{}};
  for (const std::int64_t lanes : kLanes) {
    if (2 * lanes <= pb.N && pb.out_pixels() > 1) walks.push_back({By::image_lane, lanes, {}});
  }
  return walks;
}

// Returns lines, places, tiles and lanes, too.
std::vector<Pixels> all_walks(const WgradProblem& pb) {
  std::vector<Pixels> walks = image_walks(pb);
  const auto add = [&](By by, std::int64_t unit) {
    const Pixels walk = {by, unit, {}};
    if (step_count(pb, walk) > 1) walks.push_back(walk);
  };
  for (std::int64_t a = 0; a < 3; ++a) add(By::line, a);
  add(By::place, 0);
  add(By::border, 0);
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

// Returns how unusual it is that such pixels are lost.
int form_of(const WgradProblem& pb, const Pixels& pixels) {
  constexpr int kForms[] = {0, 2, 5, 5, 6, 6, 7, 7};  // of lines, places, tiles and lanes
  if (pixels.by != By::pixel) return kForms[static_cast<std::size_t>(pixels.by)];
  const Range r = pixels.range;
  const std::int64_t image = pb.out_pixels(), row = pb.axis[2].out;
  const auto whole = [&](std::int64_t unit) { return r.begin % unit == 0 && r.end % unit == 0; };
  const bool last = r.end == term_count(pb);
  if (whole(image)) return kImages;
  if (whole(row)) return 1;
  if (r.begin % kPixelChunk == 0 && (last || r.end % kPixelChunk == 0)) return 3;
  return r.size() == 1 ? 4 : last || r.begin == 0 ? 8 : 9;
}

// Finds ranges of steps of walks that add the errors of the clues.
struct Ranges {
  using Sums = std::vector<std::vector<double>>;  // of each clue, of the first steps

  const WgradProblem& pb;
  const std::vector<Clue>& clues;
  const Added& added;
  std::vector<Candidate> found = {};

  std::vector<std::int64_t> ends(const Pixels& walk) const {
    const std::int64_t count = step_count(pb, walk), row = pb.axis[2].out;
    const bool all = walk.by != By::pixel || count <= kMostEnds;
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i <= count; ++i) {
      if (all || i == count || i % row == 0 || i % kPixelChunk == 0) result.push_back(i);
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
      each.assign(static_cast<std::size_t>(ends.back()) + 1, 0);
      for (std::size_t i = 0; i < steps.size(); ++i) each[steps[i] + 1] += added[e][i];
      std::partial_sum(each.begin(), each.end(), each.begin());
      std::vector<double>& own = result.emplace_back();
      for (const std::int64_t end : ends) own.push_back(each[static_cast<std::size_t>(end)]);
    }
    return result;
  }

  std::optional<double> misfit(const Sums& sums, std::size_t begin, std::size_t end) const {
    double squares = 0;
    for (std::size_t e = 0; e < sums.size(); ++e) {
      const double off = std::fabs(sums[e][end] - sums[e][begin] - clues[e].error);
      if (!(off <= clues[e].tolerance())) return std::nullopt;
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
    const double slack = clues[0].tolerance();
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

  void find_by(const Pixels& walk) {
    const std::vector<std::int64_t> at = ends(walk);
    const Sums of = sums(walk, at);
    // Ranges of these are single steps: two tiles in a row are no shape.
    const bool single = walk.by == By::place || walk.by == By::tile || walk.by == By::image_tile;
    each_pair(of, single, [&](std::size_t begin, std::size_t end) {
      // A range of all pixels is a zero or a factor, which fillings name.
      if (begin == 0 && end + 1 == at.size()) return;
      const auto off = misfit(of, begin, end);
      if (!off) return;
      Candidate c = {walk, *off};
      c.pixels.range = {at[begin], at[end]};
      c.form = form_of(pb, c.pixels);
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
    if (!(std::fabs(sum - clues[e].error) <= clues[e].tolerance())) return false;
  }
  return !clues.empty();
}

// Finds what some pixels do that others do not: every entry's error is what these pixels add to it,
// which is the difference of two sums of a walk over all pixels. Returns the pixels of the most
// usual form, by one of the walks.
std::vector<Candidate> find_ranges(const WgradProblem& pb, const std::vector<Clue>& clues,
                                   const Added& added, const std::vector<Pixels>& walks) {
  if (clues.empty()) return {};
  Ranges ranges = {pb, clues, added};
  for (const Pixels& walk : walks) ranges.find_by(walk);
  std::vector<Candidate> found = std::move(ranges.found);
  std::sort(found.begin(), found.end(), before);
  std::erase_if(found, [form = found.empty() ? 0 : found[0].form](const Candidate& c) {
    return c.form > form;
  });
  found.resize(std::min(found.size(), kMostCandidates));
  return found;
}

// Returns change(terms, pixel) of each clue's terms: what a fault adds there.
template <typename Change>
Added added_by(const std::vector<Clue>& clues, Change&& change) {
  Added result;
  for (const Clue& clue : clues) {
    std::vector<double>& own = result.emplace_back();
    for (std::size_t i = 0; i < clue.terms->x.size(); ++i) {
      const double added = change(*clue.terms, i);
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

// Adds the fault, whose reading adds that, in the pixels in which it explains the errors.
void add_in_pixels(std::vector<Fault>& to, const WgradProblem& pb, const std::vector<Clue>& clues,
                   const Fault& everywhere, const Added& added, const std::vector<Pixels>& walks) {
  if (fits_everywhere(clues, added)) to.push_back(everywhere);
  for (const Candidate& c : find_ranges(pb, clues, added, walks)) {
    if (c.pixels.range.size() < everywhere.reading.stage) continue;  // a part of one
    Fault& fault = to.emplace_back(everywhere);
    fault.text += cat(", in ", pixels_text(pb, c.pixels, ""), " alone");
    fault.reading.only = c.pixels;
    fault.bits = bits_of(pb, c.pixels);
  }
}

// x or dy is rounded in some images, or in turns, or in a range of pixels: a split.
void add_roundings(std::vector<Fault>& to, const WgradProblem& pb, const std::vector<Clue>& clues) {
  for (const Fault& fault : roundings(pb)) {
    const Treatment x = fault.reading.x.treatment, dy = fault.reading.dy.treatment;
    if (fault.rare && x != Treatment::tf32_even && dy != Treatment::tf32_even) continue;
    const auto lost = [&](const Terms& t, std::size_t i) {
      return treated(x, pb.dtype, t.x[i]) * treated(dy, pb.dtype, t.dy[i]) - t.x[i] * t.dy[i];
    };
    add_in_pixels(to, pb, clues, fault, added_by(clues, lost), image_walks(pb));
  }
}

// Stages of dy or x are those before them, or of both change places with the next.
void add_stages(std::vector<Fault>& to, const WgradProblem& pb, const std::vector<Clue>& clues) {
  for (const char* const of : {"dy", "x", ""}) {
    for (std::int64_t stage = kLeastStage; stage <= kMostStage; stage *= 2) {
      if (2 * stage > term_count(pb)) break;
      const bool exchanged = *of == 0, of_x = *of == 'x';  // dy exchanged is x exchanged
      Fault fault = {"stale_pixels",
                     exchanged
                         ? cat("stages of ", stage, " pixels of dy change places")
                         : cat("a stage of ", stage, " pixels of ", of, " is the one before it"),
                     "a buffer of stages that is read before it is written", plain_reading(pb)};
      fault.reading.stage = stage;
      fault.reading.stage_of_x = of_x;
      fault.reading.stages_exchanged = exchanged;
      const auto changed = [&](const Terms& t, std::size_t i) {
        const std::int64_t other = pixel_of_stage(fault.reading, static_cast<std::int64_t>(i));
        if (other < 0 || other >= std::ssize(t.dy)) return 0.0;
        const auto at = static_cast<std::size_t>(other);
        return of_x ? (t.x[at] - t.x[i]) * t.dy[i] : t.x[i] * (t.dy[at] - t.dy[i]);
      };
      add_in_pixels(to, pb, clues, fault, added_by(clues, changed), {Pixels{}});
    }
  }
}

}  // namespace

std::vector<Fault> find_lost_pixels(const Evidence& evidence, const Sample& sample) {
  const WgradProblem& pb = evidence.problem();
  const std::vector<Clue> all = clues_of(evidence, sample);
  std::vector<Fault> result;
  for (const bool doubled : {false, true}) {
    const Added added = added_by(
        all, [&](const Terms& t, std::size_t i) { return (doubled ? t.x[i] : -t.x[i]) * t.dy[i]; });
    for (const Candidate& c : find_ranges(pb, all, added, all_walks(pb))) {
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

std::vector<Fault> find_alternatives(const Evidence& evidence, const Sample& sample) {
  std::vector<Clue> clues = clues_of(evidence, sample);
  clues.resize(std::min(clues.size(), kEntriesOfMany));
  std::vector<Fault> result;
  if (clues.empty()) return result;
  add_roundings(result, evidence.problem(), clues);
  add_stages(result, evidence.problem(), clues);
  return result;
}

}  // namespace convgrad::diagnosis
