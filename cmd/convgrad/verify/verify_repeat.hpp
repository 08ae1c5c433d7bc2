// verify_repeat.hpp - the same gradient again, with other threads and blocks, bit by bit.
#pragma once

#include "verify/verify_check.hpp"
#include "verify/verify_report.hpp"

namespace convgrad::cli {

// judged.first_run is the first of the runs that --repeat-check asks for. Threads and blocks change
// from run to run unless --threads and --memory-limit fix them.
Notes repeat_check(Job& job, const Options& options, const Judged& judged);

}  // namespace convgrad::cli
