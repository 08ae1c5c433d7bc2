// made_problem.hpp - problems whose tensors are made, from --input-shape and a filter or from a
// line of another program; and the flags that say a problem.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convgrad/problem.hpp"
#include "options/options.hpp"

namespace convgrad::cli {

// A problem as it is asked for.
struct MadeRequest {
  std::string name;  // "" if it has none
  WgradAttributes attributes;
  std::vector<std::int64_t> input_shape;
  std::int64_t K = 0;          // 0: as the filter's shape says
  std::optional<DType> dtype;  // if the request says it
};

// Error(usage) "FLAG: given with WHY" if the flag was given, not a variable.
void refuse_flag(const Options& options, const std::string& flag, const std::string& why);
// The same for every flag of that kind.
void refuse_flags(const Options& options, About about, const std::string& why);

// A line as another program spells a problem, a descriptor of oneDNN's benchdnn or a command line
// of MIOpenDriver, and not one of a suite's own columns.
bool is_problem_line(const Words& words);
// What its words say. data_format, unless it is empty, is taken instead of the line's layout.
// Error(usage) names the word that cannot be said here; lead is put in front of it.
MadeRequest parse_problem_line(const Words& words, const std::string& lead,
                               const std::string& data_format = "");

// Of --problem, with the formats that other flags give it. Error(usage) if they give more.
MadeRequest request_of_line(const Options& options, const ShapeOptions& shape);

// "" is the default; Error(usage) for unknown names.
bool is_channels_last(const std::string& op, const std::string& data_format);

// K of --kernel with --out-channels or --multiplier; 0 where the filter's shape says it.
std::int64_t made_channels(const Options& options, const ShapeOptions& shape,
                           const WgradAttributes& attributes,
                           const std::vector<std::int64_t>& input_shape);

// The problem whose dy has the shape that follows, with K channels (0: as the filter's shape says).
// name is what messages call the input.
WgradProblem made_problem(const std::string& name, const WgradAttributes& attributes,
                          const std::vector<std::int64_t>& input_shape, DType dtype,
                          std::int64_t K);

// "--op conv2d --filter-sizes 3,3,8,16 --strides 2,2 --padding same ...": everything but the files
// and the dtypes; what is the default is left out. padding as it was spelled, or "" for explicit
// paddings.
std::string problem_flags(const WgradProblem& problem, const std::string& padding = "");

// The same of a problem whose tensors are made, with x's shape and the dtypes that are not the
// default: for bench and generate.
std::string made_flags(const WgradProblem& problem);

}  // namespace convgrad::cli
