// completion.hpp - scripts that teach the command line to shells.
#pragma once

#include <vector>

#include "options/table.hpp"

namespace convgrad::cli {

// The command: the script for a shell on standard output. commands: all of them, bound.
int completion(const CompletionOptions& options, const std::vector<Command>& commands);

}  // namespace convgrad::cli
