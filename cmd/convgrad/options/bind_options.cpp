#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/StringTools.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "files/tensor_source.hpp"
#include "options/arguments.hpp"
#include "options/help.hpp"
#include "options/table.hpp"
#include "version.hpp"

namespace convgrad::cli {
namespace {

// Returns words after a heading, broken into lines.
std::string paragraph(const std::string& heading, const std::vector<std::string>& words) {
  constexpr std::size_t kColumns = 96;
  if (words.empty()) return "";
  std::string text, line = heading;
  for (const std::string& word : words) {
    if (line.size() + 1 + word.size() > kColumns) {
      text += line + "\n";
      line = " ";
    }
    line += " " + word;
  }
  return text + line + "\n";
}

std::string first_example(const std::string& footer) {
  const std::size_t examples = footer.find("Examples:\n");
  const std::size_t begin = footer.find('\n', examples) + 1;
  return cat("\nExample:\n", footer.substr(begin, footer.find('\n', begin) - begin), "\n");
}

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(const Rows& rows) : rows_(rows) {}

  // CLI11 shows flags with their default values in braces; what users type looks like this.
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    for (std::size_t begin; (begin = name.find('{')) != name.npos;) {
      name.erase(begin, name.find('}', begin) + 1 - begin);
    }
    return name == "--json" ? "--json[=FILE]" : name;
  }
  // -h is CLI11's plain help, --help its help of all, but each of one command alone.
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    if (mode == CLI::AppFormatMode::Normal) return short_help(*app, name);
    return CLI::Formatter::make_help(app, name, CLI::AppFormatMode::Normal);
  }

 private:
  bool is_usual(const CLI::Option& option) const {
    if (option.get_positional()) return true;
    const auto row = std::ranges::find(rows_, &option, &Row::option);
    if (row != rows_.end() && row->traits.usual) return true;
    return option.get_group() != kReporting && !option.get_snames().empty();
  }

  // Returns the usual options, and the names of the others, in at most 30 lines.
  std::string short_help(const CLI::App& app, const std::string& name) const {
    std::string rows;
    std::vector<std::string> others, commands;
    for (const CLI::Option* option : app.get_options()) {
      if (is_usual(*option)) {
        rows += make_option(option, option->get_positional());
      } else {
        others.push_back(option->get_lnames().empty() ? option->get_name()
                                                      : "--" + option->get_lnames().front());
      }
    }
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
      commands.push_back(sub->get_name());
    }
    return cat(make_description(&app), make_usage(&app, name), "\n", rows,
               paragraph("Also:", others), paragraph("Commands:", commands),
               first_example(app.get_footer()), "\n", name, " --help explains all options",
               commands.empty() ? ".\n" : "; convgrad help COMMAND those of a command.\n");
  }

  const Rows& rows_;
};

// These checks return what was expected, or "". CLI11's own print ranges with 300 digits.

// Refuses "--dry-run": "-o --dry-run" must not write a file of that name.
std::string not_a_flag(std::string& word) {
  if (word.empty()) return "'' is empty, expected a value; leave the flag out for the default";
  const bool is_flag = looks_like_a_flag(word) && word.find(' ') == word.npos;
  if (!is_flag || is_standard_input(word)) return "";
  return cat("its value is missing, found '", word, "' (a file of that name is ./", word, ")");
}

std::string truth(std::string& word) {
  const Words known = {"true", "false", "1", "0", "on", "off", "yes", "no"};
  if (std::ranges::count(known, CLI::detail::to_lower(word)) > 0) return "";
  return cat("'", word, "', expected true or false");
}

std::string whole_number(const std::string& word, std::int64_t low, std::int64_t high) {
  const std::optional<std::int64_t> value = parse_whole(word);
  if (value && *value >= low && *value <= high) return "";
  return cat("'", word, "', expected a whole number from ", low, " to ", high);
}

std::string real(std::string& word) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (!word.empty() && *end == '\0' && std::isfinite(value)) return "";
  return cat("'", word, "', expected a number");
}

std::string tolerance(std::string& word) {
  if (real(word).empty() && std::strtod(word.c_str(), nullptr) >= 0) return "";
  return cat("'", word, "', expected a number of at least 0, e.g. 1e-5");
}

std::string tag(std::string& word) {
  const std::size_t end =
      word.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.");
  if (end != word.npos && end > 0 && word[end] == '=') return "";
  return cat("'", word, "', expected KEY=VALUE, e.g. commit=1a2b3c4, with a KEY of ",
             "A-Z, a-z, 0-9, '_', '-' and '.'");
}

