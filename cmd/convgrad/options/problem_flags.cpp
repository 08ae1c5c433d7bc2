// problem_flags.cpp - see made_problem.hpp.
#include <algorithm>

#include "options/made_problem.hpp"

namespace convgrad::cli {
namespace {

using Numbers = std::vector<std::int64_t>;

std::string list(const Numbers& numbers) {
  std::string text;
  for (const std::int64_t n : numbers) text += cat(text.empty() ? "" : ",", n);
  return text;
}

// Nothing where every number is 1, the default.
std::string unless_ones(const char* flag, const Numbers& numbers) {
  const bool ones = std::ranges::count(numbers, 1) == std::ssize(numbers);
  return ones ? "" : cat(" ", flag, " ", list(numbers));
}

}  // namespace

std::string problem_flags(const WgradProblem& problem) {
  const bool depthwise = problem.op == Op::depthwise;
  Numbers sizes = per_axis(problem, &SpatialAxis::taps);
  sizes.push_back(depthwise ? problem.C : problem.group_c());
  sizes.push_back(depthwise ? problem.multiplier() : problem.K);
  std::string text = cat("--op ", op_name(problem.op), " --filter-sizes ", list(sizes),
                         unless_ones("--strides", per_axis(problem, &SpatialAxis::stride)),
                         unless_ones("--dilations", per_axis(problem, &SpatialAxis::dilation)));
  text += " --explicit-paddings " + list(paddings(problem));
  if (!problem.channels_last) text += " --data-format " + data_format_name(problem);
  if (problem.filter_format != FilterFormat::hwio) {
    text += " --filter-format " + filter_format_name(problem);
  }
  return text;
}

}  // namespace convgrad::cli
