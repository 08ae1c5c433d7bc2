// problem_flags.hpp - a problem as the flags that say it.
#pragma once

#include <string>

#include "convgrad/problem.hpp"

namespace convgrad::cli {

// "--op conv2d --filter-sizes 3,3,8,16 --strides 2,2 --padding same ...": everything but the files
// and the dtypes; what is the default is left out. padding as it was spelled, or "" for explicit
// paddings.
std::string problem_flags(const WgradProblem& problem, const std::string& padding = "");

// The same of a problem whose tensors are made, with x's shape and the dtypes that are not the
// default: for bench and generate.
std::string made_flags(const WgradProblem& problem);

}  // namespace convgrad::cli
