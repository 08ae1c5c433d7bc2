// bind_options.cpp - see bind_options.hpp.
#include "options/bind_options.hpp"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>

#include "options/help.hpp"
#include "options/refuse.hpp"
#include "options/validators.hpp"

namespace convgrad::cli {
namespace {

// Words after a heading, broken into lines.
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

  // The usual options, and the names of the others, in at most 30 lines.
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

// Of several words, the last one counts.
CLI::Option* last_of(CLI::Option* option) {
  return option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

// How the parser takes a row, by what it sets.
struct Binder {
  CLI::App& app;
  const Row& row;

  CLI::Option* operator()(std::string* value) const {
    if (row.names.find('{') != row.names.npos) {
      return last_of(app.add_flag(row.names, *value, row.help));
    }
    CLI::Option* option = app.add_option(row.names, *value, row.help);
    const bool by_place = row.names.find('-') == row.names.npos;
    if (!by_place) last_of(option);
    return by_place && row.type != "FILE" ? option : option->check(not_a_flag());
  }
  CLI::Option* operator()(bool* value) const {
    return last_of(app.add_flag(row.names, *value, row.help))->check(truth());
  }
  CLI::Option* operator()(Words* words) const {
    CLI::Option* option = app.add_option(row.names, *words, row.help);
    return row.names.starts_with("-") ? last_of(option->expected(1)) : option;
  }
  CLI::Option* operator()(const Numbers& numbers) const {
    const auto set = [words = numbers.words](const CLI::results_t& found) {
      *words = found;
      return true;
    };
    return app.add_option(row.names, set, row.help)
        ->expected(1, 16)
        ->allow_extra_args(false)  // else CLI11 cuts "[3,,3]" itself, and drops what is empty
        ->trigger_on_parse();      // so that a list takes the place of one that was given before
  }
  CLI::Option* operator()(const Again& again) const {
    return app.add_option(row.names, *again.words, row.help)
        ->expected(1)
        ->check(row.type == "KEY=VALUE" ? tag() : not_a_flag())
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  CLI::Option* operator()(const Bytes& bytes) const {
    return last_of(app.add_option(row.names, *bytes.value, row.help))->transform(memory_size());
  }
  CLI::Option* operator()(const Whole& whole) const {
    return std::visit([&](auto* value) { return app.add_option(row.names, *value, row.help); },
                      whole.value)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->check(whole_number(whole.least, whole.most));
  }
  CLI::Option* operator()(auto* number) const {
    return last_of(app.add_option(row.names, *number, row.help))->check(tolerance());
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
    app.set_version_flag("-V,--version", version_and_libraries,
                         "version, what it was built with, BLAS, CUDA and MPI")
        ->group(kReporting);
  }
  for (Row& row : command.rows) {
    row.option = std::visit(Binder{app, row}, row.value);
    if (!row.type.empty()) row.option->type_name(row.type);
    if (!row.group.empty()) row.option->group(row.group);
  }
}

}  // namespace

void bind_options(CLI::App& app, std::vector<Command>& commands) {
  bind(app, commands.front());
  app.require_subcommand(0, 1);
  for (Command& command : commands) {
    if (command.app == nullptr) bind(*app.add_subcommand(command.name, command.help), command);
  }
  app.get_subcommand("compare")->alias("diff");
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

}  // namespace convgrad::cli
