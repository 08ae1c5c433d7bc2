// images.cpp - images that are left out or counted twice: one pass over the data names candidates
// for all of them, from each image's own part of a few entries.
#include <algorithm>
#include <cmath>

#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

// Candidates of each kind; more would only mean that the images hardly differ.
constexpr std::size_t kMostCandidates = 4;

struct Candidates {
  std::vector<std::int64_t> missing, doubled, missing_from, missing_before;
};

void keep(std::vector<std::int64_t>& list, std::int64_t image, bool fits) {
  if (fits && list.size() < kMostCandidates) list.push_back(image);
}

std::string images_text(std::int64_t begin, std::int64_t end) {
  if (end - begin == 1) return cat("image ", begin, " is left out");
  return cat("images ", begin, " to ", end - 1, " are left out");
}

double value_of(const EntrySum& sum) { return sum.run + sum.compensation; }

class Finder {
 public:
  Finder(const Evidence& evidence, const Positions& entries)
      : evidence_(evidence), entries_(entries), before_(entries.size()), image_(entries.size()) {}

  void add(const Block& block, TaskPool& pool) {
    const WgradProblem& pb = evidence_.problem();
    TensorView view = view_of(pb, plain_reading(pb), block);
    for (std::int64_t n = block.pixels[0].begin; n < block.pixels[0].end; ++n) {
      view.images = {n - block.pixels[0].begin, n - block.pixels[0].begin + 1};
      pool.run(static_cast<std::int64_t>(entries_.size()), [&](std::int64_t task, int) {
        const auto i = static_cast<std::size_t>(task);
        const EntryTerms terms = entry_terms(pb, evidence_.index(entries_[i]));
        image_[i] = {};
        with_scalar(pb.dtype, [&](auto scalar) {
          add_terms<decltype(scalar)>(view, terms, {pb, {}}, image_[i]);
        });
      });
      judge(n);
      for (std::size_t i = 0; i < entries_.size(); ++i) before_[i] += value_of(image_[i]);
    }
  }

  const Candidates& found() const { return found_; }

 private:
  void judge(std::int64_t n) {
    const auto fits = [&](const std::function<double(std::size_t, double)>& value) {
      for (std::size_t i = 0; i < entries_.size(); ++i) {
        const double want = evidence_.suspect().expected.values[entries_[i]];
        // Twice the scale: these sums are formed in another order than those that confirm them.
        const double scale = 2 * evidence_.suspect().expected.scales[entries_[i]];
        if (!evidence_.fits(entries_[i], value(i, want), scale)) return false;
      }
      return true;
    };
    keep(found_.missing, n, fits([&](auto i, double want) { return want - value_of(image_[i]); }));
    keep(found_.doubled, n, fits([&](auto i, double want) { return want + value_of(image_[i]); }));
    if (n == 0) return;
    keep(found_.missing_from, n, fits([&](auto i, double) { return before_[i]; }));
    keep(found_.missing_before, n, fits([&](auto i, double want) { return want - before_[i]; }));
  }

  const Evidence& evidence_;
  const Positions& entries_;
  std::vector<double> before_;   // of each entry, the sum of the images before
  std::vector<EntrySum> image_;  // of the present one
  Candidates found_;
};

}  // namespace

std::vector<Explanation> find_images(const Evidence& evidence, const Positions& entries,
                                     const Plan& images, BlockSource& source, TaskPool& pool) {
  const WgradProblem& pb = evidence.problem();
  std::vector<Explanation> result;
  if (pb.N < 2) return result;
  Finder finder(evidence, entries);
  Timing timing;
  stream_blocks(
      images, source, [&](const Block& block, std::int64_t) { finder.add(block, pool); }, timing);
  const auto add_skipped = [&](std::int64_t begin, std::int64_t end) {
    Explanation e;
    e.fault = "missing_image";
    e.text = images_text(begin, end);
    e.reading = plain_reading(pb);
    e.reading.skipped = {begin, end};
    const auto same = [&](const Explanation& other) { return other.reading == e.reading; };
    if (std::none_of(result.begin(), result.end(), same)) result.push_back(e);
  };
  const Candidates& found = finder.found();
  for (const std::int64_t n : found.missing) add_skipped(n, n + 1);
  for (const std::int64_t n : found.missing_from) add_skipped(n, pb.N);
  for (const std::int64_t n : found.missing_before) add_skipped(0, n);
  for (const std::int64_t n : found.doubled) {
    Explanation e;
    e.fault = "doubled_image";
    e.text = cat("image ", n, " is counted twice");
    e.reading = plain_reading(pb);
    e.reading.doubled = n;
    result.push_back(e);
  }
  return result;
}

}  // namespace convgrad::diagnosis
