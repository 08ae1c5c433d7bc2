// diagnose.cpp - the search: a few entries by every explanation, then many by those that are left.
#include <algorithm>
#include <map>

#include "base/integers.hpp"
#include "check/diagnosis/search.hpp"

namespace convgrad {
namespace diagnosis {
namespace {

constexpr std::size_t kScreened = 6;
constexpr std::size_t kConfirmed = 4096;

using List = std::vector<Explanation>;

class Search {
 public:
  Search(const Suspect& suspect, const Plan& images, BlockSource& source, TaskPool& pool,
         double multiply_adds)
      : evidence_(suspect), images_(images), source_(source), pool_(pool), budget_{multiply_adds} {}

  Diagnosis run() {
    const WgradProblem& pb = evidence_.problem();
    if (evidence_.failing().empty()) return result_;
    ++result_.tried;
    if (const auto scale = find_scale(evidence_)) report(*scale);
    if (term_count(pb) == 0) return result_;
    List list = explanations(pb);
    if (auto order = find_group_order(evidence_)) list.push_back(*order);
    result_.tried += static_cast<std::int64_t>(list.size());
    List left = screened(std::move(list));
    List of_images = screened_images();
    left.insert(left.end(), of_images.begin(), of_images.end());
    confirm(left);
    if (result_.findings.empty()) {
      ++result_.tried;
      const auto sums = find_low_precision(evidence_, images_, source_, pool_, budget_);
      if (sums) report(*sums);
    }
    return result_;
  }

 private:
  double cost(std::size_t entries) const {
    return static_cast<double>(entries) * static_cast<double>(term_count(evidence_.problem()));
  }

  void report(const Finding& finding) {
    if (result_.findings.size() < kMaxFindings) {
      result_.findings.push_back(finding);
    } else {
      ++result_.more;
    }
  }

  bool is_known(const Explanation& e) const {
    return evidence_.whole() && e.moves_only(evidence_.problem());
  }

  // By values that are there: no sums.
  bool known_explains(const Explanation& e, const Positions& at) const {
    const Suspect& s = evidence_.suspect();
    Expected predicted;
    for (const std::size_t position : at) {
      const auto from = static_cast<std::size_t>(e.moved(static_cast<std::int64_t>(position)));
      predicted.values.push_back(s.expected.values[from]);
      predicted.scales.push_back(s.expected.scales[from]);
    }
    return evidence_.explained(at, predicted);
  }

  // Which of the list explain these entries; each sum that several need is formed once.
  std::vector<bool> explained(const List& list, const Positions& at) {
    const WgradProblem& pb = evidence_.problem();
    std::vector<Wanted> wanted;
    std::map<std::pair<std::size_t, EntryTerms>, std::size_t> place;
    std::vector<std::vector<std::size_t>> places(list.size());
    for (std::size_t e = 0; e < list.size(); ++e) {
      if (is_known(list[e])) continue;
      const auto same = [&](const Explanation& other) { return other.reading == list[e].reading; };
      const auto first = std::find_if(list.begin(), list.end(), same) - list.begin();
      for (const std::size_t position : at) {
        const EntryTerms terms = list[e].terms(pb, evidence_.index(position));
        const auto [found, added] =
            place.emplace(std::pair{static_cast<std::size_t>(first), terms}, wanted.size());
        if (added) wanted.push_back({&list[static_cast<std::size_t>(first)].reading, terms});
        places[e].push_back(found->second);
      }
    }
    Expected sums;
    if (!wanted.empty()) sums = sums_of(pb, wanted, images_, source_, pool_);
    std::vector<bool> result;
    for (std::size_t e = 0; e < list.size(); ++e) {
      if (is_known(list[e])) {
        result.push_back(known_explains(list[e], at));
        continue;
      }
      Expected predicted;
      for (const std::size_t i : places[e]) {
        predicted.values.push_back(sums.values[i]);
        predicted.scales.push_back(sums.scales[i]);
      }
      result.push_back(evidence_.explained(at, predicted));
    }
    return result;
  }

