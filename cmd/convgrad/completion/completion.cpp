// completion.cpp - see completion.hpp.
#include "completion/completion.hpp"

#include <CLI/Option.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <set>

#include "base/suggest.hpp"
#include "convgrad/dtype.hpp"
#include "convgrad/error.hpp"
#include "convgrad/kernel.hpp"
#include "options/refuse.hpp"
#include "options/suites.hpp"

namespace convgrad::cli {
namespace {

using Values = std::vector<std::string>;

Values names_of(std::span<const DType> dtypes) {
  Values names;
  for (const DType dtype : dtypes) names.emplace_back(dtype_name(dtype));
  return names;
}

// Of options whose type in the help does not list them.
const std::map<std::string, Values>& known_values() {
  static const Values kStored = names_of(kStoredDTypes);
  static const Values kComputed = names_of(std::span(kStoredDTypes).first<4>());
  static const std::map<std::string, Values> kValues = {
      {"--op", {"conv2d", "depthwise", "conv3d", "conv1d"}},
      {"--padding", {"SAME", "VALID", "EXPLICIT"}},
      {"--data-format", {"NHWC", "NCHW", "NDHWC", "NCDHW", "NWC", "NCW"}},
      {"--filter-format", {"HWIO", "OIHW", "OHWI", "DHWIO", "OIDHW", "ODHWI", "WIO", "OIW", "OWI"}},
      {"--out-dtype", kComputed},
      {"--dtype", kComputed},
      {"--input-dtype", kStored},
      {"--out-backprop-dtype", kStored},
      {"--backend", {"auto", "cpu", "cuda", "reference"}}};
  return kValues;
}

Values algorithm_names() {
  Values names = {"auto"};
  for (const Kernel& kernel : kernels()) names.emplace_back(kernel.name);
  return names;
}

Values split(const std::string& text, char separator) {
  Values parts;
  TextReader stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// What is typed as it stands, unlike FILE and N.
bool is_literal(const std::string& word) {
  return word.size() > 1 && word != "FILE" && word != "DIR" &&
         std::ranges::all_of(
             word, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; });
}

std::string without_suffix(const std::string& text, std::string_view suffix) {
  return text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text;
}

bool is_one_of(const Values& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

void find_values(Completion& completion) {
  using Takes = Completion::Takes;
  const Values parts = split(without_suffix(completion.metavar, "..."), '|');
  const bool is_file = std::ranges::any_of(parts, [](const std::string& part) {
    return part == "FILE" || part == "DIR" || part.starts_with('.');  // .csv, of a|.csv|-
  });
  completion.takes = is_file ? Takes::file : Takes::word;
  if (parts.size() > 1 && std::ranges::all_of(parts, is_literal)) {
    completion.values = parts;
  }
  completion.is_list = completion.metavar.ends_with(",...");
  for (const std::string& name : completion.names) {
    const auto found = known_values().find(name);
    if (found != known_values().end()) completion.values = found->second;
    if (name == "--algorithm") completion.values = algorithm_names();
    if (name == "--suite") completion.values = suite_names();
  }
  const bool has_all =
      is_one_of(completion.names, "--algorithm") || is_one_of(completion.names, "--dtype");
  if (completion.is_list && has_all) completion.values.emplace_back("all");
}

Completion completion_of(const CLI::Option& option) {
  Completion completion;
  for (const std::string& name : option.get_snames()) completion.names.push_back(cat("-", name));
  for (const std::string& name : option.get_lnames()) completion.names.push_back(cat("--", name));
  completion.help = option.get_description();
  const bool is_flag = option.get_expected_max() == 0 || option.get_items_expected_max() == 0;
  if (is_one_of(completion.names, "--json")) {
    completion.takes = Completion::Takes::optional_file;
    completion.metavar = "FILE";
  } else if (!is_flag) {
    completion.metavar = option.get_type_name();
    find_values(completion);
  }
  return completion;
}

CompletedCommand command_of(const CLI::App& app, bool is_root) {
  CompletedCommand command;
  if (!is_root) {
    command.name = app.get_name();
    command.words = {app.get_name()};
    for (const std::string& alias : app.get_aliases()) command.words.push_back(alias);
  }
  command.help = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    const Completion completion = completion_of(*option);
    if (!completion.names.empty()) command.options.push_back(completion);
    if (option->get_positional() && !command.positional) command.positional = completion;
  }
  return command;
}

}  // namespace

std::vector<CompletedCommand> completed_commands(const CLI::App& app) {
  std::vector<CompletedCommand> commands = {command_of(app, true)};
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_group().empty()) commands.push_back(command_of(*sub, false));
  }
  return commands;
}

std::vector<std::string> names_with_value(const std::vector<CompletedCommand>& commands) {
  std::set<std::string> names;
  for (const CompletedCommand& command : commands) {
    for (const Completion& option : command.options) {
      using Takes = Completion::Takes;
      if (option.takes != Takes::word && option.takes != Takes::file) continue;
      names.insert(option.names.begin(), option.names.end());
    }
  }
  return {names.begin(), names.end()};
}

int completion(const Options& options, const CLI::App& app) {
  const std::map<std::string, std::string (*)(const std::vector<CompletedCommand>&)> kShells = {
      {"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}};
  const std::vector<std::string> names = {"bash", "zsh", "fish"};
  const std::string& shell = options.completion_shell;
  if (shell.empty()) misuse("completion: no shell is named, expected ", join_or(names));
  check_known("completion", shell, names);
  std::fputs(kShells.at(shell)(completed_commands(app)).c_str(), stdout);
  return 0;
}

}  // namespace convgrad::cli
