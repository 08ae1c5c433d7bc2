// bench_suite.cpp - suites: a problem a line, behind its name and how often it occurs.
#include <cstdio>
#include <filesystem>
#include <iomanip>
#include <set>
#include <sstream>

#include "base/messages.hpp"
#include "bench/bench.hpp"
#include "files/text_file.hpp"
#include "options/arguments.hpp"
#include "options/made_problem.hpp"
#include "options/suites.hpp"

namespace convgrad::cli {
namespace {

constexpr std::int64_t kMostConvolutions = 1'000'000'000'000;  // of a line: their sum is printed

std::int64_t count_of(const std::string& word) {
  const std::optional<std::int64_t> count = parse_whole(word);
  if (count && *count >= 1 && *count <= kMostConvolutions) return *count;
  bad_input("count: ", word, ", expected from 1 to ", kMostConvolutions);
}

// Returns the problem of [NAME [COUNT]] LINE.
BenchProblem problem_of(Words words) {
  BenchProblem problem;
  std::string name;
  if (!is_foreign(words) && !op_from_name(words[0])) {
    name = words[0];
    words.erase(words.begin());
    if (is_digit(words[0][0])) {
      problem.count = count_of(words[0]);
      words.erase(words.begin());
    }
  }
  static_cast<NamedProblem&>(problem) = read_problem(joined(words));
  problem.is_foreign = is_foreign(words);
  if (!name.empty()) problem.name = name;
  if (problem.name.empty()) problem.name = describe(problem.problem);
  return problem;
}

Words words_of(const std::string& line) {
  std::size_t end = line.find('#');
  // MIOpenDriver has a flag "-#", which begins no comment.
  while (end != std::string::npos && end > 0 && line[end - 1] == '-') end = line.find('#', end + 1);
  return words_of_line(line.substr(0, end));
}

// Returns the first comment that is not the names of columns.
std::string about(const std::string& text) {
  TextReader lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with("# ") && !line.starts_with("# name")) return line.substr(2);
  }
  return "";
}

}  // namespace

std::vector<BenchProblem> read_suite(const std::string& suite) {
  const std::string path = suite_path(suite);
  std::error_code ignored;
  if (std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found) {
    bad_input("--suite: cannot open ", path, ": No such file or directory",
              Hint("--list-suites names the ", "suites that are installed",
                   did_you_mean(suite, suite_names())));
  }
  TextReader file(read_text(path, {"--suite: ", "a file"}));
  std::vector<BenchProblem> problems;
  std::set<std::string> names;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    const Words words = words_of(line);
    if (words.empty()) continue;
    const std::string origin = cat("--suite: ", path, ", line ", number, ": ");
    try {
      problems.push_back(problem_of(words));
    } catch (const Error& error) {
      bad_input(origin, error);
    }
    problems.back().origin = origin;
    const std::string& name = problems.back().name;
    if (!names.insert(name).second) {
      bad_input(origin, "the name ", name, " is there twice, expected another");
    }
  }
  if (problems.empty()) bad_input("--suite: ", path, " has no problem, expected one a line");
  return problems;
}

namespace {

struct SuitesReport final : Report {
  struct Suite {
    std::string name, about, file;
    std::size_t problems = 0;
  };

  std::string text() const override {
    TextWriter text;
    for (const Suite& suite : suites) {
      text << std::left << std::setw(16) << suite.name << std::right << std::setw(3)
           << suite.problems << " problems  " << suite.about << "\n";
    }
    return text.str();
  }
  Json json() const override {
    Json json = {{"suites", Json::array()}};
    for (const auto& [name, about, file, problems] : suites) {
      json["suites"].push_back(
          {{"name", name}, {"problems", problems}, {"about", about}, {"file", file}});
    }
    return json;
  }

  std::vector<Suite> suites;
};

}  // namespace

ReportPointer list_suites() {
  auto report = std::make_unique<SuitesReport>();
  for (const std::string& name : suite_names()) {
    const std::string path = suite_path(name);
    const std::string text = read_text(path, {"--list-suites: ", "a suite"});
    report->suites.push_back({name, about(text), path, read_suite(name).size()});
  }
  if (report->suites.empty()) {
    throw Error(ErrorKind::unavailable, "--list-suites: none is installed with this convgrad",
                Hint("name a file with --suite"));
  }
  return report;
}

}  // namespace convgrad::cli
