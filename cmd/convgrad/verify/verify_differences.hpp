// verify_differences.hpp - where a gradient is off: --show and --save-diff.
#pragma once

#include "verify/verify_check.hpp"
#include "verify/verify_report.hpp"

namespace convgrad::cli {

// Error(usage) for a file that cannot be written, or with options that it does not fit.
void check_differences(const Options& options);

// Of the first gradient, against what it was compared with: the elements that are most off, and
// got - want as a file, as the options ask for.
Notes differences(const WgradProblem& problem, const Options& options, const Judged& judged,
                  const Tolerance& tolerance);

}  // namespace convgrad::cli
