// verify.hpp - is a gradient right?
#pragma once

#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

// The command.
int verify(const Options& options, Json& report);

}  // namespace convgrad::cli
