// diagnose.cpp - the search: a few entries by every fault, then many by those that are left.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/integers.hpp"
#include "check/diagnosis/search.hpp"

namespace convgrad {
namespace diagnosis {
namespace {

// These count the entries of each look, of pairs, and of the sample, and the moves that are paired.
// They bound the time, not what is named: the last look decides, and what others rule out is wrong.
constexpr std::size_t kLooks[] = {8, 64}, kConfirmed = 4096, kPairLook = 4;
constexpr std::size_t kSampled = 128, kPairedMoves = 32;
// So many faults are looked at before the time is.
constexpr std::size_t kAtOnce = 64;
// So many sums are confirmed at once, of all faults together: each takes about 100 bytes.
constexpr std::size_t kMostConfirmed = std::size_t{1} << 18;
// A fit is not told from one that is so much better, nor errors of right sums from smaller ones
// (those of float32 sums have 0.1 to 0.7 of the scale: docs/numerics.md).
constexpr double kAsWell = 1.25, kRoundingAlone = 0.2;
// The sample's terms are held: 16 bytes each.
constexpr std::int64_t kMostTerms = std::int64_t{1} << 22;

using List = std::vector<Fault>;

class Search {
 public:
  Search(const Suspect& suspect, const Images& images, double multiply_adds, double seconds,
         bool small)
      : evidence_(suspect, seconds),
        judge_(evidence_),
        images_(images),
        budget_(multiply_adds),
        small_(small) {}

  Diagnosis run() {
    const WgradProblem& pb = evidence_.problem();
    ++result_.tried;
    Fault plain;
    plain.reading = plain_reading(pb);
    // The definition comes first: with a filling it needs no fault and no sum.
    consider(plain, evidence_.all(), predicted_at(plain, evidence_.all()), true);
    if (term_count(pb) > 0) find_all();
    report();
    result_.where = evidence_.where().everything ? "" : evidence_.where().text;
    return result_;
  }

 private:
  struct Fitting {
    Finding finding;
    double rms;
    std::size_t complexity;  // faults that it takes, twice, and one more for a place
    bool rare = false;
    bool rounds_result = false;  // once, whatever else there is
  };

  // Says when a finder is called: whatever fits already, unless one fault that holds everywhere
  // fits, or if none does.
  enum class Stage : std::uint8_t { always, unsettled, unfitted };
  struct Finder {
    Stage stage;
    bool needs_sample;
    std::function<void()> find;
  };

  // Calls the finders: the surest and cheapest first.
  void find_all() {
    const WgradProblem& pb = evidence_.problem();
    keep(find_stopped(evidence_));
    // The sample comes first: of large problems, faults take all of the budget that is left.
    const Sample sample = sampled();
    // Scales, which facts are for, make larger errors.
    const Facts facts = small_ ? Facts() : facts_of(images_);
    const List faults = small_ ? roundings(pb) : known_faults(pb, facts);
    images_.before_block = [&] { evidence_.stop_if_late(); };
    const Finder finders[] = {
        {Stage::always, true, [&] { try_found(find_lost_pixels(evidence_, sample)); }},
        {Stage::always, false, [&] { try_parts(faults, Stage::always); }},
        {Stage::unsettled, false, [&] { try_each(find_slices(evidence_)); }},
        // Sums that repeat to the bit leave no doubt, so these are looked for besides what fits.
        {Stage::always, true,
         [&] { keep(find_partials(judge_, sample, settled() || rounded_once())); }},
        {Stage::unsettled, true, [&] { try_found(find_alternatives(evidence_, sample)); }},
        {Stage::unfitted, true, [&] { keep(find_winograd(judge_, sample, images_)); }},
        {Stage::unfitted, false, [&] { try_parts(block_scales(pb, facts), Stage::unfitted); }},
        {Stage::unfitted, false, [&] { try_pairs(faults); }}};
    for (const Finder& finder : finders) {
      if (finder.needs_sample && sample.at.empty()) continue;
      if (finder.stage == Stage::unsettled && settled()) continue;
      if (finder.stage == Stage::unfitted && (!fits_.empty() || small_)) continue;
      timely(finder.find);
    }
  }

  // Calls what Late may end, which tries so many: what it has found by then is kept.
  void timely(const std::function<void()>& part, std::int64_t count = 1) {
    const std::int64_t tried = result_.tried;
    try {
      evidence_.stop_if_late();
      part();
    } catch (const Late&) {
      result_.tried = tried;
      result_.untried += count;
    }
  }

  void try_found(const List& list) {
    ++result_.tried;
    confirm(list);
  }
  void keep(const std::optional<Finding>& found) {
    ++result_.tried;
    if (found) fits_.push_back({*found, 0, 1});
  }

  double cost(std::size_t entries) const {
    return static_cast<double>(entries) * static_cast<double>(term_count(evidence_.problem()));
  }

  // One fault that holds everywhere is enough.
  bool settled() const {
    return std::ranges::any_of(fits_, [](const Fitting& fit) { return fit.complexity <= 2; });
  }

