// compare.hpp - how two arrays differ.
#pragma once

#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

ReportPointer compare(const CompareOptions& options);

}  // namespace convgrad::cli
