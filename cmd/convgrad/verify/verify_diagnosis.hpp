// verify_diagnosis.hpp - what verify says about a mismatch: which known fault explains it.
#pragma once

#include "verify/verify_check.hpp"
#include "verify/verify_report.hpp"

namespace convgrad::cli {

// After mismatches of these gradients, which are judged's. Reads x and dy again.
Notes diagnose_mismatch(Job& job, const Options& options, const Judged& judged,
                        const std::vector<const Gradient*>& wrong);

}  // namespace convgrad::cli
