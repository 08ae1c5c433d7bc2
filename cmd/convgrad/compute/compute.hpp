// compute.hpp - what the main job has in common on one process and on several.
#pragma once

#include <string>
#include <vector>

#include "convgrad/problem.hpp"
#include "options/options.hpp"

namespace convgrad::cli {

// Error(usage) for options of the main job that are missing or exclude each other.
void check_compute_options(const Options& options);

// The gradient that --accumulate adds to, in the order of dw_shape().
std::vector<double> read_addend(const std::string& path, const WgradProblem& problem);

}  // namespace convgrad::cli
