// faults.hpp - the faults that are tried, but those that only the gradient or the data can name.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "check/diagnosis/reading.hpp"

namespace convgrad::diagnosis {

// What it is, what usually brings it about, and what the gradient becomes. The entry at `index` is
// then that of the definition at moved(index), summed over other channels or by another reading.
struct Fault {
  using Map = std::function<std::int64_t(std::int64_t)>;

  std::string name, text, cause;
  Reading reading;
  // Of indices in [tap][c][k] order, and of channels; null: stays.
  Map moved = nullptr, x_channel = nullptr, dy_channel = nullptr;
  double bits = 0;  // of what the search has read off the gradient to name it

  // Only entries change places: their values are known where the gradient is.
  bool moves_only(const WgradProblem& problem) const;
  EntryTerms terms(const WgradProblem& problem, std::int64_t index) const;
};

// All that differ from the definition for this problem.
std::vector<Fault> known_faults(const WgradProblem& problem);

}  // namespace convgrad::diagnosis
