// inputs.cpp - finds by the form of the errors that x or dy are rounded before they are multiplied.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "check/diagnosis.hpp"
#include "check/diagnosis/faults.hpp"
#include "check/groups.hpp"
#include "check/rounding.hpp"
#include "check/sample.hpp"

namespace convgrad {
namespace {

using diagnosis::Fault;

// Every type is tried on the first entries; those whose losses are of the errors' size stay.
constexpr std::size_t kFirst = 8, kMostEntries = 2048, kLeastEntries = 64;
constexpr double kLeastPart = 0.2, kMostPart = 4;
// Errors that are what rounding loses are as large as that, but for what rounding of the sum adds.
constexpr double kLeastSize = 0.5, kMostSize = 1.5;
// They look random in each element, so that a few are enough.
constexpr Sought kSought = {Structure::Form::inputs, 1.0 / 4, kLeastSize, 16};
constexpr double kMostLeft = 1.0 / 16;  // of the squares; a diagnosis asks for the same

// Holds some entries, spread evenly, and computes what their errors would be by each fault.
class Losses {
 public:
  Losses(const Suspect& suspect, std::size_t count) : pb_(suspect.problem) {
    const std::vector<std::size_t> some = spread_positions(suspect.got.size(), count);
    for (const std::size_t at : some) indices_.push_back(index_at(suspect.indices, at));
    got_ = picked(suspect.got, some);
    expected_ = picked(suspect.expected, some);
  }

  // Returns one row for each fault.
  std::vector<std::vector<double>> of(const std::vector<Fault>& faults,
                                      const Images& images) const {
    std::vector<std::vector<double>> lost;
    for (Expected& predicted : diagnosis::predictions(faults, indices_, images)) {
      lost.push_back(std::move(predicted.values));
      std::ranges::transform(lost.back(), expected_.values, lost.back().begin(), std::minus<>());
    }
    return lost;
  }

  // Tells whether what the fault does not explain is as large as the errors of right sums, or
  // little of all errors.
  bool explains(const std::vector<double>& lost) const {
    double sum = 0, all = 0;
    const EntryErrors errors = entries();
    for (std::size_t i = 0; i < lost.size(); ++i) {
      const auto& [error, unit, want] = errors.at(i);
      const double rest = (error - lost[i]) / unit, whole = error / unit;
      sum += rest * rest;
      all += whole * whole;
    }
    const auto count = static_cast<double>(lost.size());
    return sum <= kMostLeft * all ||
           std::sqrt(sum / count) <= Tolerance().slack * group_factor(count);
  }

  double squares_of_errors() const {
    double sum = 0;
    const EntryErrors errors = entries();
    for (std::size_t i = 0; i < errors.count; ++i) sum += std::pow(errors.at(i).error, 2);
    return sum;
  }

  EntryErrors entries() const { return errors_of(indices_, expected_, got_, pb_.out_dtype); }

 private:
  const WgradProblem& pb_;
  std::vector<std::int64_t> indices_;
  std::vector<double> got_;
  Expected expected_;
};

double squares(const std::vector<double>& values) {
  return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
}

}  // namespace

std::optional<Structure> rounded_inputs(const Suspect& suspect, const Images& images,
                                        double multiply_adds) {
  const WgradProblem& pb = suspect.problem;
  // Types of 8 bits are left to the diagnosis: they lose more than the errors of any order.
  const std::vector<Fault> faults = diagnosis::roundings(pb);
  if (faults.empty()) return {};
  const Losses first(suspect, kFirst);
  const std::vector<std::vector<double>> each = first.of(faults, images);
  std::vector<Fault> left;
  for (std::size_t f = 0; f < faults.size(); ++f) {
    const double part = std::sqrt(squares(each[f]) / first.squares_of_errors());
    if (part >= kLeastPart && part <= kMostPart) left.push_back(faults[f]);
  }
  if (left.empty()) return {};
  const double cost = static_cast<double>(term_count(pb)) * static_cast<double>(left.size());
  const double affordable = std::min(multiply_adds / cost, static_cast<double>(kMostEntries));
  const Losses some(suspect, std::max(kLeastEntries, static_cast<std::size_t>(affordable)));
  const std::vector<std::vector<double>> lost = some.of(left, images);
  std::optional<Structure> found;
  for (std::size_t f = 0; f < left.size(); ++f) {
    auto like = resemblance(pb, some.entries(), lost[f], kSought, Expected::Bias::none);
    if (!like || like->kind != GroupKind::all) continue;
    if (like->size < 0 || like->size > kMostSize) continue;
    if (!some.explains(lost[f]) || (found && found->bits >= like->bits)) continue;
    found = std::move(like);
    found->text = left[f].text;
  }
  return found;
}

}  // namespace convgrad
