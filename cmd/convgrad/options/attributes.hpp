// attributes.hpp - what the options say of the operation, and of how a gradient is judged.
#pragma once

#include "convgrad/compare.hpp"
#include "convgrad/problem.hpp"
#include "options/options.hpp"

namespace convgrad::cli {

// Throws Error(usage) unless the operation is named.
void check_op(const ProblemOptions& options);
// Throws Error(usage) unless both tensors and the operation, or the whole problem, are named.
void check_required(const ProblemOptions& options);

// Returns the operation and its attributes as they were spelled, for make_problem().
WgradAttributes attributes_of(const ProblemOptions& options);

// Returns the criterion that was asked for, or rounding. Throws Error(usage) if two were.
Tolerance tolerance_of(const CriterionOptions& options);

}  // namespace convgrad::cli
