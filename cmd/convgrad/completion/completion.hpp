// completion.hpp - scripts that teach the command line to shells.
#pragma once

#include <vector>

#include "options/table.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

// Returns the script for a shell, as text. `commands` are all of them, bound.
ReportPointer completion(const CompletionOptions& options, const std::vector<Command>& commands);

}  // namespace convgrad::cli
