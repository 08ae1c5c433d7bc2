// completion.hpp - what can be completed on a command line, and scripts that teach it to shells.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <vector>

#include "options/arguments.hpp"

namespace convgrad::cli {

// An option, or a positional argument; names is empty if it is only that.
struct Completion {
  enum class Takes { nothing, word, file, optional_file };

  std::vector<std::string> names;  // "-i", "--input"
  std::string help, metavar;
  Takes takes = Takes::nothing;
  std::vector<std::string> values;  // of a word; empty: any. Of a file: what may stand instead
  bool is_list = false;             // of values with commas between
};

struct CompletedCommand {
  std::string name;                // "" without a subcommand
  std::vector<std::string> words;  // the name and its aliases; empty without
  std::string help;
  std::vector<Completion> options;
  std::optional<Completion> positional;  // the first; others take the same
};

// The program as the parser knows it: first the command without a name, then its subcommands. What
// an option takes follows from its type in the help: FILE and DIR, a|b|c, TYPE,... for a list, and
// the names of this program's types and algorithms.
std::vector<CompletedCommand> completed_commands(const CLI::App& app);

std::string bash_completion(const std::vector<CompletedCommand>& commands);
std::string zsh_completion(const std::vector<CompletedCommand>& commands);
std::string fish_completion(const std::vector<CompletedCommand>& commands);

// The names of all options that take the next word, each once, in alphabetical order.
std::vector<std::string> names_with_value(const std::vector<CompletedCommand>& commands);

// The command: the script for a shell on standard output. app: the whole program.
int completion(const Options& options, const CLI::App& app);

}  // namespace convgrad::cli