// Turns "512MiB" into "536870912". Units are powers of 1024, with or without i and B.
std::string memory_size(std::string& word) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  std::string unit = CLI::detail::to_lower(end);
  while (!unit.empty() && unit.front() == ' ') unit.erase(0, 1);
  if (unit.size() > 1 && unit.back() == 'b') unit.pop_back();
  if (unit.size() > 1 && unit.back() == 'i') unit.pop_back();
  const std::size_t power = unit.empty() || unit == "b" ? 0
                            : unit.size() == 1          ? std::string("bkmgt").find(unit)
                                                        : std::string::npos;
  const double bytes =
      power == std::string::npos ? 0 : std::ldexp(value, 10 * static_cast<int>(power));
  if (end == word.c_str() || !(bytes >= 1) || !(bytes <= 0x1p62)) {
    return cat("'", word,
               "', expected a size from 1 byte to 4EiB, e.g. 512MiB or 2GiB (units of 1024)");
  }
  word = std::to_string(static_cast<std::int64_t>(bytes));
  return "";
}

// Takes a word of a row's type, "off|quick|full".
std::string choice(std::string& word, const std::string& type) {
  if (std::string wrong = not_a_flag(word); !wrong.empty()) return wrong;
  const Words known = pieces_of(type, '|');
  if (std::ranges::count(known, word) > 0) return "";
  return cat("'", word, "' is unknown, expected ", join_or(known), did_you_mean(word, known));
}

// The last of several words counts. `check` returns what is wrong with a word, or "".
CLI::Option* one_word(CLI::Option* option, std::function<std::string(std::string&)> check) {
  return option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->transform(CLI::Validator(std::move(check), ""));
}

// Returns the names as CLI11 takes them: "-i,--input", "--on,!--off", "OP,--op".
std::string spelled(const OptionNames& names) {
  Words words;
  if (!names.place.empty()) words.push_back(names.place);
  if (names.letter != 0) words.push_back(cat("-", names.letter));
  if (!names.name.empty()) words.push_back("--" + names.name);
  if (!names.alias.empty()) words.push_back("--" + names.alias);
  if (!names.off.empty()) words.push_back("!--" + names.off);
  return joined(words, ",");
}

// Adds a row to the parser, by what the row sets.
struct Binder {
  CLI::App& app;
  const Row& row;

  CLI::Option* add(auto& value) const {
    return app.add_option(spelled(row.names), value, row.help);
  }

