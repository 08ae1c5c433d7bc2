// made_problem.cpp - see made_problem.hpp.
#include "options/made_problem.hpp"

#include <algorithm>

#include "options/arguments.hpp"
#include "options/refuse.hpp"

namespace convgrad::cli {

bool is_channels_last(const std::string& op, const std::string& data_format) {
  return data_format.empty() || parse_data_format(parse_op(op), data_format);
}

void refuse_flag(const Options& options, const std::string& flag, bool given,
                 const std::string& why) {
  if (!given || options.variables.count(flag) != 0) return;
  misuse(flag, ": given with ", why);
}

void refuse_operation(const Options& options, const ShapeOptions& shape, const std::string& why) {
  const ProblemOptions& p = options.problem;
  const std::pair<const char*, bool> flags[] = {
      {"--op", !p.op.empty()},
      {"--filter-sizes", !p.filter_sizes.empty()},
      {"--kernel", !p.kernel.empty()},
      {"--filter-like", !p.filter_like.empty()},
      {"--strides", !p.strides.empty()},
      {"--padding", !p.padding.empty()},
      {"--explicit-paddings", !p.explicit_paddings.empty()},
      {"--dilations", !p.dilations.empty()},
      {"--groups", !p.groups.empty()},
      {"--out-channels", shape.out_channels > 0},
      {"--multiplier", shape.multiplier > 0}};
  for (const auto& [flag, given] : flags) refuse_flag(options, flag, given, why);
}

void refuse_formats(const Options& options, const std::string& why) {
  const ProblemOptions& p = options.problem;
  refuse_flag(options, "--data-format", !p.data_format.empty(), why);
  refuse_flag(options, "--filter-format", !p.filter_format.empty(), why);
  refuse_flag(options, "--out-dtype", !p.out_dtype.empty(), why);
}

MadeRequest request_of_line(const Options& options, const ShapeOptions& shape) {
  refuse_operation(options, shape, "--problem, which sets it");
  const ProblemOptions& p = options.problem;
  MadeRequest request =
      parse_problem_line(words_of_line(shape.problem), "--problem: ", p.data_format);
  if (!p.filter_format.empty()) request.attributes.filter_format = p.filter_format;
  request.attributes.out_dtype = p.out_dtype;
  return request;
}

std::int64_t made_channels(const Options& options, const ShapeOptions& shape,
                           const WgradAttributes& attributes,
                           const std::vector<std::int64_t>& input_shape) {
  const bool depthwise = parse_op(attributes.op) == Op::depthwise;
  if (attributes.kernel.empty()) {
    const std::string why = "the filter's shape, which sets K";
    refuse_flag(options, "--out-channels", shape.out_channels > 0, why);
    refuse_flag(options, "--multiplier", shape.multiplier > 0, why);
    return 0;
  }
  if (!depthwise) {
    refuse_flag(options, "--multiplier", shape.multiplier > 0,
                cat("--op ", attributes.op, ", expected --out-channels"));
    if (shape.out_channels == 0) {
      misuse("--out-channels is missing, expected K with --kernel (or use --filter-sizes)");
    }
  }
  if (shape.out_channels > 0 && shape.multiplier > 0) {
    misuse("--out-channels and --multiplier are both given, expected one of them");
  }
  if (shape.out_channels > 0) return shape.out_channels;
  const std::int64_t M = std::max<std::int64_t>(shape.multiplier, 1);
  const bool last = is_channels_last(attributes.op, attributes.data_format);
  // A shape of the wrong rank is refused where it is checked.
  const std::int64_t C = input_shape.size() < 2 ? 1 : last ? input_shape.back() : input_shape[1];
  return std::max<std::int64_t>(checked_mul(C, M, "C x multiplier"), 1);
}

WgradProblem made_problem(const std::string& name, const WgradAttributes& attributes,
                          const std::vector<std::int64_t>& input_shape, DType dtype,
                          std::int64_t K) {
  const TensorInfo x = {name, dtype, input_shape};
  const auto channels = K > 0 ? std::optional(K) : std::nullopt;
  return make_problem(x, {"out_backprop", dtype, out_backprop_shape(x, attributes, channels)},
                      attributes);
}

}  // namespace convgrad::cli
