// completion_zsh.cpp - the script for zsh: a file _convgrad in a folder of $fpath, or sourced after
// compinit.
#include "completion/completion.hpp"
#include "convgrad/error.hpp"

namespace convgrad::cli {
namespace {

constexpr const char* kNext = " \\\n        ";

// Within a specification of _arguments, brackets and colons have a meaning.
std::string escaped(const std::string& text, const std::string& special) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string::npos) result += '\\';
    result += c;
  }
  return result;
}

std::string action(const Completion& completion) {
  if (completion.values.empty()) {
    return completion.takes == Completion::Takes::word ? " " : "_files";
  }
  const std::string words = joined(completion.values);
  if (completion.takes == Completion::Takes::file) {
    return cat("{_files; _convgrad_words ", words, "}");
  }
  return cat(completion.is_list ? "_sequence _convgrad_words - " : "_convgrad_words ", words);
}

// '(-i --input)'{-i+,--input=}'[help]:FILE:_files'
std::string option_spec(const Completion& option) {
  using Takes = Completion::Takes;
  std::vector<std::string> names;
  for (const std::string& name : option.names) {
    const bool is_long = name.starts_with("--");
    const char* joint = option.takes == Takes::nothing         ? ""
                        : option.takes == Takes::optional_file ? "=-"
                                                               : (is_long ? "=" : "+");
    names.push_back(name + joint);
  }
  std::string spec = cat("[", escaped(option.help, "[]\\"), "]");
  if (option.takes != Takes::nothing) {
    spec += cat(option.takes == Takes::optional_file ? "::" : ":", escaped(option.metavar, ":\\"),
                ":", action(option));
  }
  if (names.size() == 1) return shell_quoted(names[0] + spec);
  return cat(shell_quoted(cat("(", joined(option.names), ")")), "{", joined(names, ","), "}",
             shell_quoted(spec));
}

std::string arguments_of(const CompletedCommand& command) {
  std::string text = "      _arguments -s -S";
  for (const Completion& option : command.options) text += cat(kNext, option_spec(option));
  if (const auto& all = command.positional) {
    const std::string spec = cat("*:", escaped(all->metavar, ":\\"), ":", action(*all));
    text += cat(kNext, shell_quoted(spec));
  }
  if (command.name.empty()) text += cat(kNext, "'1:command:_convgrad_commands'");
  return text + " ;;\n";
}

constexpr const char* kScript = R"(#compdef convgrad
# zsh completion for convgrad, written by: convgrad completion zsh

# In upper or lower case.
_convgrad_words() {
  compadd -M 'm:{[:lower:][:upper:]}={[:upper:][:lower:]}' "$@"
}

_convgrad_commands() {
  local -a commands
  commands=(@DESCRIBED@)
  _describe command commands
}

_convgrad() {
  local command i
  local -a with_value
  with_value=(@WITH_VALUE@)
  # The command may stand anywhere; options before it are its own, too.
  for ((i = 2; i < CURRENT; i++)); do
    case $words[i] in
      -*) (( $with_value[(Ie)$words[i]] )) && (( i++ )) ;;
      @NAMES@)
        command=$words[i]
        words[i]=()
        (( CURRENT-- ))
        break
        ;;
    esac
  done
  case $command in
@ARMS@  esac
}

if [[ $funcstack[1] == _convgrad ]]; then
  _convgrad "$@"
else
  compdef _convgrad convgrad
fi
)";

}  // namespace

std::string zsh_completion(const std::vector<CompletedCommand>& commands) {
  std::string arms, described, names;
  for (const CompletedCommand& command : commands) {
    arms += cat("    ", command.name.empty() ? "''" : joined(command.words, "|"), ")\n",
                arguments_of(command));
    for (const std::string& word : command.words) {
      described += cat(" \\\n    ", shell_quoted(cat(word, ":", escaped(command.help, ":\\"))));
      names += cat(names.empty() ? "" : "|", word);
    }
  }
  std::string text = kScript;
  for (const auto& [mark, part] : {std::pair{"@DESCRIBED@", described},
                                   {"@WITH_VALUE@", joined(names_with_value(commands))},
                                   {"@NAMES@", names},
                                   {"@ARMS@", arms}}) {
    text.replace(text.find(mark), std::string(mark).size(), part);
  }
  return text;
}

}  // namespace convgrad::cli
