// bind_options.hpp - the options as CLI11 knows them: flags and CONVGRAD_* variables.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "options/options.hpp"

namespace convgrad::cli {

// Binds every option and subcommand of the program.
void bind_options(CLI::App& app, Options& options);

// Gives options from CONVGRAD_* variables where no flag has given them. command: the app or
// subcommand that runs; arguments: what app has parsed, in reverse order, and parses once more.
void apply_variables(CLI::App& app, CLI::App& command, std::vector<std::string> arguments,
                     Options& options);

// The long names of an app's options, "--op", "--strides", ...
std::vector<std::string> option_names(const CLI::App& app);

}  // namespace convgrad::cli
