// repro.hpp - a small problem that fails, as files and the command that repeats it.
#pragma once

#include "verify/verify_check.hpp"
#include "verify/verify_report.hpp"

namespace convgrad::cli {

// Error(input) if the folder cannot be made, or holds anything.
void check_repro_folder(const std::string& folder);

// Writes the part of the problem in which the wrong element of subject stands, and of the gradients
// that were compared, to options.verify.save_repro.
Notes save_repro(Job& job, const Options& options, const Judged& judged, const Gradient& subject,
                 const Tolerance& tolerance, std::int64_t wrong);

}  // namespace convgrad::cli
