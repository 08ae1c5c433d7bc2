// verify_runs.hpp - how much the runs of somebody's kernel differ from each other.
#pragma once

#include "verify/verify_check.hpp"
#include "verify/verify_report.hpp"

namespace convgrad::cli {

// Of several --result: whether all have the same bits, or differ as sums in other orders do, or by
// more, which fails.
Notes run_to_run(const WgradProblem& problem, const Judged& judged, const Tolerance& tolerance);

}  // namespace convgrad::cli
