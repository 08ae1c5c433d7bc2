// compare.hpp - how two arrays differ.
#pragma once

#include "options/options.hpp"
#include "report/command_result.hpp"

namespace convgrad::cli {

// The command.
CommandResult compare(const Options& options);

}  // namespace convgrad::cli
