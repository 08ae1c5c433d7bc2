// layering.cpp - flag, CONVGRAD_* variable, --config file, default: in this order. CLI11's own
// config support lets the file win over the environment, ignores unknown keys and reads broken TOML
// in silence, so both layers are applied here, to options that are still empty.
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <CLI/Option.hpp>
#include <CLI/StringTools.hpp>
#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/suggest.hpp"
#include "convgrad/error.hpp"
#include "files/text_file.hpp"
#include "options/arguments.hpp"
#include "options/bind_options.hpp"
#include "options/options.hpp"
#include "options/refuse.hpp"

namespace convgrad::cli {
namespace {

using Names = std::set<std::string>;

const Names kNeverLayered = {"help", "version", "config", "json"};

// Options that answer the same question: one of them in a higher layer silences the others below.
const std::vector<Names> kAlternatives = {{"kernel", "filter-sizes", "filter-like"},
                                          {"rtol", "atol", "max-ulp", "bitwise"},
                                          {"sample", "reference"},
                                          {"quiet", "verbose"}};

class Layers {
 public:
  Layers(CLI::App& app, CLI::App& command, Options& options)
      : app_(app), command_(command), options_(options) {
    for (const CLI::App* owner : {&app, &command}) {
      for (const CLI::Option* option : owner->get_options()) {
        if (option->count() > 0 && !option->get_lnames().empty()) {
          settle(option->get_lnames().front());
        }
      }
    }
    const Names given = settled_;
    // Explicit paddings imply EXPLICIT, and any other padding has none.
    if (settled_.count("explicit-paddings") != 0) settled_.insert("padding");
    const std::string padding = CLI::detail::to_lower(options.problem.padding);
    if (!padding.empty() && padding != "explicit") settled_.insert("explicit-paddings");
    // A flag that says where bench's problems come from silences the other ways.
    const Names shape = {"input-shape", "shape", "out-channels", "multiplier"},
                files = {"input", "out-backprop"};
    for (const auto& [rivals, others] :
         {std::pair{Names{"suite"}, Names{"input-shape", "problem", "input", "out-backprop"}},
          {Names{"problem"}, {"input-shape", "shape", "suite", "input", "out-backprop"}},
          {shape, {"suite", "problem", "input", "out-backprop"}},
          {files, {"suite", "input-shape", "problem"}}}) {
      for (const std::string& name : rivals) {
        if (given.count(name) != 0) settled_.insert(others.begin(), others.end());
      }
    }
    // Meant for jobs that compute.
    if (command.get_name() == "verify" || command.get_name() == "generate") {
      settled_.insert({"output", "accumulate", "no-clobber", "raw"});
    }
  }

  void apply_environment() {
    Names found;
    for (CLI::Option* option : command_.get_options()) {
      if (option->get_lnames().empty()) continue;
      const std::string& name = option->get_lnames().front();
      if (kNeverLayered.count(name) != 0 || settled_.count(name) != 0) continue;
      const std::string variable = variable_name(name);
      const char* value = std::getenv(variable.c_str());
      if (value == nullptr || *value == '\0') continue;
      set(*option, name, {value}, variable);
      options_.variables.emplace_back(variable, value);
      found.insert(name);
    }
    for (const std::string& name : found) settle(name);
  }

  void apply_config(const std::string& path) {
    const toml::table document = parse(path);
    for (const auto& [key, value] : document) {
      const toml::table* section = value.as_table();
      if (section != nullptr) apply_section(path, std::string(key.str()), *section);
    }
    // The command's own section wins over what stands above all sections.
    for (const std::string& name : from_section_) settle(name);
    for (const auto& [key, value] : document) {
      if (!value.is_table()) apply_key(path, app_, "", std::string(key.str()), value);
    }
  }

