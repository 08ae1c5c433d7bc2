// variables.cpp - flag, CONVGRAD_* variable, default: in this order; see bind_options.hpp.
#include <CLI/StringTools.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "options/bind_options.hpp"

namespace convgrad::cli {
namespace {

// Returns true if a flag is another way to answer an option's question.
bool silences(const Row& flag, const Row& row) {
  const auto way = [](const Row& one) { return *one.traits.way ? one.traits.way : one.name(); };
  return *row.traits.question && way(flag) != way(row) &&
         std::string(flag.traits.question) == row.traits.question;
}

std::string variable_of(const std::string& name) {
  std::string variable = "CONVGRAD_" + name;
  for (char& c : variable) {
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

}  // namespace

void take_options(const Command& main, const Command& command) {
  for (const Row& row : main.rows) {
    const Row* own = command.rows.find(row.name());
    if (row.option->count() == 0 || own == nullptr || own->option->count() > 0) continue;
    set_option(*own, own->name(), row.option->results());
  }
}

void apply_variables(const Command& command) {
  Options& options = command.options;
  std::vector<const Row*> flags;
  for (const Row& row : command.rows) {
    if (row.option->count() == 0 || row.name().empty()) continue;
    flags.push_back(&row);
    options.given.push_back({"--" + row.name(), row.traits.about});
  }
  const bool is_explicit = CLI::detail::to_lower(options.problem.padding) == "explicit";
  for (const Row& row : command.rows) {
    const std::string name = row.name(), variable = variable_of(name);
    const char* const value = std::getenv(variable.c_str());
    if (!row.traits.variable || name.empty() || value == nullptr || *value == '\0') continue;
    if (row.option->count() > 0) continue;
    // Explicit paddings imply EXPLICIT, and any other padding has none.
    const bool is_asked_for = is_explicit && name == "explicit-paddings";
    const auto is_rival = [&](const Row* flag) { return silences(*flag, row); };
    if (!is_asked_for && std::ranges::any_of(flags, is_rival)) continue;
    options.variables["--" + name] = variable;
    set_option(row, name, {value});
  }
}

}  // namespace convgrad::cli
