// bind_options.hpp - the options as CLI11 knows them: flags, CONVGRAD_* variables, --config.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "options/options.hpp"

namespace convgrad::cli {

// Binds every option and subcommand of the program.
void bind_options(CLI::App& app, Options& options);

// Fills options that the command line did not give from CONVGRAD_* variables, then from the
// --config file. command is the app or subcommand that runs.
void apply_environment_and_config(CLI::App& app, CLI::App& command, Options& options);

// The long names of an app's options, "--op", "--strides", ...
std::vector<std::string> option_names(const CLI::App& app);

}  // namespace convgrad::cli
