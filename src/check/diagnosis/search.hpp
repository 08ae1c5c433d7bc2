// search.hpp - what the parts of the diagnosis share: the suspect's entries, and whether a value
// would explain them.
#pragma once

#include <optional>

#include "check/diagnosis.hpp"
#include "check/diagnosis/explanations.hpp"
#include "convgrad/compare.hpp"

namespace convgrad::diagnosis {

// Entries of the suspect, by their positions in its arrays.
using Positions = std::vector<std::size_t>;

class Evidence {
 public:
  explicit Evidence(const Suspect& suspect);

  const Suspect& suspect() const { return suspect_; }
  const WgradProblem& problem() const { return suspect_.problem; }
  bool whole() const { return suspect_.indices.empty(); }
  std::size_t size() const { return suspect_.got.size(); }
  std::int64_t index(std::size_t at) const {
    return whole() ? static_cast<std::int64_t>(at) : suspect_.indices[at];
  }
  // Entries whose errors rounding does not explain.
  const Positions& failing() const { return failing_; }

  // Up to count entries: two thirds of them fail, if there are as many. By a fixed seed.
  Positions choose(std::size_t count) const;

  // got[at] is this value, but for rounding of that scale.
  bool fits(std::size_t at, double value, double scale) const;
  // got at these positions is what is predicted for them, one for each, but for rounding: one by
  // one and as a whole. Their errors are far below those against the reference, too.
  bool explained(const Positions& at, const Expected& predicted) const;

 private:
  const Suspect& suspect_;
  Positions failing_, passing_;
};

// What is spent: terms of sums.
struct Budget {
  double left = 0;
  bool take(double cost) {
    if (cost > left) return false;
    left -= cost;
    return true;
  }
};

// The whole gradient times a number.
std::optional<Finding> find_scale(const Evidence& evidence);
// Groups that stand in another order, whatever it is; needs the whole gradient.
std::optional<Explanation> find_group_order(const Evidence& evidence);
// Images that are left out or counted twice, as explanations that are still to be confirmed.
std::vector<Explanation> find_images(const Evidence& evidence, const Positions& entries,
                                     const Plan& images, BlockSource& source, TaskPool& pool);
// Sums that were rounded to a narrower type after each addition.
std::optional<Finding> find_low_precision(const Evidence& evidence, const Plan& images,
                                          BlockSource& source, TaskPool& pool, Budget& budget);

}  // namespace convgrad::diagnosis
