// made_problem.cpp - see made_problem.hpp.
#include "options/made_problem.hpp"

#include <algorithm>

#include "options/arguments.hpp"
#include "options/attributes.hpp"

namespace convgrad::cli {
namespace {

// Returns K, or 0 where the filter's shape says it.
std::int64_t made_channels(const Options& options, const ShapeOptions& shape,
                           const WgradAttributes& attributes, const TensorInfo& x) {
  if (attributes.kernel.empty()) {
    const std::string why = "the filter's shape, which sets K";
    refuse_flag(options, "--out-channels", why);
    refuse_flag(options, "--multiplier", why);
    return 0;
  }
  const Op op = parse_op(attributes.op);
  if (op != Op::depthwise) {
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
  const bool last = attributes.data_format.empty() || parse_data_format(op, attributes.data_format);
  // A shape of the wrong rank is refused where it is checked.
  const std::int64_t C = x.shape.size() < 2 ? 1 : last ? x.shape.back() : x.shape[1];
  return std::max<std::int64_t>(checked_mul(C, M, "C x multiplier"), 1);
}

}  // namespace

void refuse_flag(const Options& options, const std::string& flag, const std::string& why) {
  if (std::ranges::count(options.given, flag, &GivenFlag::name) == 0) return;
  misuse(flag, ": given with ", why);
}

void refuse_flags(const Options& options, About about, const std::string& why) {
  for (const GivenFlag& flag : options.given) {
    if (flag.about == about) refuse_flag(options, flag.name, why);
  }
}

NamedProblem read_problem(const std::string& line) {
  const Words words = words_of_line(line);
  if (is_foreign(words)) return read_foreign(words);
  return {"", make_problem(parse_problem(line))};
}

WgradProblem problem_of_line(const Options& options) {
  refuse_flags(options, About::operation, "--problem, which sets it");
  const ProblemOptions& o = options.problem;
  WgradProblem problem;
  try {
    problem = read_problem(o.line).problem;
  } catch (const Error& error) {
    throw Error(error.kind(), "--problem: ", error);
  }
  if (!o.data_format.empty()) problem.channels_last = parse_data_format(problem.op, o.data_format);
  if (!o.filter_format.empty()) {
    problem.filter_format = parse_filter_format(problem.op, o.filter_format);
  }
  if (!o.out_dtype.empty()) problem.out_dtype = parse_dtype("--out-dtype", o.out_dtype);
  return problem;
}

WgradProblem with_dtype(WgradProblem problem, DType dtype) {
  if (problem.x_dtype != problem.dtype || problem.dy_dtype != problem.dtype) {
    misuse("tensors of ", input_dtypes(problem), " are not made, expected one dtype of 16 bits or ",
           "more for both");
  }
  if (problem.out_dtype == problem.dtype) problem.out_dtype = dtype;
  problem.dtype = problem.x_dtype = problem.dy_dtype = dtype;
  return problem;
}

WgradProblem made_problem(const std::string& name, const Options& options,
                          const ShapeOptions& shape, DType dtype) {
  check_op(options.problem);
  const WgradAttributes attributes = attributes_of(options.problem);
  const TensorInfo x = {name, dtype, parse_numbers(name, shape.input_shape)};
  if (x.shape.empty()) misuse(name, " is missing, expected the input's, e.g. 2,8,8,3");
  const std::int64_t K = made_channels(options, shape, attributes, x);
  const auto channels = K > 0 ? std::optional(K) : std::nullopt;
  return make_problem(x, {"out_backprop", dtype, out_backprop_shape(x, attributes, channels)},
                      attributes);
}

}  // namespace convgrad::cli
