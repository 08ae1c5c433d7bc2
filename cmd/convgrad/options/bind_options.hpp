// bind_options.hpp - the table of options as CLI11 knows it: flags and CONVGRAD_* variables.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "options/table.hpp"

namespace convgrad::cli {

// Binds every option and command of the table, which must stay where it is.
void bind_options(CLI::App& app, std::vector<Command>& commands);

// Sets a bound option as if the words had been given on the command line, with the same checks.
// `name` is one of its long ones, and Error(usage) names it.
void set_option(const Row& row, const std::string& name, const Words& words);

// Gives a command the options that stand in front of it, which are the main job's, if it has none
// of its own.
void take_options(const Command& main, const Command& command);

// Gives options from CONVGRAD_* variables where no flag has given them, and notes what came from
// where.
void apply_variables(const Command& command);

// Returns the long names of an app's options, "--op", "--strides", ...
std::vector<std::string> option_names(const CLI::App& app);

}  // namespace convgrad::cli
