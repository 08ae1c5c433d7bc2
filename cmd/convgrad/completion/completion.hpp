// completion.hpp - scripts that teach the command line to shells.
#pragma once

#include <CLI/App.hpp>

#include "options/options.hpp"

namespace convgrad::cli {

// The command: the script for a shell on standard output. app: the whole program.
int completion(const Options& options, const CLI::App& app);

}  // namespace convgrad::cli
