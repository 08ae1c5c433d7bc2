// made_problem.cpp - see made_problem.hpp.
#include "options/made_problem.hpp"

#include <algorithm>

#include "options/arguments.hpp"
#include "options/refuse.hpp"

namespace convgrad::cli {

bool is_channels_last(const std::string& op, const std::string& data_format) {
  return data_format.empty() || parse_data_format(parse_op(op), data_format);
}

void refuse_flag(const Options& options, const std::string& flag, const std::string& why) {
  if (std::ranges::count(options.given, flag, &GivenFlag::name) == 0) return;
  misuse(flag, ": given with ", why);
}

void refuse_flags(const Options& options, About about, const std::string& why) {
  for (const GivenFlag& flag : options.given) {
    if (flag.about == about) refuse_flag(options, flag.name, why);
  }
}

MadeRequest request_of_line(const Options& options, const ShapeOptions& shape) {
  refuse_flags(options, About::operation, "--problem, which sets it");
  const ProblemOptions& p = options.problem;
  MadeRequest request = parse_problem_line(words_of_line(shape.line), "--problem: ", p.data_format);
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
    refuse_flag(options, "--out-channels", why);
    refuse_flag(options, "--multiplier", why);
    return 0;
  }
  if (!depthwise) {
    refuse_flag(options, "--multiplier", cat("--op ", attributes.op, ", expected --out-channels"));
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