  static List kept(const List& list, const std::vector<bool>& keep) {
    List result;
    for (std::size_t e = 0; e < list.size(); ++e) {
      if (keep[e]) result.push_back(list[e]);
    }
    return result;
  }

  // Those that a few entries do not rule out. What does not fit the budget is not tried.
  List screened(List list) {
    const auto summed = [&] {
      return static_cast<std::size_t>(std::count_if(
          list.begin(), list.end(), [&](const Explanation& e) { return !is_known(e); }));
    };
    std::size_t entries = kScreened;
    while (entries > 1 && cost(entries * summed()) > budget_.left / 4) --entries;
    while (!list.empty() && cost(entries * summed()) > budget_.left / 4) {
      const auto last = std::find_if(list.rbegin(), list.rend(),
                                     [&](const Explanation& e) { return !is_known(e); });
      list.erase(std::next(last).base());
      --result_.tried;
      ++result_.untried;
    }
    budget_.take(cost(entries * summed()));
    return kept(list, explained(list, evidence_.choose(entries)));
  }

  List screened_images() {
    if (evidence_.problem().N < 2) return {};
    const bool fits = budget_.take(cost(kScreened));
    ++(fits ? result_.tried : result_.untried);
    if (!fits) return {};
    return find_images(evidence_, evidence_.choose(kScreened), images_, source_, pool_);
  }

  void confirm(const List& list) {
    if (list.empty()) return;
    List known, summed;
    for (const Explanation& e : list) (is_known(e) ? known : summed).push_back(e);
    Positions all(evidence_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    for (const Explanation& e : known) {
      if (known_explains(e, all)) report_once(e, all);
    }
    if (summed.empty()) return;
    const double each = cost(summed.size());
    const double affordable = std::min(budget_.left / 2 / each, static_cast<double>(kConfirmed));
    const Positions some =
        evidence_.choose(std::max(kScreened, static_cast<std::size_t>(affordable)));
    budget_.take(each * static_cast<double>(some.size()));
    const std::vector<bool> keep = explained(summed, some);
    for (std::size_t e = 0; e < summed.size(); ++e) {
      if (keep[e]) report_once(summed[e], some);
    }
  }

  // Not again if one that says the same of every entry stands there already.
  void report_once(const Explanation& e, const Positions& checked) {
    const WgradProblem& pb = evidence_.problem();
    for (const Explanation& other : reported_) {
      const bool same = other.reading == e.reading &&
                        std::all_of(checked.begin(), checked.end(), [&](std::size_t at) {
                          const std::int64_t index = evidence_.index(at);
                          return other.terms(pb, index) == e.terms(pb, index);
                        });
      if (same) return;
    }
    reported_.push_back(e);
    report({e.fault, e.text, Certainty::match, static_cast<std::int64_t>(checked.size())});
  }

  const Evidence evidence_;
  const Plan& images_;
  BlockSource& source_;
  TaskPool& pool_;
  Budget budget_;
  List reported_;
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
  plan.schedule.blocks.chunks = plan.schedule.chunks;
  plan.schedule.blocks.images = {0, images};
  plan.schedule.blocks.axis = 0;
  plan.schedule.blocks.step =
      std::clamp<std::int64_t>(budget_bytes / std::max<std::int64_t>(bytes, 1), 1, images);
  plan.schedule.blocks.pieces = ceil_div(images, plan.schedule.blocks.step);
  plan.schedule.blocks.count = plan.schedule.blocks.pieces;
  return plan;
}

Diagnosis diagnose(const Suspect& suspect, const Plan& images, BlockSource& source, TaskPool& pool,
                   double multiply_adds) {
  return diagnosis::Search(suspect, images, source, pool, multiply_adds).run();
}

}  // namespace convgrad
