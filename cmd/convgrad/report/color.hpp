// color.hpp - colours for people at a terminal, and the lines on standard error that carry them.
#pragma once

#include <string>

#include "options/options.hpp"

namespace convgrad::cli {

// May this stream (STDOUT_FILENO, STDERR_FILENO) be coloured? always and never say it themselves.
// auto, the default: it is a terminal, TERM is not dumb, and NO_COLOR (https://no-color.org) is
// not set, or empty.
bool is_colored(const Options& options, int stream);

// "MATCH: ..." and "MISMATCH: ..." with the verdict in colour where standard output may have it.
std::string colored_verdict(const Options& options, const std::string& text);

// The line "convgrad: KIND: MESSAGE" on standard error. Kind: error, or what --quiet
// leaves out: warning, note, ...
void say(const Options& options, const std::string& kind, const std::string& message);

}  // namespace convgrad::cli
