// short_help.hpp - what -h says: the usual options, and the names of the others.
#pragma once

#include <CLI/App.hpp>
#include <CLI/FormatterFwd.hpp>
#include <string>

namespace convgrad::cli {

// At most 30 lines; formatter makes the rows.
std::string short_help(const CLI::App& app, const std::string& name,
                       const CLI::Formatter& formatter);

}  // namespace convgrad::cli
