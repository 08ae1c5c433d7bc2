// verify_pictures.hpp - where a gradient is off: --show, --save-diff and --heatmap.
#pragma once

#include "verify/verify_check.hpp"
#include "verify/verify_report.hpp"

namespace convgrad::cli {

// Error(usage) for files that cannot be written, or with options that they do not fit.
void check_pictures(const Options& options);

// Of the first gradient, against what it was compared with: the elements that are most off, got -
// want and a picture of it, as the options ask for.
Notes pictures(const WgradProblem& problem, const Options& options, const Judged& judged,
               const Tolerance& tolerance, const std::vector<Verdict>& verdicts);

}  // namespace convgrad::cli
