// made_problem.hpp - problems whose tensors are made: from --input-shape and a filter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convgrad/problem.hpp"
#include "options/options.hpp"

namespace convgrad::cli {

// Error(usage) "FLAG: given with WHY" if the flag was given, unless it comes from another layer.
void refuse_flag(const Options& options, const std::string& flag, bool given,
                 const std::string& why);

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

}  // namespace convgrad::cli
