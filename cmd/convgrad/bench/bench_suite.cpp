// bench_suite.cpp - suites of problems: a line each, columns separated by spaces or tabs.
#include <set>
#include <sstream>

#include "bench/bench.hpp"
#include "files/text_file.hpp"
#include "options/arguments.hpp"
#include "options/made_problem.hpp"
#include "options/refuse.hpp"

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
  if (words.size() != kCount && words.size() != kCount + 1) {
    bad_input(words.size(), words.size() == 1 ? " column" : " columns",
              ", expected name op layout N in_spatial C K_or_mult kernel stride dilation padding "
              "groups, and count if it is not 1");
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
  TextReader text(line.substr(0, line.find('#')));
  Words words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

}  // namespace

std::vector<BenchProblem> read_suite(const std::string& path) {
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
    if (!names.insert(words[kName]).second) {
      bad_input(origin, "the name ", words[kName], " is there twice, expected another");
    }
  }
  if (problems.empty()) bad_input("--suite: ", path, " has no problem, expected one a line");
  return problems;
}

}  // namespace convgrad::cli
