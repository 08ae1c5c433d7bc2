// layering.cpp - flag, CONVGRAD_* variable, --config file, default: in this order. CLI11's own
// config support lets the file win over the environment and ignores unknown keys, so both are
// applied here, to options that are still empty.
#include <CLI/Config.hpp>
#include <CLI/Option.hpp>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "convgrad/error.hpp"
#include "convgrad/suggest.hpp"
#include "options.hpp"

namespace convgrad::cli {
namespace {

const char* const kNeverLayered[] = {"help", "version", "config", "json"};

bool may_be_layered(const std::string& name) {
  return std::find(std::begin(kNeverLayered), std::end(kNeverLayered), name) ==
         std::end(kNeverLayered);
}

bool is_given(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = app.get_option_no_throw("--" + name);
  return option != nullptr && option->count() > 0;
}

// Sets an option from words that came from `origin`, through the same checks as a flag.
void set_option(CLI::Option& option, const std::vector<std::string>& words,
                const std::string& origin) {
  try {
    for (const std::string& word : words) {
      if (option.get_expected_max() == 0) {
        option.add_result(option.get_flag_value(option.get_lnames().front(), word));
      } else {
        option.add_result(word);
      }
    }
    option.run_callback();
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::usage, cat(origin, ": ", error.what()));
  }
}

std::string variable_name(const std::string& option) {
  std::string name = "CONVGRAD_" + option;
  for (char& c : name) {
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

void apply_environment(CLI::App& app, CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    if (!may_be_layered(name) || is_given(app, name) || is_given(command, name)) continue;
    const std::string variable = variable_name(name);
    const char* value = std::getenv(variable.c_str());
    if (value != nullptr && *value != '\0') set_option(*option, {value}, variable);
  }
}

std::vector<CLI::ConfigItem> read_config(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw Error(ErrorKind::input, cat(path, ": cannot read the file that --config names"));
  }
  try {
    return CLI::ConfigTOML().from_config(file);
  } catch (const CLI::Error& error) {
    throw Error(ErrorKind::input, cat(path, ": ", error.what()));
  }
}

CLI::App* find_subcommand(CLI::App& app, const std::string& name) {
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) {
    if (sub->get_name() == name) return sub;
  }
  return nullptr;
}

void apply_config(CLI::App& app, CLI::App& command, const std::string& path) {
  for (const CLI::ConfigItem& item : read_config(path)) {
    if (item.name == "++" || item.name == "--") continue;  // CLI11's marks around a section
    const std::string name = with_hyphens("--" + item.name).substr(2);
    const std::string section = item.parents.empty() ? "" : item.parents.front();
    CLI::App* owner = &app;
    if (!section.empty() && section != "compute") {
      owner = find_subcommand(app, section);
      if (owner == nullptr || item.parents.size() > 1) {
        throw Error(ErrorKind::input, cat(path, ": section '", item.fullname(), "' is unknown"));
      }
    }
    if (owner->get_option_no_throw("--" + name) == nullptr || !may_be_layered(name)) {
      std::vector<std::string> names = option_names(*owner);
      for (std::string& known : names) known = known.substr(2);
      throw Error(ErrorKind::input,
                  cat(path, ": key '", item.fullname(), "' is unknown", did_you_mean(name, names)));
    }
    CLI::Option* option = command.get_option_no_throw("--" + name);
    const bool applies = option != nullptr && (section.empty() || owner == &command);
    if (!applies || is_given(app, name) || is_given(command, name)) continue;
    set_option(*option, item.inputs, cat(path, ": ", item.fullname()));
  }
}

}  // namespace

void apply_environment_and_config(CLI::App& app, CLI::App& command, const Options& options) {
  apply_environment(app, command);
  std::string config = options.config;
  const char* variable = std::getenv("CONVGRAD_CONFIG");
  if (config.empty() && variable != nullptr) config = variable;
  if (!config.empty()) apply_config(app, command, config);
}

}  // namespace convgrad::cli
