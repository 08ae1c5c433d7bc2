// ranges.cpp - see search.hpp: Ranges, and what pixels are called.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/integers.hpp"
#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

using By = Pixels::By;

// What is looked at bounds the time: what passes is confirmed as any fault is.
constexpr std::size_t kMostCandidates = 4, kMostKept = 64;
// Every pixel is tried as an end, or only beginnings of rows and chunks if they are more than this.
constexpr std::int64_t kMostEnds = std::int64_t{1} << 18;
constexpr std::int64_t kChunk = 512;
constexpr double kMostSteps = 1e7;  // comparisons of a walk
// Tiles and lanes have these sizes; the second line of entries is enough for the few ranges there.
constexpr std::int64_t kTiles[] = {4, 8, 16, 32}, kLanes[] = {2, 4, 8, 16, 32, 64, 128};
constexpr std::size_t kEntriesOfFew = 32;
// The errors of right sums in other orders stay below so many scales.
constexpr double kTolerance = 12;

// Tells whether a walk's ranges are single steps: two tiles in a row are no shape.
bool is_single(const Pixels& walk) {
  return walk.by == By::place || walk.by == By::tile || walk.by == By::image_tile;
}

double tolerance(const Clue& clue) { return clue.step + kTolerance * clue.scale; }

// The usual forms come first, then those that fit best, to a bit; of equal ones the first.
bool before(const Candidate& a, const Candidate& b) {
  const auto rank = [](const Candidate& c) {
    return std::tuple(c.form, std::floor(std::log2(1 + c.misfit)), c.pixels.range.begin);
  };
  return rank(a) < rank(b);
}

}  // namespace

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
  const Range r = pixels.range;
  switch (pixels.by) {
    case By::line:
      return 2;
    case By::place:
      return 5;
    case By::tile:
    case By::image_tile:
      return 6;
    case By::lane:
      return 7;
    default:
      break;
  }
  const std::int64_t image = pb.out_pixels(), row = pb.axis[2].out;
  const auto whole = [&](std::int64_t unit) { return r.begin % unit == 0 && r.end % unit == 0; };
  const bool last = r.end == term_count(pb);
  if (whole(image)) return kImages;
  if (whole(row)) return 1;
  if (r.begin % kChunk == 0 && (last || r.end % kChunk == 0)) return 3;
  return r.size() == 1 ? 4 : last || r.begin == 0 ? kEnds : kAnyForm;
}

namespace {

// Finds ranges of steps of walks whose terms, times the number, are the errors of the clues.
struct Ranges {
  using Sums = std::vector<std::vector<double>>;  // of each clue, of the first steps

  const WgradProblem& pb;
  const std::vector<Clue>& clues;
  const Added& added;
  double number;
  int least_usual;
  std::vector<Candidate> found = {};

