// verify.hpp - is a gradient right?
#pragma once

#include "options/options.hpp"
#include "report/command_result.hpp"

namespace convgrad::cli {

// The command.
CommandResult verify(const Options& options);

}  // namespace convgrad::cli