 private:
  static std::string variable_name(const std::string& option) {
    std::string name = "CONVGRAD_" + option;
    for (char& c : name) {
      c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return name;
  }

  void settle(const std::string& name) {
    settled_.insert(name);
    for (const Names& names : kAlternatives) {
      if (names.count(name) != 0) settled_.insert(names.begin(), names.end());
    }
  }

  // Sets an option from words that came from `origin`, through the same checks as a flag.
  void set(CLI::Option& option, const std::string& name, const std::vector<std::string>& words,
           const std::string& origin) {
    options_.origins["--" + name] = origin;
    set_option(option, name, words);
  }

  static std::string line_of(const toml::source_region& source) {
    return source.begin.line > 0 ? cat(", line ", source.begin.line) : "";
  }

  static toml::table parse(const std::string& path) {
    const std::string text = read_text(path, {"--config: ", "a TOML file"});
    try {
      return toml::parse(text);
    } catch (const toml::parse_error& error) {
      bad_input("--config: ", path, line_of(error.source()), ": ", error.description());
    }
  }

  void apply_section(const std::string& path, const std::string& section,
                     const toml::table& table) {
    CLI::App* owner = section == "compute" ? &app_ : nullptr;
    std::vector<std::string> names = {"compute"};
    for (CLI::App* sub : app_.get_subcommands([](CLI::App*) { return true; })) {
      if (sub->get_name() == section) owner = sub;
      names.push_back(sub->get_name());
    }
    if (owner == nullptr) {
      bad_input("--config: ", path, line_of(table.source()), ": section '", section,
                "' is unknown, expected ", join_or(names), did_you_mean(section, names));
    }
    for (const auto& [key, value] : table) {
      apply_key(path, *owner, section, std::string(key.str()), value);
    }
  }

  void apply_key(const std::string& path, const CLI::App& owner, const std::string& section,
                 const std::string& key, const toml::node& value) {
    const std::string name = with_hyphens("--" + key).substr(2);
    const std::string origin = cat(path, ": ", section, section.empty() ? "" : ".", key);
    if (kNeverLayered.count(name) != 0) {
      bad_input("--config: ", origin, " can only be given as a flag");
    }
    if (owner.get_option_no_throw("--" + name) == nullptr) {
      std::vector<std::string> names = option_names(owner);
      for (std::string& word : names) word = word.substr(2);
      bad_input("--config: ", path, line_of(value.source()), ": '", section,
                section.empty() ? "" : ".", key, "' is not an option", did_you_mean(name, names));
    }
    std::vector<std::string> words = words_of(value, origin);
    CLI::Option* option = command_.get_option_no_throw("--" + name);
    const bool applies = option != nullptr && (section.empty() || &owner == &command_);
    if (!applies || settled_.count(name) != 0) return;
    // An array for an option of one word is a list with commas, not its last element.
    const bool again = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    if (option->get_items_expected_max() == 1 && !again) words = {joined(words, ",")};
    set(*option, name, words, origin);
    if (!section.empty()) from_section_.insert(name);
  }

  static std::vector<std::string> words_of(const toml::node& value, const std::string& origin) {
    if (const auto* array = value.as_array()) {
      std::vector<std::string> words;
      for (const toml::node& element : *array) {
        std::ranges::copy(words_of(element, origin), std::back_inserter(words));
      }
      if (words.empty()) words.emplace_back("[]");
      return words;
    }
    if (const auto* text = value.as_string()) return {text->get()};
    if (const auto* whole = value.as_integer()) return {std::to_string(whole->get())};
    if (const auto* truth = value.as_boolean()) return {truth->get() ? "true" : "false"};
    if (const auto* real = value.as_floating_point()) {
      char digits[40];
      std::snprintf(digits, sizeof digits, "%.17g", real->get());
      return {digits};
    }
    bad_input("--config: ", origin, ", expected a string, a number, true, false or an array");
  }

  CLI::App& app_;
  CLI::App& command_;
  Options& options_;
  Names settled_;       // answered by a layer above the one that is being applied
  Names from_section_;  // answered by the command's section of the file
};

}  // namespace

void apply_environment_and_config(CLI::App& app, CLI::App& command, Options& options) {
  const CLI::Option* flag = command.get_option_no_throw("--config");
  if (flag != nullptr && flag->count() > 0 && options.config.empty()) {
    misuse("--config: empty, expected a TOML file");
  }
  Layers layers(app, command, options);
  layers.apply_environment();
  std::string config = options.config;
  const char* variable = std::getenv("CONVGRAD_CONFIG");
  if (config.empty() && variable != nullptr && *variable != '\0') {
    config = variable;
    options.variables.emplace_back("CONVGRAD_CONFIG", config);
  }
  if (!config.empty()) layers.apply_config(config);
}

}  // namespace convgrad::cli
