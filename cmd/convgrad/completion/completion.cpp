// completion.cpp - see completion.hpp. A script is a table of what each command takes, as the
// parser knows it, a row a line and the same for both shells, and a shell's functions that read it.
#include "completion/completion.hpp"

#include <CLI/App.hpp>
#include <algorithm>
#include <span>

#include "options/arguments.hpp"

namespace convgrad::cli {
namespace {

// Keeps the rows. What may follow is kept by "COMMAND OPTION"; names of options and
// all other words are kept by "COMMAND -" and "COMMAND ".
constexpr const char* kKeepRows = R"(
typeset -gA _convgrad_takes _convgrad_values _convgrad_help
_convgrad_row() {  # COMMAND NAME TAKES VALUES HELP
  local key="$1 $2" all="$1 "
  [[ $2 != -* ]] || all="$1 -"
  _convgrad_takes[$key]=$3 _convgrad_values[$key]+=$4 _convgrad_help[$key]=$5
  _convgrad_values[$all]+=" $2"
}

# What may stand where CURRENT does, behind the words: sets command, takes and values.
_convgrad_state() {  # CURRENT WORD...
  [[ -z ${ZSH_VERSION-} ]] || emulate -L ksh
  local word last= option= key
  command=convgrad
  for word in "${@:2}"; do
    key="$command $word"
    if [[ $word == = ]]; then  # bash makes three words of --option=value
      option=$last
    elif [[ -n $option ]]; then
      option=
    else
      case ${_convgrad_takes[$key]-} in
        word | list | file) option=$word ;;
        command) command=$word ;;
      esac
    fi
    last=$word
  done
  key="$command $option"
  if [[ -z $option && $1 == -* ]]; then key="$command -"; fi
  takes=${_convgrad_takes[$key]-} values=${_convgrad_values[$key]-}
}

)";

constexpr const char* kBash = R"(
_convgrad() {
  local cur=${COMP_WORDS[COMP_CWORD]} command takes values before= word
  local -a words=("${COMP_WORDS[@]:1:COMP_CWORD - 1}")
  if [[ $cur == = ]]; then words+=(=) cur=; fi
  _convgrad_state "$cur" "${words[@]}"
  COMPREPLY=()
  if [[ $takes == list && $cur == *,* ]]; then before=${cur%,*},; fi
  for word in $values; do  # in upper or lower case
    if [[ ${before,,}${word,,} == "${cur,,}"* ]]; then COMPREPLY+=("$before$word"); fi
  done
  if [[ $takes == file && -n $values ]]; then
    mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$cur")
    compopt -o filenames 2>/dev/null
  elif [[ $takes == file || $takes == optional ]]; then
    compopt -o default 2>/dev/null  # files, quoted as readline does it
  fi
}
complete -F _convgrad convgrad
)";

constexpr const char* kZsh = R"(
_convgrad() {
  local command takes values name ret=1
  local -a described before=("${(@)words[2,CURRENT-1]}")
  if [[ $PREFIX == --*=* ]]; then
    before+=("${PREFIX%%=*}" =)
    compset -P '--[^=]#='
  fi
  _convgrad_state "$PREFIX" "$before[@]"
  [[ $takes != list ]] || compset -P '*,'
  for name in ${=values}; do described+=("$name:${_convgrad_help[$command $name]}"); done
  # In upper or lower case.
  _describe word described -M 'm:{[:lower:][:upper:]}={[:upper:][:lower:]}' && ret=0
  [[ $takes == (file|optional) ]] && _files && ret=0
  return ret
}

if [[ $funcstack[1] == _convgrad ]]; then
  _convgrad "$@"
else
  compdef _convgrad convgrad
fi
)";

struct Shell {
  std::string_view name, first_line, functions;
};
constexpr Shell kShells[] = {{"bash", "", kBash},
                             {"zsh", "#compdef convgrad\n", kZsh}};  // how zsh finds it

std::string row(const std::string& command, const std::string& name, const char* takes,
                const std::string& values, const std::string& help) {
  return cat("_convgrad_row ", command, " ", shell_quoted(name), " ", takes, " ",
             shell_quoted(values), " ", shell_quoted(help), "\n");
}

// Returns what may follow the option of a row; null stands for --help and the like.
const char* takes_of(const Row* row) {
  if (row == nullptr || std::holds_alternative<bool*>(row->value)) return "nothing";
  if (std::holds_alternative<FileOrOutput>(row->value)) return "optional";
  if (row->traits.file != FileUse::no) return "file";
  return std::holds_alternative<List>(row->value) ? "list" : "word";
}

std::string values_of(const Row* row) {
  if (row == nullptr) return "";
  std::string values = row->traits.values == nullptr ? "" : row->traits.values();
  if (std::holds_alternative<List>(row->value) && !values.empty()) values += " all";
  if (std::holds_alternative<Choice>(row->value)) {
    values = row->type;
    std::ranges::replace(values, '|', ' ');
  }
  return values;
}

// Returns the rows of a script for a command, one for each name of an option.
std::string rows_of(const Command& command, const std::string& name) {
  std::string rows;
  for (const CLI::Option* option : command.app->get_options()) {
    const auto found = std::ranges::find(command.rows, option, &Row::option);
    const Row* const of = found == command.rows.end() ? nullptr : &*found;
    const auto add = [&, values = values_of(of)](const std::string& word, const std::string& help) {
      rows += row(name, word, takes_of(of), values, help);
    };
    if (option->get_positional()) add("", "");
    for (const std::string& letter : option->get_snames())
      add("-" + letter, option->get_description());
    for (const std::string& word : option->get_lnames())
      add("--" + word, option->get_description());
  }
  return rows;
}

std::string rows_of(const std::vector<Command>& commands) {
  const std::string program = commands.front().app->get_name();
  std::string rows;
  for (const Command& command : std::span(commands).subspan(1)) {
    std::vector<std::string> names = command.app->get_aliases();
    names.push_back(command.name);
    for (const std::string& name : names) {
      rows += row(program, name, "command", "", command.help) + rows_of(command, name);
    }
  }
  return rows + rows_of(commands.front(), program);
}

}  // namespace

ReportPointer completion(const CompletionOptions& options, const std::vector<Command>& commands) {
  if (options.shell.empty()) misuse("completion: no shell is named, expected bash or zsh");
  const Shell& shell = *std::ranges::find(kShells, options.shell, &Shell::name);
  return std::make_unique<PlainReport>(
      cat(shell.first_line, "# Written by: convgrad completion ", shell.name, "\n", kKeepRows,
          rows_of(commands), shell.functions),
      Json::object());  // no option asks for it
}

}  // namespace convgrad::cli
