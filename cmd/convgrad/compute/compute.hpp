// compute.hpp - the main job: a gradient from files, on one process or on several.
#pragma once

#include <string>
#include <vector>

#include "convgrad/problem.hpp"
#include "options/options.hpp"
#include "report/command_result.hpp"

namespace convgrad::cli {

// The command.
CommandResult compute(const Options& options);
// The same under mpirun. Ranks but 0 end with SilentEnd (ranks.hpp).
int compute_on_ranks(const Options& options, Json& report);
// The gradient from the parts of --batch-range.
CommandResult reduce(const Options& options);

// Error(usage) for options of the main job that are missing or exclude each other.
void check_compute_options(const Options& options);

// The gradient that --accumulate adds to, in the order of dw_shape().
std::vector<double> read_addend(const Options& options, const WgradProblem& problem);

}  // namespace convgrad::cli