  CLI::Option* operator()(std::string* text) const {
    const bool is_checked_later = row.name().empty() && row.type != "FILE";
    return is_checked_later ? add(*text) : one_word(add(*text), not_a_flag);
  }
  CLI::Option* operator()(const Choice& one) const {
    return one_word(add(*one.value),
                    [type = row.type](std::string& word) { return choice(word, type); });
  }
  CLI::Option* operator()(const List& list) const { return (*this)(list.value); }
  CLI::Option* operator()(const FileOrOutput& file) const {
    return app.add_flag(spelled(row.names) + "{-}", *file.value, row.help)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  CLI::Option* operator()(bool* flag) const {
    return one_word(app.add_flag(spelled(row.names), *flag, row.help), truth);
  }
  CLI::Option* operator()(auto* number) const { return one_word(add(*number), tolerance); }
  CLI::Option* operator()(const Bytes& bytes) const {
    return one_word(add(*bytes.value), memory_size);
  }
  CLI::Option* operator()(const Real& number) const { return one_word(add(*number.value), real); }
  CLI::Option* operator()(const Whole& whole) const {
    return one_word(
        std::visit([&](auto* value) { return add(*value); }, whole.value),
        [whole](std::string& word) { return whole_number(word, whole.least, whole.most); });
  }
  CLI::Option* operator()(Words* words) const {
    CLI::Option* option = add(*words);
    if (row.name().empty()) return option;
    return option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  CLI::Option* each(Words& words, std::string (*check)(std::string&)) const {
    return one_word(add(words)->expected(1), check)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  CLI::Option* operator()(const Again& again) const { return each(*again.value, not_a_flag); }
  CLI::Option* operator()(const Tags& tags) const { return each(*tags.value, tag); }
  CLI::Option* operator()(const NumberList& numbers) const {
    const CLI::callback_t set = [words = numbers.value](const CLI::results_t& found) {
      *words = found;
      return true;
    };
    return app.add_option(spelled(row.names), set, row.help)
        ->expected(1, 16)
        ->allow_extra_args(false)  // else CLI11 cuts "[3,,3]" itself, and drops what is empty
        ->trigger_on_parse();      // so that a list takes the place of one that was given before
  }
};

void bind(CLI::App& app, Command& command) {
  command.app = &app;
  app.set_help_flag("-h", "the usual options, in short")->group(kReporting);
  app.set_help_all_flag("--help", "this text")->group(kReporting);
  app.allow_extras();  // what is left over is reported with a suggestion, by main
  app.formatter(std::make_shared<HelpFormatter>(command.rows));
  app.get_formatter()->column_width(34);
  app.footer(command.footer);
  if (app.get_parent() == nullptr) {
    app.set_version_flag("-V,--version", version_text(), "version, revision and compiler")
        ->group(kReporting);
  }
  for (Row& row : command.rows) {
    row.option = std::visit(Binder{app, row}, row.value);
    if (!row.type.empty()) row.option->type_name(row.type);
    if (!row.group.empty()) row.option->group(row.group);
  }
}

// Returns true if a flag is another way to answer an option's question.
bool silences(const Row& flag, const Row& row) {
  const auto way = [](const Row& one) { return *one.traits.way ? one.traits.way : one.name(); };
  return *row.traits.question && way(flag) != way(row) &&
         std::string(flag.traits.question) == row.traits.question;
}

std::string variable_of(const std::string& name) {
  std::string variable = "CONVGRAD_" + name;
  for (char& c : variable) {
    c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

// Returns the paths that an option names.
Words paths_of(const Value& value) {
  if (const auto* text = std::get_if<std::string*>(&value)) return {**text};
  if (const auto* again = std::get_if<Again>(&value)) return *again->value;
  if (const auto* words = std::get_if<Words*>(&value)) return **words;
  const Words& numbers = *std::get<NumberList>(value).value;
  return is_file_name(numbers) ? numbers : Words{};
}

}  // namespace

std::string version_text() {
  return cat("convgrad ", kVersion, " (", kGitRevision, ", ", kCompiler, ", ", kBuildType, ")");
}

Words Row::long_names() const {
  Words found = {names.name, names.alias, names.off};
  std::erase(found, "");
  return found;
}

const Row* Rows::find(const std::string& name) const {
  const auto found = std::ranges::find_if(
      *this, [&](const Row& row) { return std::ranges::count(row.long_names(), name) > 0; });
  return found == end() ? nullptr : &*found;
}

std::vector<NamedFile> Rows::files() const {
  std::vector<NamedFile> files;
  for (const Row& row : *this) {
    FileUse use = row.traits.file;
    if (use == FileUse::no) continue;
    const std::string& name = row.name();
    if (use == FileUse::updated) {
      const bool update = *std::get<bool*>(find("update-" + name)->value);
      use = update ? FileUse::written : FileUse::read;
    }
    const std::string flag = name.empty() ? row.names.place : "--" + name;
    for (const std::string& path : paths_of(row.value)) files.push_back({flag, path, use});
  }
  return files;
}

void bind_options(CLI::App& app, std::vector<Command>& commands) {
  bind(app, commands.front());
  app.require_subcommand(0, 1);
  for (Command& command : commands) {
    if (command.app == nullptr) bind(*app.add_subcommand(command.name, command.help), command);
    if (command.name == "compare") command.app->alias("diff");
  }
}

void set_option(const Row& row, const std::string& name, const Words& words) {
  const bool is_flag = std::holds_alternative<bool*>(row.value);
  try {
    for (const std::string& word : words) {
      row.option->add_result(is_flag ? row.option->get_flag_value(name, word) : word);
    }
    row.option->run_callback();
  } catch (const CLI::ParseError& error) {
    misuse(error.what());
  }
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

void apply_variables(const Command& command) {
  Options& options = command.options;
  std::vector<const Row*> flags;
  for (const Row& row : command.rows) {
    if (row.option->count() == 0 || row.name().empty()) continue;
    flags.push_back(&row);
    options.given.push_back({"--" + row.name(), row.traits.about});
  }
  const bool is_explicit = CLI::detail::to_lower(options.problem.padding) == "explicit";
  for (const Row& row : command.rows) {
    const std::string name = row.name(), variable = variable_of(name);
    const char* const value = std::getenv(variable.c_str());
    if (!row.traits.variable || name.empty() || value == nullptr || *value == '\0') continue;
    if (row.option->count() > 0) continue;
    // Explicit paddings imply EXPLICIT, and any other padding has none.
    const bool is_asked_for = is_explicit && name == "explicit-paddings";
    const auto is_rival = [&](const Row* flag) { return silences(*flag, row); };
    if (!is_asked_for && std::ranges::any_of(flags, is_rival)) continue;
    options.variables["--" + name] = variable;
    set_option(row, name, {value});
  }
}

}  // namespace convgrad::cli
