// ranges.cpp - finds pixels that are left out or counted twice. The sums of an entry's first pixels
// tell them: the error of every entry must be a difference of two of them.
#include <algorithm>
#include <cmath>

#include "check/diagnosis/search.hpp"
#include "check/rounding.hpp"

namespace convgrad::diagnosis {
namespace {

// What is looked at bounds the time: what passes is confirmed as any fault is.
constexpr std::size_t kMostCandidates = 4;
// Every pixel is tried as an end, or only beginnings of rows and chunks if they are more than this.
constexpr std::size_t kMostEnds = std::size_t{1} << 18;
constexpr std::int64_t kChunk = 512;
constexpr double kMostSteps = 3e8;  // comparisons
constexpr double kTolerance = 12;   // in scales: other orders of the sum

struct Candidate {
  std::size_t begin, end;
  double misfit;
};

// Ranks how usual it is that a piece of this form is lost; 0 is the most usual.
constexpr int kForms = 6;
int form(const WgradProblem& pb, Range r) {
  const std::int64_t image = pb.out_pixels(), row = pb.axis[2].out;
  const auto whole = [&](std::int64_t unit) { return r.begin % unit == 0 && r.end % unit == 0; };
  const bool last = r.end == term_count(pb);
  if (whole(image)) return 0;
  if (whole(row)) return 1;
  if (r.begin % kChunk == 0 && (last || r.end % kChunk == 0)) return 2;
  return r.size() == 1 ? 3 : last || r.begin == 0 ? 4 : 5;
}

class Finder {
 public:
  Finder(const Evidence& evidence, const Sample& sample) : evidence_(evidence) {
    const WgradProblem& pb = evidence.problem();
    const auto pixels = static_cast<std::size_t>(term_count(pb));
    const auto row = static_cast<std::size_t>(pb.axis[2].out);
    for (std::size_t i = 0; i <= pixels; ++i) {
      if (pixels <= kMostEnds || i == pixels || i % row == 0 || i % kChunk == 0) ends_.push_back(i);
    }
    for (std::size_t e = 0; e < sample.at.size(); ++e) {
      const std::size_t at = sample.at[e];
      const double error = evidence.got(at) - evidence.want(at);
      if (!std::isfinite(error)) continue;
      // If the fault is in one place only, the other entries are right.
      if (!evidence.wrong().empty() && evidence.error(at) < 8) continue;
      std::vector<double> sums;
      double sum = 0;
      std::size_t next = 0;
      for (std::size_t i = 0; i <= pixels; ++i) {
        if (ends_[next] == i) {
          sums.push_back(sum);
          ++next;
        }
        if (i < pixels) sum += sample.terms[e].x[i] * sample.terms[e].dy[i];
      }
      const double step = rounding_step(pb.out_dtype, evidence.got(at)) / 2;
      entries_.push_back({std::move(sums), error, step, evidence.scale(at)});
    }
    // Entries with the largest errors for their tolerance rule out the most: they come first.
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::fabs(a.error) * tolerance(b) > std::fabs(b.error) * tolerance(a);
    });
  }

  // Returns pairs of ends between which the sums differ by sign * error. The first entry's sums are
  // sorted, so each begin finds its ends by bisection; all entries then judge the pair.
  std::vector<Candidate> candidates(double sign) const {
    std::vector<Candidate> found;
    if (entries_.empty()) return found;
    const Entry& first = entries_[0];
    std::vector<std::pair<double, std::size_t>> sorted;
    for (std::size_t i = 0; i < ends_.size(); ++i) sorted.emplace_back(first.sums[i], i);
    std::sort(sorted.begin(), sorted.end());
    double steps = 0;
    for (std::size_t a = 0; a < ends_.size() && steps < kMostSteps; ++a) {
      const double wanted = first.sums[a] + sign * first.error;
      auto b = std::lower_bound(sorted.begin(), sorted.end(),
                                std::pair(wanted - tolerance(first), std::size_t{0}));
      for (; b != sorted.end() && b->first <= wanted + tolerance(first); ++b, ++steps) {
        if (b->second > a) keep(found, a, b->second, sign);
      }
    }
    std::sort(found.begin(), found.end(),
              [&](const Candidate& x, const Candidate& y) { return rank(x) < rank(y); });
    if (found.size() > kMostCandidates) found.resize(kMostCandidates);
    return found;
  }

