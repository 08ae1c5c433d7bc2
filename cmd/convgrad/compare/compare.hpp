// compare.hpp - how two arrays differ.
#pragma once

#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

// The exit status; fills the report.
int compare(const Options& options, Json& report);

}  // namespace convgrad::cli