  // One rounding of the result comes before the thousands of ways to round its parts.
  bool rounded_once() const { return std::ranges::any_of(fits_, &Fitting::rounds_result); }

  // Predicts by values that are there, without sums, what only moves.
  Expected predicted_at(const Fault& f, const Positions& at) const {
    Expected predicted;
    for (const std::size_t position : at) {
      const std::size_t from =
          f.moved ? static_cast<std::size_t>(f.moved(static_cast<std::int64_t>(position)))
                  : position;
      predicted.values.push_back(evidence_.want(from));
      predicted.scales.push_back(evidence_.scale(from));
    }
    return predicted;
  }

  std::vector<Expected> predicted(const List& list, const Positions& at) {
    std::vector<std::int64_t> indices;
    for (const std::size_t position : at) indices.push_back(evidence_.index(position));
    budget_ -= cost(list.size() * at.size());
    return predictions(list, indices, images_);
  }

  // Keeps the fault if it explains these entries.
  void consider(const Fault& f, const Positions& at, const Expected& values, bool plain = false) {
    const auto fit = judge_.judge(at, values, f.bits, plain);
    if (!fit || is_reported(f, *fit, at)) return;
    // Beside what was read off the gradient, a fault that changes nothing explains nothing.
    if (!plain && !fit->parts.empty() && changes_nothing(at, values)) return;
    // An attribute of all taps is not another one for some of them.
    const Reading own = plain_reading(evidence_.problem());
    if (!fit->only.empty() && f.reading.axis != own.axis && evidence_.in_some_taps()) return;
    const std::size_t faults = fit->parts.size() + static_cast<std::size_t>(plain ? 0 : f.faults);
    const bool only_rounds = f.faults == 1 && rounds(f.reading);
    fits_.push_back(
        {finding({f.name, f.text, f.cause, only_rounds}, *fit, Certainty::match, at.size()),
         fit->rms, 2 * faults + (fit->only.empty() ? 0 : 1), f.rare,
         std::ranges::any_of(fit->parts, &Fit::Part::rounds)});
    if (fit->parts.empty()) reported_.push_back(f);
  }

  bool changes_nothing(const Positions& at, const Expected& predicted) const {
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double change = std::fabs(predicted.values[i] - evidence_.want(at[i]));
      if (!(change <= kRight * evidence_.scale(at[i]))) return false;
    }
    return true;
  }

  // Tells whether one that says the same of every entry stands there already.
  bool is_reported(const Fault& f, const Fit& fit, const Positions& at) const {
    const WgradProblem& pb = evidence_.problem();
    const auto says_the_same = [&](const Fault& other) {
      return other.reading == f.reading && std::ranges::all_of(at, [&](std::size_t position) {
               const std::int64_t index = evidence_.index(position);
               return other.terms(pb, index) == f.terms(pb, index);
             });
    };
    return fit.parts.empty() && std::ranges::any_of(reported_, says_the_same);
  }

  // Returns those that a few entries do not rule out. Each look may spend a quarter of what is
  // left, so that later ones have theirs; faults beyond that are not tried, the last ones first.
  List screened(List list, std::size_t entries) {
    while (entries > kPairLook && cost(entries * list.size()) > budget_ / 4) --entries;
    while (!list.empty() && cost(entries * list.size()) > budget_ / 4) {
      list.pop_back();
      --result_.tried;
      ++result_.untried;
    }
    const Positions at = evidence_.choose(entries);
    const std::vector<Expected> values = predicted(list, at);
    List left;
    for (std::size_t f = 0; f < list.size(); ++f) {
      if (judge_.judge(at, values[f], 0, false, true)) left.push_back(list[f]);
    }
    return left;
  }

  void try_each(const List& list) {
    result_.tried += static_cast<std::int64_t>(list.size());
    const Positions some = evidence_.choose(kLooks[1]);
    List summed;
    for (const Fault& f : list) {
      if (!evidence_.whole() || !f.moves_only(evidence_.problem())) {
        summed.push_back(f);
      } else if (judge_.judge(some, predicted_at(f, some), 0, false, true)) {
        consider(f, evidence_.all(), predicted_at(f, evidence_.all()));
      }
    }
    for (const std::size_t entries : kLooks) summed = screened(std::move(summed), entries);
    confirm(summed);
  }

  // Looks at the time between parts of the list; ends early where the stage says so.
  void try_parts(const List& list, Stage stage) {
    for (auto first = list.begin(); first != list.end();) {
      if (stage == Stage::unfitted && !fits_.empty()) return;
      const auto count = std::min<std::ptrdiff_t>(kAtOnce, list.end() - first);
      timely([&] { try_each({first, first + count}); }, count);
      first += count;
    }
  }

  void confirm(const List& list) {
    if (list.empty()) return;
    const double affordable = std::max(budget_, 0.0) / 2 / cost(list.size());
    const bool whole = static_cast<double>(evidence_.size()) <= affordable &&
                       evidence_.size() * list.size() <= kMostConfirmed;
    const auto some = static_cast<std::size_t>(std::min(affordable, 1.0 * kConfirmed));
    const Positions at = whole ? evidence_.all() : evidence_.choose(std::max(kLooks[0], some));
    const std::vector<Expected> values = predicted(list, at);
    for (std::size_t f = 0; f < list.size(); ++f) consider(list[f], at, values[f]);
  }