 private:
  struct Entry {
    std::vector<double> sums;
    double error, step, scale;
  };
  static double tolerance(const Entry& e) { return e.step + kTolerance * e.scale; }

  // Orders the usual forms first, then those that fit best, to a bit; of equal ones the first.
  std::tuple<int, double, std::size_t> rank(const Candidate& c) const {
    return {form(evidence_.problem(), range(c)), std::floor(std::log2(1 + c.misfit)), c.begin};
  }

  static Range range(const Candidate& c) {
    return {static_cast<std::int64_t>(c.begin), static_cast<std::int64_t>(c.end)};
  }

  void keep(std::vector<Candidate>& found, std::size_t a, std::size_t b, double sign) const {
    double squares = 0;
    for (const Entry& e : entries_) {
      const double off = std::fabs(e.sums[b] - e.sums[a] - sign * e.error);
      if (off > tolerance(e)) return;
      squares += std::pow(std::max(0.0, off - e.step) / e.scale, 2);
    }
    const Candidate c = {ends_[a], ends_[b], squares};
    if (found.size() < 64) {
      found.push_back(c);
      return;
    }
    const auto worst =
        std::max_element(found.begin(), found.end(),
                         [&](const Candidate& x, const Candidate& y) { return rank(x) < rank(y); });
    if (rank(c) < rank(*worst)) *worst = c;
  }

  const Evidence& evidence_;
  std::vector<std::size_t> ends_;
  std::vector<Entry> entries_;
};

}  // namespace

std::string range_text(const WgradProblem& pb, Range r, bool of_x, const std::string& verb) {
  const std::int64_t row = extents_of(pb, of_x)[2], image = pixels_of(extents_of(pb, of_x));
  const auto text = [&](const std::string& what, bool many) {
    return cat(what, verb.empty() ? "" : many ? " are " : " is ", verb);
  };
  const auto count = [&](const char* name, std::int64_t first, std::int64_t last,
                         const std::string& after) {
    return first == last ? text(cat(name, " ", first, after), false)
                         : text(cat(name, "s ", first, " to ", last, after), true);
  };
  const std::string of_image = cat(" of image ", r.begin / image);
  const bool one = r.begin / image == (r.end - 1) / image;
  if (r.begin % image == 0 && r.end % image == 0) {
    return count("image", r.begin / image, r.end / image - 1, "");
  }
  if (r.begin % row == 0 && r.end % row == 0 && one) {
    return count("row", r.begin % image / row, (r.end - 1) % image / row, of_image);
  }
  if (r.size() == 1) {
    const auto [p, q] = of_x ? std::pair("h ", "w ") : std::pair("p ", "q ");
    return text(cat("the pixel ", p, r.begin % image / row, ", ", q, r.begin % row, of_image),
                false);
  }
  return text(cat("pixels ", r.begin, " to ", r.end - 1, of_x ? " of N*H*W = " : " of N*P*Q = ",
                  pb.N * image, r.size() % kChunk == 0 ? " (chunks of 512)" : ""),
              true);
}

std::vector<Fault> find_ranges(const Evidence& evidence, const Sample& sample) {
  const WgradProblem& pb = evidence.problem();
  const Finder finder(evidence, sample);
  std::vector<Fault> result;
  int usual = kForms;
  for (const bool doubled : {false, true}) {
    for (const Candidate& c : finder.candidates(doubled ? 1 : -1)) {
      const Range range = {static_cast<std::int64_t>(c.begin), static_cast<std::int64_t>(c.end)};
      const int of_form = form(pb, range);
      // A range of all pixels is a zero or a factor of 2, which fillings name. Less usual forms are
      // left out where a usual one explains the errors.
      if (range.size() == term_count(pb) || of_form > usual) continue;
      usual = of_form;
      const bool images = of_form == 0;
      Reading reading = plain_reading(pb);
      reading.only = range;
      reading.weight = doubled ? 2 : 0;
      result.push_back({cat(doubled ? "doubled_" : "missing_", images ? "image" : "pixels"),
                        range_text(pb, range, false, doubled ? "counted twice" : "left out"),
                        doubled ? "parts of the sum that overlap, or a buffer that was not cleared"
                                : "a loop or a split of K that ends too early, or a race",
                        reading});
      result.back().bits = images ? std::log2(static_cast<double>(pb.N))
                                  : 2 * std::log2(static_cast<double>(term_count(pb)));
    }
  }
  return result;
}

}  // namespace convgrad::diagnosis
