// structure.hpp - errors that have a form which rounding does not give them, however small they
// are.
#pragma once

#include <optional>
#include <span>

#include "convgrad/compare.hpp"

namespace convgrad {

// Errors of entries, and what is usual for them.
struct EntryErrors {
  std::span<const std::int64_t> indices;  // empty: the whole gradient
  std::span<const double> errors;         // got - want
  std::span<const double> units;
};

// Whether errors resemble a pattern (what would be the errors of a fault) in the gradient, a tap or
// a channel: they are `size` times it. No model of rounding: how many elements there are tells by
// how much errors that know nothing of the pattern resemble it, and the errors themselves how many
// of them are independent. bias is that of right sums.
std::optional<Structure> resemblance(const WgradProblem& problem, const EntryErrors& entries,
                                     std::span<const double> pattern, Structure::Form form,
                                     Expected::Bias bias);

}  // namespace convgrad
