// bench_suite.cpp - suites of problems: a line each, columns separated by spaces or tabs.
#include <cstdio>
#include <filesystem>
#include <iomanip>
#include <set>
#include <sstream>

#include "base/suggest.hpp"
#include "bench/bench.hpp"
#include "files/text_file.hpp"
#include "options/arguments.hpp"
#include "options/made_problem.hpp"
#include "options/refuse.hpp"
#include "options/suites.hpp"

namespace convgrad::cli {
namespace {

// Columns; kCount may be left out.
enum { kName, kOp, kLayout, kN, kIn, kC, kK, kKernel, kStride, kDilation, kPadding, kGroups };
constexpr std::size_t kCount = 12;
constexpr std::int64_t kMostConvolutions = 1'000'000'000'000;  // of a line: their sum is printed

std::int64_t number_of(const char* column, const std::string& word, std::int64_t low) {
  const std::vector<std::int64_t> numbers = parse_numbers(column, {word});
  if (numbers.size() != 1 || numbers[0] < low) {
    bad_input(column, ": '", word, "', expected one whole number of at least ", low);
  }
  return numbers[0];
}

// Spatial extents, one for each axis or one for all.
std::vector<std::int64_t> extents_of(const Words& words, std::size_t rank) {
  std::vector<std::int64_t> extents = parse_numbers("in_spatial", {words[kIn]});
  if (extents.size() == 1) extents.resize(rank, extents[0]);
  if (extents.size() != rank) {
    bad_input("in_spatial: ", extents.size(), " numbers, expected 1 or ", rank, " for ",
              words[kOp]);
  }
  return extents;
}

BenchProblem problem_of(const Words& words) {
  if (is_problem_line(words)) return {parse_problem_line(words, ""), 1, ""};
  if (words.size() != kCount && words.size() != kCount + 1) {
    bad_input(words.size(), words.size() == 1 ? " column" : " columns",
              ", expected name op layout N in_spatial C K_or_mult kernel stride dilation padding "
              "groups, and count if it is not 1, or a line of benchdnn or MIOpenDriver");
  }
  BenchProblem problem;
  problem.name = words[kName];
  WgradAttributes& a = problem.attributes;
  a.op = words[kOp];
  const Op op = parse_op(a.op);
  a.data_format = words[kLayout];
  a.kernel = parse_numbers("kernel", {words[kKernel]});
  a.strides = parse_numbers("stride", {words[kStride]});
  a.dilations = parse_numbers("dilation", {words[kDilation]});
  read_padding("padding", words[kPadding], a);
  const std::int64_t C = number_of("C", words[kC], 1);
  // Depthwise has a group for each channel; its column is often 0.
  const std::int64_t groups = number_of("groups", words[kGroups], op == Op::depthwise ? 0 : 1);
  if (groups != 0) a.groups = groups;
  problem.K = number_of("K_or_mult", words[kK], 1);
  if (op == Op::depthwise) problem.K = checked_mul(C, problem.K, "C x multiplier");
  problem.input_shape = extents_of(words, static_cast<std::size_t>(spatial_rank(op)));
  const bool last = is_channels_last(a.op, a.data_format);
  problem.input_shape.insert(last ? problem.input_shape.end() : problem.input_shape.begin(), C);
  problem.input_shape.insert(problem.input_shape.begin(), number_of("N", words[kN], 0));
  if (words.size() > kCount) problem.count = number_of("count", words[kCount], 1);
  if (problem.count > kMostConvolutions) {
    bad_input("count: ", problem.count, ", expected at most ", kMostConvolutions);
  }
  return problem;
}

Words columns_of(const std::string& line) {
  std::size_t end = line.find('#');
  // MIOpenDriver has a flag of that name.
  while (end != std::string::npos && end > 0 && line[end - 1] == '-') end = line.find('#', end + 1);
  return words_of_line(line.substr(0, end));
}

// The first comment that is not the names of columns.
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
    bad_input("--suite: cannot open ", path,
              ": No such file or directory; --list-suites names the ", "suites that are installed",
              did_you_mean(suite, suite_names()));
  }
  TextReader file(read_text(path, {"--suite: ", "a file"}));
  std::vector<BenchProblem> problems;
  std::set<std::string> names;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    const Words words = columns_of(line);
    if (words.empty()) continue;
    const std::string origin = cat("--suite: ", path, ", line ", number, ": ");
    try {
      problems.push_back(problem_of(words));
    } catch (const Error& error) {
      bad_input(origin, error.what());
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

void list_suites(const BenchOptions& options, Json& report) {
  Json suites = Json::array();
  for (const std::string& name : suite_names()) {
    const std::string path = suite_path(name);
    suites.push_back({{"name", name},
                      {"problems", read_suite(name).size()},
                      {"about", about(read_text(path, {"--list-suites: ", "a suite"}))},
                      {"file", path}});
  }
  if (suites.empty()) {
    throw Error(ErrorKind::unavailable, "--list-suites: none is installed with this convgrad; ",
                "name a file with --suite");
  }
  if (options.json != "-") {
    TextWriter text;
    for (const Json& suite : suites) {
      text << std::left << std::setw(16) << suite["name"].get<std::string>() << std::right
           << std::setw(3) << suite["problems"].get<std::int64_t>() << " problems  "
           << suite["about"].get<std::string>() << "\n";
    }
    std::fputs(text.str().c_str(), stdout);
  }
  report["suites"] = std::move(suites);
}

}  // namespace convgrad::cli
