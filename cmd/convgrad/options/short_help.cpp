// short_help.cpp - see help.hpp.
#include <CLI/App.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "convgrad/error.hpp"
#include "options/help.hpp"
#include "options/shared_options.hpp"

namespace convgrad::cli {
namespace {

// Usual ones without a letter.
constexpr std::array<std::string_view, 9> kUsual = {
    "op", "result", "golden", "input-shape", "dist", "resume", "keep-going", "junit", "peaks"};

bool is_usual(const CLI::Option& option) {
  if (option.get_positional()) return true;
  if (option.get_group() == kReporting) return option.check_lname("junit");
  return !option.get_snames().empty() || std::ranges::any_of(kUsual, [&](auto name) {
    return option.check_lname(std::string(name));
  });
}

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
  if (examples == footer.npos) return "";
  const std::size_t begin = footer.find('\n', examples) + 1;
  return cat("\nExample:\n", footer.substr(begin, footer.find('\n', begin) - begin), "\n");
}

}  // namespace

std::string short_help(const CLI::App& app, const std::string& name,
                       const CLI::Formatter& formatter) {
  std::string rows;
  std::vector<std::string> others, commands;
  for (const CLI::Option* option : app.get_options()) {
    if (is_usual(*option)) {
      rows += formatter.make_option(option, option->get_positional());
    } else {
      others.push_back(option->get_lnames().empty() ? option->get_name()
                                                    : "--" + option->get_lnames().front());
    }
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(sub->get_name());
  }
  return cat(formatter.make_description(&app), formatter.make_usage(&app, name), "\n", rows,
             paragraph("Also:", others), paragraph("Commands:", commands),
             first_example(app.get_footer()), "\n", name, " --help explains all options",
             commands.empty() ? ".\n" : "; convgrad help COMMAND those of a command.\n");
}

}  // namespace convgrad::cli
