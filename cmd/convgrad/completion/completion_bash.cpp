// completion_bash.cpp - the script for bash 4 and later; needs no bash-completion package.
#include <map>

#include "completion/completion.hpp"
#include "convgrad/error.hpp"

namespace convgrad::cli {
namespace {

// The arms of a case over option names, those that take the same in one arm.
std::string option_arms(const CompletedCommand& command) {
  std::string text;
  std::vector<std::pair<std::string, std::string>> arms;  // what they take, and their names
  for (const Completion& option : command.options) {
    static const std::map<Completion::Takes, const char*> kNames = {
        {Completion::Takes::word, "word"},
        {Completion::Takes::file, "file"},
        {Completion::Takes::optional_file, "optional"}};
    if (option.takes == Completion::Takes::nothing) continue;
    std::string takes = cat("takes=", kNames.at(option.takes));
    if (option.is_list) takes += " list=1";
    if (!option.values.empty()) takes += cat(" values='", joined(option.values), "'");
    auto arm = arms.begin();
    while (arm != arms.end() && arm->first != takes) ++arm;
    if (arm == arms.end()) arm = arms.insert(arm, {takes, ""});
    arm->second += cat(arm->second.empty() ? "" : "|", joined(option.names, "|"));
  }
  for (const auto& [takes, names] : arms) text += cat("      ", names, ") ", takes, " ;;\n");
  return text;
}

std::string positional_of(const CompletedCommand& command) {
  if (!command.positional) return "";
  const auto& values = command.positional->values;
  return values.empty() ? " takes=file" : cat(" values='", joined(values), "'");
}

std::string names_of_options(const CompletedCommand& command) {
  std::vector<std::string> names;
  for (const Completion& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return joined(names);
}

constexpr const char* kBashFunctions = R"(
# The words that begin as $1 does, in upper or lower case, into COMPREPLY.
_convgrad_match() {
  local word before=
  if [[ -n $list && $1 == *,* ]]; then before=${1%,*},; fi
  for word in $values; do
    if [[ ${before,,}${word,,} == "${1,,}"* ]]; then COMPREPLY+=("$before$word"); fi
  done
}

_convgrad() {
  local cur=${COMP_WORDS[COMP_CWORD]} command= option= takes= values= list= i
  local -a words=("${COMP_WORDS[@]:1:COMP_CWORD - 1}")
  # bash makes three words of --option=value.
  if [[ $cur == = ]]; then words+=(=) cur=; fi
  for ((i = 0; i < ${#words[@]}; i++)); do
    option=
    case ${words[i]} in
      -*)
        _convgrad_option "$command" "${words[i]}"
        if [[ ${words[i + 1]} == = || $takes == word || $takes == file ]]; then
          option=${words[i]}
          if [[ ${words[++i]} == = ]]; then ((++i)); fi
          if ((i < ${#words[@]})); then option=; fi
        fi
        ;;
      *) if [[ -z $command ]]; then command=$(_convgrad_command "${words[i]}"); fi ;;
    esac
  done
  COMPREPLY=()
  if [[ -n $option ]]; then
    _convgrad_option "$command" "$option"
  elif [[ $cur == -* ]]; then
    _convgrad_options "$command"
  else
    _convgrad_positional "$command"
  fi
  _convgrad_match "$cur"
  if [[ $takes == file && -n $values ]]; then
    local -a files
    mapfile -t files < <(compgen -f -- "$cur")
    COMPREPLY+=("${files[@]}")
    compopt -o filenames 2>/dev/null
  elif [[ $takes == file || $takes == optional ]]; then
    compopt -o default 2>/dev/null  # files, quoted as readline does it
  fi
}
complete -F _convgrad convgrad
)";

}  // namespace

std::string bash_completion(const std::vector<CompletedCommand>& commands) {
  std::string arms, options, positionals, names;
  std::vector<std::string> words;
  for (const CompletedCommand& command : commands) {
    const std::string pattern = command.name.empty() ? "''" : command.name;
    arms += cat("    ", pattern, ") case $2 in\n", option_arms(command), "      esac ;;\n");
    options += cat("    ", pattern, ") values='", names_of_options(command), "' ;;\n");
    const std::string positional = positional_of(command);
    if (!positional.empty()) positionals += cat("    ", pattern, ")", positional, " ;;\n");
    words.insert(words.end(), command.words.begin(), command.words.end());
    if (command.name.empty()) continue;
    names += cat("    ", joined(command.words, "|"), ") echo ", command.name, " ;;\n");
  }
  positionals += cat("    '') values='", joined(words), "' ;;\n");
  const auto function = [](const char* name, const char* first, const std::string& all) {
    return cat("\n", name, "() {\n", first, "  case $1 in\n", all, "  esac\n}\n");
  };
  const char* reset = "  takes= values= list=\n";
  return cat("# bash completion for convgrad, written by: convgrad completion bash\n",
             "\n# What an option of a command takes.", function("_convgrad_option", reset, arms),
             function("_convgrad_options", reset, options),
             function("_convgrad_positional", reset, positionals),
             "\n# The command that a word stands for.", function("_convgrad_command", "", names),
             kBashFunctions);
}

}  // namespace convgrad::cli
