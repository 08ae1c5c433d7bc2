// verify.hpp - is a gradient right?
#pragma once

#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

// The exit status; fills the report.
int verify(const Options& options, Json& report);

}  // namespace convgrad::cli
