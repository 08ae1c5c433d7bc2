// commands.hpp - the commands that are a file each. They return the exit status and fill the
// report.
#pragma once

#include "options/options.hpp"
#include "report/command_result.hpp"

namespace convgrad::cli {

CommandResult generate(const Options& options);
CommandResult inspect(const Options& options);
CommandResult info(const Options& options);

}  // namespace convgrad::cli
