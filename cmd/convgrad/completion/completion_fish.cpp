// completion_fish.cpp - the script for fish 3.
#include "completion/completion.hpp"
#include "convgrad/error.hpp"

namespace convgrad::cli {
namespace {

// fish knows two escapes within single quotes.
std::string fish_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

std::string line(const CompletedCommand& command, const std::string& what) {
  return cat("complete -c convgrad -n '__convgrad_is \"", command.name, "\"'", what, "\n");
}

std::string taken(const Completion& completion) {
  using Takes = Completion::Takes;
  if (completion.takes == Takes::nothing) return "";
  if (completion.takes == Takes::optional_file) return " -F";  // with --option= alone
  if (completion.takes == Takes::file) {
    const std::string words = joined(completion.values);
    return cat(" -r -F", words.empty() ? "" : cat(" -a ", fish_quoted(words)));
  }
  if (completion.values.empty()) return " -x";
  const std::string words = joined(completion.values);
  return cat(" -x -a ",
             fish_quoted(completion.is_list ? cat("(__fish_append , ", words, ")") : words));
}

std::string option_line(const CompletedCommand& command, const Completion& option) {
  std::string what;
  for (const std::string& name : option.names) {
    const bool is_long = name.starts_with("--");
    what += cat(is_long ? " -l " : " -s ", name.substr(is_long ? 2 : 1));
  }
  return line(command, cat(what, taken(option), " -d ", fish_quoted(option.help)));
}

constexpr const char* kFishFunctions = R"(
# The command on the line so far, by its own name.
function __convgrad_command
    set -l words (commandline -opc)
    set -l skip 0
    for word in $words[2..-1]
        if test $skip = 1
            set skip 0
        else if contains -- $word $__convgrad_with_value
            set skip 1
        else
            switch $word
)";

constexpr const char* kEnd = R"FISH(            end
        end
    end
end

function __convgrad_is
    test "$(__convgrad_command)" = "$argv[1]"
end

complete -c convgrad -f
)FISH";

}  // namespace

std::string fish_completion(const std::vector<CompletedCommand>& commands) {
  std::string lines, cases;
  for (const CompletedCommand& command : commands) {
    for (const Completion& option : command.options) lines += option_line(command, option);
    if (command.positional) {
      const auto& values = command.positional->values;
      lines += line(command, values.empty() ? " -F" : cat(" -a ", fish_quoted(joined(values))));
    }
    for (const std::string& word : command.words) {
      lines += line(commands.front(), cat(" -a ", word, " -d ", fish_quoted(command.help)));
    }
    if (command.name.empty()) continue;
    cases += cat("                case ", joined(command.words), "\n                    echo ",
                 command.name, "\n                    return\n");
  }
  return cat("# fish completion for convgrad, written by: convgrad completion fish\n\n",
             "set -g __convgrad_with_value ", joined(names_with_value(commands)), "\n",
             kFishFunctions, cases, kEnd, lines);
}

}  // namespace convgrad::cli
