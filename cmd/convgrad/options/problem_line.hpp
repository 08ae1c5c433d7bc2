// problem_line.hpp - problems as other programs spell them: descriptors of oneDNN's benchdnn, and
// command lines of MIOpenDriver.
#pragma once

#include <string>

#include "options/made_problem.hpp"
#include "options/options.hpp"

namespace convgrad::cli {

// The line is one of theirs, not one of a suite's own columns.
bool is_problem_line(const Words& words);

// What the words say. data_format, unless it is empty, is taken instead of the line's layout.
// Error(usage) names the word that cannot be said here; lead is put in front of it.
MadeRequest parse_problem_line(const Words& words, const std::string& lead,
                               const std::string& data_format = "");

}  // namespace convgrad::cli
