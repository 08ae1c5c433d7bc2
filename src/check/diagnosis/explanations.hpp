// explanations.hpp - the faults that the diagnosis tries.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "check/diagnosis/reading.hpp"

namespace convgrad::diagnosis {

// A fault: what it is, and what the gradient becomes. The entry at `index` is then that of the
// definition at moved(index), summed over other channels or by another reading.
struct Explanation {
  using Map = std::function<std::int64_t(std::int64_t)>;

  std::string fault, text;
  Reading reading;
  // Of indices in [tap][c][k] order, and of channels; null: stays.
  Map moved = nullptr, x_channel = nullptr, dy_channel = nullptr;

  // Only entries change places: their values are known where the gradient is.
  bool moves_only(const WgradProblem& problem) const;
  EntryTerms terms(const WgradProblem& problem, std::int64_t index) const;
};

// All that differ from the definition for this problem, but those that need the data or the
// gradient to be named: a missing image, a scale, groups in any order.
std::vector<Explanation> explanations(const WgradProblem& problem);

}  // namespace convgrad::diagnosis