  // Tries faults that only move entries together with another one.
  void try_pairs(const List& faults) {
    const WgradProblem& pb = evidence_.problem();
    List moves, others;
    for (const Fault& f : faults) {
      if (f.moves_only(pb)) moves.push_back(f);
      if (!f.moved && !f.rare) others.insert(others.begin(), f);  // those of precision first
    }
    moves.resize(std::min(moves.size(), kPairedMoves));
    List pairs;
    // A move goes with any reading; two readings do not go together.
    for (const Fault& other : others) {
      for (const Fault& move : moves) {
        Fault& pair = pairs.emplace_back(other);
        pair.name = move.name + "+" + other.name;
        pair.text = move.text + ", and " + other.text;
        const bool both = !move.cause.empty() && !other.cause.empty();
        pair.cause = move.cause + (both ? "; " : "") + other.cause;
        pair.moved = move.moved;
        pair.faults = 2;
      }
    }
    result_.tried += static_cast<std::int64_t>(pairs.size());
    confirm(screened(screened(std::move(pairs), kPairLook), kLooks[1]));
  }

  Sample sampled() {
    const std::int64_t count = term_count(evidence_.problem());
    const auto entries = static_cast<std::size_t>(std::max<std::int64_t>(
        0, std::min<std::int64_t>({kMostTerms / count, std::int64_t{kSampled},
                                   static_cast<std::int64_t>(budget_ / 8 / cost(1))})));
    if (entries == 0) ++result_.untried;
    Sample sample = {evidence_.choose(entries), {}};
    // The first entries rule most out, where they have errors.
    std::ranges::stable_sort(sample.at, [&](std::size_t a, std::size_t b) {
      return evidence_.error(a) > evidence_.error(b);
    });
    std::vector<EntryTerms> wanted;
    for (const std::size_t position : sample.at) {
      wanted.push_back(entry_terms(evidence_.problem(), evidence_.index(position)));
    }
    budget_ -= cost(wanted.size());
    if (!wanted.empty()) sample.terms = terms_of(wanted, images_);
    return sample;
  }

  // Tells whether one before this rare one, usual or of its kind, is as simple and fits as well.
  bool is_shadowed(const Fitting& rare) const {
    return rare.rare && std::any_of(fits_.data(), &rare, [&](const Fitting& fit) {
             return (!fit.rare || fit.finding.fault == rare.finding.fault) &&
                    fit.complexity == rare.complexity &&
                    fit.rms <= kAsWell * std::max(rare.rms, kRoundingAlone);
           });
  }

  // Reports the simplest that fit, and of these the ones that fit about as well as the best.
  void report() {
    if (fits_.empty()) return;
    const Fitting& best = *std::ranges::min_element(
        fits_, {}, [](const Fitting& fit) { return std::pair(fit.complexity, fit.rms); });
    for (const Fitting& fit : fits_) {
      if (fit.complexity > best.complexity || fit.rms > std::max(1.5, 2 * best.rms)) continue;
      if (!is_shadowed(fit)) result_.findings.push_back(fit.finding);
    }
    const std::size_t shown = std::min(result_.findings.size(), kMaxFindings);
    result_.more = static_cast<std::int64_t>(result_.findings.size() - shown);
    result_.findings.resize(shown);
    for (Finding& finding : result_.findings) {
      const bool checked = finding.checked == static_cast<std::int64_t>(evidence_.size());
      finding.covers_all = checked || (finding.only_rounds && evidence_.is_even());
    }
  }

  const Evidence evidence_;
  const Judge judge_;
  Images images_;
  double budget_;  // multiply-adds that are left
  const bool small_;
  List reported_;
  std::vector<Fitting> fits_;
  Diagnosis result_;
};

}  // namespace
}  // namespace diagnosis

Plan image_plan(const WgradProblem& problem, std::int64_t budget_bytes) {
  Plan plan;
  plan.problem = problem;
  plan.schedule.chunks = chunk_grid(problem);
  if (plan.schedule.chunks.count == 0) return plan;
  const std::int64_t images = std::max<std::int64_t>(problem.N, 1);
  const std::int64_t bytes =
      (problem.x_count() + problem.dy_count()) / images * dtype_bytes(problem.dtype);
  BlockGrid& blocks = plan.schedule.blocks;
  blocks.chunks = plan.schedule.chunks;
  blocks.images = {0, images};
  blocks.step =
      std::clamp<std::int64_t>(budget_bytes / std::max<std::int64_t>(bytes, 1), 1, images);
  blocks.count = blocks.pieces = ceil_div(images, blocks.step);
  return plan;
}

Diagnosis diagnose(const Suspect& suspect, const Images& images, double multiply_adds,
                   double seconds, bool small) {
  return diagnosis::Search(suspect, images, multiply_adds, seconds, small).run();
}

}  // namespace convgrad
