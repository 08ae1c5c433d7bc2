// compute.hpp - the main job: a gradient from files, on one process or on several.
#pragma once

#include <string>
#include <vector>

#include "convgrad/problem.hpp"
#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

// The exit status; fills the report.
int compute(const Options& options, Json& report);
// The same under mpirun. Ranks but 0 end with SilentEnd (ranks.hpp).
int compute_on_ranks(const Options& options, Json& report);
// The gradient from the parts of --batch-range.
int reduce(const Options& options, Json& report);

// Error(usage) for options of the main job that are missing or exclude each other.
void check_compute_options(const Options& options);

// The gradient that --accumulate adds to, in the order of dw_shape().
std::vector<double> read_addend(const std::string& path, const WgradProblem& problem);

}  // namespace convgrad::cli
