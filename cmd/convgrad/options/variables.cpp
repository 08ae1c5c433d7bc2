// variables.cpp - flag, CONVGRAD_* variable, default: in this order. CLI11 reads the variables, of
// options that no flag gave; what a flag has answered by another option is left out here.
#include <CLI/Option.hpp>
#include <CLI/StringTools.hpp>
#include <algorithm>
#include <cstdlib>
#include <set>

#include "options/arguments.hpp"
#include "options/bind_options.hpp"
#include "options/options.hpp"
#include "options/refuse.hpp"

namespace convgrad::cli {
namespace {

using Names = std::set<std::string>;

// Questions with several ways to answer them: a flag of one way silences the others' variables.
const std::vector<std::vector<Names>> kQuestions = {
    {{"kernel"}, {"filter-sizes"}, {"filter-like"}},
    {{"rtol"}, {"atol"}, {"max-ulp"}, {"bitwise"}},
    {{"quiet"}, {"verbose"}},
    {{"suite"},
     {"problem"},
     {"input-shape", "shape", "out-channels", "multiplier"},
     {"input", "out-backprop"}}};

// The options that flags gave, in front of the command or behind it.
Names given_by_flags(const CLI::App& app, const CLI::App& command) {
  Names given;
  for (const CLI::App* owner : {&app, &command}) {
    for (const CLI::Option* option : owner->get_options()) {
      if (option->count() > 0 && !option->get_lnames().empty()) {
        given.insert(option->get_lnames().front());
      }
    }
  }
  return given;
}

// The options whose variables have no say.
Names silent_ones(const Names& given, const std::string& command, const std::string& padding) {
  Names silent = given;
  silent.insert({"help", "version", "json"});  // never have one
  if (command == "verify" || command == "generate") {
    silent.insert({"output", "accumulate", "no-clobber", "raw"});  // meant for jobs that compute
  }
  // Explicit paddings imply EXPLICIT, and any other padding has none.
  if (given.count("explicit-paddings") != 0) silent.insert("padding");
  if (!padding.empty() && padding != "explicit") silent.insert("explicit-paddings");
  for (const auto& ways : kQuestions) {
    for (const Names& way : ways) {
      if (std::ranges::none_of(way, [&](auto& name) { return given.count(name) != 0; })) continue;
      for (const Names& other : ways) {
        if (&other != &way) silent.insert(other.begin(), other.end());
      }
    }
  }
  return silent;
}

std::string variable_name(const std::string& option) {
  std::string name = "CONVGRAD_" + option;
  for (char& c : name) {
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

}  // namespace

void apply_variables(CLI::App& app, CLI::App& command, std::vector<std::string> arguments,
                     Options& options) {
  const Names silent = silent_ones(given_by_flags(app, command), command.get_name(),
                                   CLI::detail::to_lower(options.problem.padding));
  for (CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    if (silent.count(name) != 0) continue;
    const std::string variable = variable_name(name);
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr || *value == '\0') continue;
    option->envname(variable);
    options.variables["--" + name] = variable;
  }
  if (options.variables.empty()) return;
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    misuse(error.what());
  }
  for (CLI::Option* option : command.get_options()) {
    // From 2.4 on CLI11 leaves a value that does not pass its check out, without a word.
    if (option->count() > 0 || option->get_envname().empty()) continue;
    set_option(*option, option->get_lnames().front(), {std::getenv(option->get_envname().c_str())});
  }
}

}  // namespace convgrad::cli
