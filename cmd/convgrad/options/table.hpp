// table.hpp - the table of options: what is said of each, once. The parser, --help, variables,
// completions, the fields of a batch's jobs and the files that may not meet follow from it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "options/options.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace convgrad::cli {

inline constexpr const char* kReporting = "Reporting";  // a heading of --help

// An option sets text, a flag, a tolerance, words that have no option in front (or one word that
// stays as it is spelled), or one of these.
template <typename Set, typename Form>
struct Setting {
  Set* value;
};
using NumberList = Setting<Words, struct NumberListForm>;  // a list, as it is spelled
using Again = Setting<Words, struct AgainForm>;            // one each time that it is given
using Tags = Setting<Words, struct TagsForm>;              // the same, of the form KEY=VALUE
using Choice = Setting<std::string, struct ChoiceForm>;    // of the row's type, "off|quick|full"
using List = Setting<std::string, struct ListForm>;  // words with commas between, as it is spelled
using FileOrOutput = Setting<std::string, struct FileForm>;    // "-" where no value is given
using Bytes = Setting<std::uint64_t, struct BytesForm>;        // "512MiB"
using Real = Setting<std::optional<double>, struct RealForm>;  // of any sign
struct Whole {
  std::variant<int*, std::optional<int>*, std::int64_t*, std::optional<std::int64_t>*> value;
  std::int64_t least = 0, most = std::numeric_limits<std::int64_t>::max();
};
using Value = std::variant<std::string*, bool*, double*, std::optional<double>*, Words*, NumberList,
                           Again, Tags, Choice, List, FileOrOutput, Bytes, Real, Whole>;

struct Traits {
  std::string (*values)() = nullptr;  // known ones, if the type does not list them
  bool usual = false;                 // -h explains it, though it has no letter
  bool variable = true;               // a variable can set it
  // A job of a manifest has it; else it is of all jobs, or would give a job that is run again
  // another result.
  bool is_field = true;
  FileUse file = FileUse::no;  // what the command does with the file
  // Options that answer one question are rivals: a flag of one way silences the variables of other
  // ways. The way of an option is its name, unless several are one.
  const char *question = "", *way = "";
  About about = About::other;
};

// Names are without hyphens. An option that only stands by its place has none but that.
struct OptionNames {
  std::string name = {};   // long
  char letter = 0;         // 0: none
  std::string alias = {};  // another long one
  std::string off = {};    // of a flag: turns it off
  std::string place = {};  // what --help calls it where it stands by its place
};

struct Row {
  OptionNames names;
  std::string type;   // "FILE"; "" of flags
  std::string group;  // heading of --help
  std::string help;
  Value value;
  Traits traits;
  CLI::Option* option = nullptr;  // as it is bound

  Words long_names() const;
  const std::string& name() const { return names.name; }  // "" if it has a place alone
};

struct Rows : std::vector<Row> {
  void add(const OptionNames& names, const char* type, const char* group, const char* help,
           Value value, const Traits& traits = {}) {
    push_back({names, type, group, help, value, traits});
  }
  const Row* find(const std::string& name) const;  // null if there is none
  std::vector<NamedFile> files() const;            // that the options name now
};

struct Command {
  std::string name, help;
  const char* footer;  // of --help
  Options& options;
  Rows rows;                // which set them
  CLI::App* app = nullptr;  // as it is bound
};

// Holds the options of all commands; commands_of() puts the main job in front.
struct AllOptions {
  Options compute;
  VerifyCommand verify;
  CompareOptions compare;
  BatchOptions batch;
  BenchOptions bench;
  GenerateOptions generate;
  ReduceOptions reduce;
  InspectOptions inspect;
  InfoOptions info;
  CompletionOptions completion;
};
std::vector<Command> commands_of(AllOptions& all);
// Returns the commands that the jobs of a batch are. Both set the same options.
std::vector<Command> job_commands(VerifyCommand& options);

// Binds every option and command of the table, which must stay where it is.
void bind_options(CLI::App& app, std::vector<Command>& commands);

// Sets a bound option as if the words had been given on the command line, with the same checks.
// `name` is one of its long ones, and Error(usage) names it.
void set_option(const Row& row, const std::string& name, const Words& words);

// Gives options from CONVGRAD_* variables where no flag has given them, and notes what came from
// where.
void apply_variables(const Command& command);

// Returns the long names of an app's options, "--op", "--strides", ...
std::vector<std::string> option_names(const CLI::App& app);

}  // namespace convgrad::cli
