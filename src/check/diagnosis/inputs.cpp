// inputs.cpp - finds by the form of the errors that x or dy are rounded before they are multiplied.
#include <algorithm>
#include <cmath>
#include <vector>

#include "check/diagnosis.hpp"
#include "check/diagnosis/faults.hpp"
#include "check/groups.hpp"
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
constexpr Sought kSought = {1.0 / 4, kLeastSize, 16};

// Some entries, spread evenly.
struct Entries {
  Entries(const Suspect& suspect, std::size_t count) : out(suspect.problem.out_dtype) {
    const std::vector<std::size_t> at = spread_positions(suspect.got.size(), count);
    for (const std::size_t each : at) indices.push_back(index_at(suspect.indices, each));
    got = picked(suspect.got, at);
    expected = picked(suspect.expected, at);
  }

  // Returns what their errors would be by each of the faults.
  std::vector<std::vector<double>> lost_by(const std::vector<Fault>& faults,
                                           const Images& images) const {
    std::vector<std::vector<double>> lost;
    for (Expected& predicted : diagnosis::predictions(faults, indices, images, true)) {
      lost.push_back(std::move(predicted.values));
      std::ranges::transform(lost.back(), expected.values, lost.back().begin(), std::minus<>());
    }
    return lost;
  }

  EntryErrors errors() const { return errors_of(indices, expected, got, out); }

  DType out;
  std::vector<std::int64_t> indices;
  std::vector<double> got;
  Expected expected;
};

}  // namespace

std::optional<Structure> rounded_inputs(const Suspect& suspect, const Images& images,
                                        double multiply_adds) {
  const WgradProblem& pb = suspect.problem;
  // Types of 8 bits are left to the diagnosis: they lose more than the errors of any order.
  const std::vector<Fault> faults = diagnosis::roundings(pb);
  if (faults.empty()) return {};
  const Entries first(suspect, kFirst);
  const std::vector<std::vector<double>> each = first.lost_by(faults, images);
  const EntryErrors first_errors = first.errors();
  std::vector<Fault> left;
  for (std::size_t f = 0; f < faults.size(); ++f) {
    Products both;
    for (std::size_t i = 0; i < first_errors.count; ++i) {
      both.add(first_errors.at(i).error, each[f][i]);
    }
    const double part = std::sqrt(both.pattern / both.errors);
    if (part >= kLeastPart && part <= kMostPart) left.push_back(faults[f]);
  }
  if (left.empty()) return {};
  const double cost = static_cast<double>(term_count(pb)) * static_cast<double>(left.size());
  const double affordable = std::min(multiply_adds / cost, static_cast<double>(kMostEntries));
  const Entries more(suspect, std::max(kLeastEntries, static_cast<std::size_t>(affordable)));
  const EntryErrors errors = more.errors();
  const std::vector<std::vector<double>> lost = more.lost_by(left, images);
  std::optional<Structure> found;
  for (std::size_t f = 0; f < left.size(); ++f) {
    auto like = resemblance(pb, errors, lost[f], kSought, Expected::Bias::none);
    if (!like || like->kind != GroupKind::all) continue;
    if (like->size < 0 || like->size > kMostSize) continue;
    if (found && found->bits >= like->bits) continue;
    found = std::move(like);
    found->form = Structure::Form::inputs;
    found->text = left[f].text;
  }
  return found;
}

}  // namespace convgrad