  // Of single pixels only if fine.
  std::vector<std::int64_t> ends(const Pixels& walk, bool fine) const {
    const std::int64_t count = step_count(pb, walk), row = pb.axis[2].out;
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i <= count; ++i) {
      const bool some = walk.by != By::pixel || (fine && count <= kMostEnds);
      if (some || i == count || i % row == 0 || i % kChunk == 0) result.push_back(i);
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
      const double off = std::fabs(number * (sums[e][end] - sums[e][begin]) - clues[e].error);
      if (!(off <= tolerance(clues[e]))) return std::nullopt;
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
    const double slack = tolerance(clues[0]) / std::fabs(number);
    double steps = 0;
    for (std::size_t a = 0; a < first.size() && steps < kMostSteps; ++a) {
      const double wanted = first[a] + clues[0].error / number;
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

}  // namespace

bool fits_everywhere(const std::vector<Clue>& clues, const Added& added) {
  for (std::size_t e = 0; e < clues.size(); ++e) {
    const double sum = std::accumulate(added[e].begin(), added[e].end(), 0.0);
    if (!(std::fabs(sum - clues[e].error) <= tolerance(clues[e]))) return false;
  }
  return !clues.empty();
}

std::vector<Candidate> find_ranges(const WgradProblem& pb, const std::vector<Clue>& clues,
                                   const Added& added, const std::vector<Pixels>& walks,
                                   double number, int least_usual) {
  if (clues.empty()) return {};
  Ranges ranges = {pb, clues, added, number, least_usual};
  std::vector<Candidate>& found = ranges.found;
  // Rows and chunks first: single pixels have many more ends.
  for (const bool fine : {false, true}) {
    if (!found.empty()) break;
    for (const Pixels& walk : walks) ranges.find_by(walk, fine);
  }
  std::sort(found.begin(), found.end(), before);
  std::erase_if(found, [form = found.empty() ? 0 : found[0].form](const Candidate& c) {
    return c.form > form;
  });
  found.resize(std::min(found.size(), kMostCandidates));
  return std::move(found);
}

namespace {

struct Named {
  std::string text;
  bool many = false;
};

// Says "row 3", or "rows 3 to 5", with what comes after.
Named lines_named(const char* name, std::int64_t first, std::int64_t last,
                  const std::string& after) {
  if (first == last) return {cat(name, " ", first, after)};
  return {cat(name, "s ", first, " to ", last, after), true};
}

// Says "the pixel p 2, q 5" of a pixel of an image.
std::string place_text(const WgradProblem& pb, std::int64_t pixel) {
  const std::int64_t Q = pb.axis[2].out, P = pb.axis[1].out;
  const std::string plane = pb.spatial_rank() > 2 ? cat("z ", pixel / Q / P, ", ") : "";
  return cat("the pixel ", plane, "p ", pixel / Q % P, ", q ", pixel % Q);
}

Named tile_named(const WgradProblem& pb, const Pixels& pixels) {
  const std::int64_t P = pb.axis[1].out, Q = pb.axis[2].out, tile = pixels.unit;
  const std::int64_t across = ceil_div(Q, tile), each = ceil_div(P, tile) * across;
  const std::int64_t id = pixels.range.begin % each, p = id / across * tile, q = id % across * tile;
  return {cat("the tile p ", p, "-", std::min(p + tile, P) - 1, ", q ", q, "-",
              std::min(q + tile, Q) - 1, " of ",
              pixels.by == By::tile ? "every image" : cat("image ", pixels.range.begin / each))};
}

Named named(const WgradProblem& pb, const Pixels& pixels) {
  const std::int64_t image = pb.out_pixels(), row = pb.axis[2].out;
  const std::int64_t first = pixels.range.begin, last = pixels.range.end - 1;
  switch (pixels.by) {
    case By::line:
      return lines_named(kLines[pixels.unit], first, last, " of every image");
    case By::place:
      return {place_text(pb, first) + " of every image"};
    case By::tile:
    case By::image_tile:
      return tile_named(pb, pixels);
    case By::lane:
      return lines_named("lane", first, last,
                         cat(" of ", pixels.unit, " that take pixels in turns"));
    default:
      break;
  }
  const std::string of_image = cat(" of image ", first / image);
  const auto whole = [&](std::int64_t unit) { return first % unit == 0 && (last + 1) % unit == 0; };
  if (whole(image)) return lines_named("image", first / image, last / image, "");
  if (whole(row) && first / image == last / image) {
    return lines_named("row", first % image / row, last % image / row, of_image);
  }
  if (first == last) return {place_text(pb, first % image) + of_image};
  return {cat("pixels ", first, " to ", last, " of N*P*Q = ", pb.N * image,
              pixels.range.size() % kChunk == 0 ? " (chunks of 512)" : ""),
          true};
}

}  // namespace

std::string pixels_text(const WgradProblem& pb, const Pixels& pixels, const std::string& verb) {
  const auto [text, many] = named(pb, pixels);
  return cat(text, verb.empty() ? "" : many ? " are " : " is ", verb);
}

}  // namespace convgrad::diagnosis
