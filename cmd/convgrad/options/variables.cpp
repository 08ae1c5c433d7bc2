// variables.cpp - flag, CONVGRAD_* variable, default: in this order; see bind_options.hpp.
#include <CLI/StringTools.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "options/bind_options.hpp"

namespace convgrad::cli {
namespace {

// Whether a flag has answered an option's question, by itself or by another way.
bool answers(const Row& flag, const Row& row) {
  const auto way = [](const Row& one) { return *one.traits.way ? one.traits.way : one.name(); };
  if (flag.name() == row.name()) return true;
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

void apply_variables(const Rows& main, const Rows& rows, Options& options) {
  std::vector<const Row*> flags;
  const auto is_given = [&](const std::string& name) {
    return std::ranges::any_of(flags, [&](const Row* flag) { return flag->name() == name; });
  };
  for (const Rows* owner : {&main, &rows}) {
    for (const Row& row : *owner) {
      if (row.option->count() == 0 || row.name().empty() || is_given(row.name())) continue;
      flags.push_back(&row);
      options.given.push_back({"--" + row.name(), row.traits.about});
    }
  }
  // Explicit paddings imply EXPLICIT, and any other padding has none.
  const bool has_paddings = is_given("explicit-paddings");
  const std::string padding = CLI::detail::to_lower(options.problem.padding);
  for (const Row& row : rows) {
    const std::string name = row.name(), variable = variable_of(name);
    const char* const value = std::getenv(variable.c_str());
    if (!row.traits.variable || name.empty() || value == nullptr || *value == '\0') continue;
    if (std::ranges::any_of(flags, [&](const Row* flag) { return answers(*flag, row); })) continue;
    if (name == "padding" && has_paddings) continue;
    if (name == "explicit-paddings" && !padding.empty() && padding != "explicit") continue;
    options.variables["--" + name] = variable;
    set_option(row, name, {value});
  }
}

}  // namespace convgrad::cli
