// problem.cpp - names and counts. The validator is make_problem.cpp.
#include "convgrad/problem.hpp"

#include "base/integers.hpp"
#include "base/messages.hpp"
#include "problem/draft.hpp"

namespace convgrad {
namespace {

constexpr const char* kOps[] = {"conv2d", "depthwise", "conv3d", "conv1d"};
// tf.nn.conv1d reshapes to 2-D.
constexpr const char* kTensorflowOps[] = {"Conv2DBackpropFilter",
                                          "DepthwiseConv2dNativeBackpropFilter",
                                          "Conv3DBackpropFilterV2", "Conv2DBackpropFilter"};
// Names are those of tf.raw_ops, tf.nn and tf.compat.v1.nn, and torch.nn.grad; names that differ
// only in case and underscores stand once.
constexpr std::pair<const char*, Op> kSpellings[] = {
    {"conv2d", Op::conv2d},
    {"conv2d_backprop_filter", Op::conv2d},
    {"conv2d_backprop_filter_v2", Op::conv2d},
    {"conv2d_weight", Op::conv2d},
    {"depthwise", Op::depthwise},
    {"depthwise_conv2d", Op::depthwise},
    {"depthwise_conv2d_backprop_filter", Op::depthwise},
    {"depthwise_conv2d_native_backprop_filter", Op::depthwise},
    {"conv3d", Op::conv3d},
    {"conv3d_backprop_filter", Op::conv3d},
    {"conv3d_backprop_filter_v2", Op::conv3d},
    {"conv3d_weight", Op::conv3d},
    {"conv1d", Op::conv1d},
    {"conv1d_backprop_filter", Op::conv1d},  // TensorFlow has none, but this would be its name
    {"conv1d_weight", Op::conv1d}};

const Hint kDepthwiseSequence("use --op conv1d with --groups C");
const Hint kTransposed(
    "use --op conv2d, conv3d or conv1d with --input and --out-backprop exchanged: "
    "docs/from-python.md, Transposed convolutions");
const Hint kAnyRank("use --op conv1d, conv2d or conv3d, as many as it has spatial axes");

// Returns "CONV2DWEIGHT" for "torch.nn.grad.conv2d_weight".
std::string key_of(std::string_view name) {
  const bool has_module = name.starts_with("tf.") || name.starts_with("torch.");
  std::string key = making::upper(has_module ? name.substr(name.rfind('.') + 1) : name);
  std::erase(key, '_');
  return key;
}

std::vector<std::int64_t> tensor_shape(const WgradProblem& problem, std::int64_t channels,
                                       std::int64_t SpatialAxis::*extent) {
  std::vector<std::int64_t> shape = per_axis(problem, extent);
  shape.insert(problem.channels_last ? shape.end() : shape.begin(), channels);
  shape.insert(shape.begin(), problem.N);
  return shape;
}

DType known(std::optional<DType> dtype, std::span<const DType> expected, std::string_view flag,
            std::string_view name) {
  if (dtype) return *dtype;
  std::vector<std::string> names;
  for (const DType one : expected) names.emplace_back(dtype_name(one));
  misuse(flag, ": '", name, "' is unknown, expected ", join_or(names), did_you_mean(name, names));
}

}  // namespace

std::int64_t checked_mul(std::int64_t a, std::int64_t b, std::string_view what) {
  if (const auto product = checked_multiply(a, b)) return *product;
  bad_input(what, ": ", a, " x ", b, " does not fit in 63 bits");
}

std::int64_t checked_add(std::int64_t a, std::int64_t b, std::string_view what) {
  if (const auto sum = checked_add(a, b)) return *sum;
  bad_input(what, ": ", a, " + ", b, " does not fit in 63 bits");
}

double flop_count(const WgradProblem& problem) {
  return 2.0 * static_cast<double>(term_count(problem)) * static_cast<double>(problem.dw_count());
}

std::int64_t term_count(const WgradProblem& problem) { return problem.N * problem.out_pixels(); }

std::vector<std::int64_t> per_axis(const WgradProblem& problem, std::int64_t SpatialAxis::*field) {
  std::vector<std::int64_t> numbers;
  for (int a = 3 - problem.spatial_rank(); a < 3; ++a) {
    numbers.push_back(problem.axis[static_cast<std::size_t>(a)].*field);
  }
  return numbers;
}

std::vector<std::int64_t> x_shape(const WgradProblem& problem) {
  return tensor_shape(problem, problem.C, &SpatialAxis::in);
}
std::vector<std::int64_t> dy_shape(const WgradProblem& problem) {
  return tensor_shape(problem, problem.K, &SpatialAxis::out);
}

std::vector<std::int64_t> dw_shape(const WgradProblem& problem) {
  const bool depthwise = problem.op == Op::depthwise;
  std::vector<std::int64_t> shape = per_axis(problem, &SpatialAxis::taps);
  if (problem.filter_format == FilterFormat::hwio) {
    shape.push_back(depthwise ? problem.C : problem.group_c());
    shape.push_back(depthwise ? problem.multiplier() : problem.K);
    return shape;
  }
  const bool taps_last = problem.filter_format == FilterFormat::oihw;
  shape.insert(taps_last ? shape.begin() : shape.end(), depthwise ? 1 : problem.group_c());
  shape.insert(shape.begin(), problem.K);
  return shape;
}

std::string input_dtypes(const WgradProblem& problem) {
  const std::string x(dtype_name(problem.x_dtype));
  return problem.x_dtype == problem.dy_dtype ? x : cat(x, "*", dtype_name(problem.dy_dtype));
}

std::string_view op_name(Op op) { return kOps[static_cast<std::size_t>(op)]; }
std::string_view tensorflow_op_name(Op op) { return kTensorflowOps[static_cast<std::size_t>(op)]; }

std::optional<Op> op_from_name(std::string_view name) {
  const std::string key = key_of(name);
  for (const auto& [spelling, op] : kSpellings) {
    if (key == key_of(spelling)) return op;
  }
  return std::nullopt;
}

Op parse_op(std::string_view name) {
  if (const auto op = op_from_name(name)) return *op;
  std::vector<std::string> names(std::begin(kOps), std::end(kOps));
  // TensorFlow's last name, conv1d's, repeats the first.
  names.insert(names.end(), std::begin(kTensorflowOps), std::end(kTensorflowOps) - 1);
  const std::string key = key_of(name);
  misuse("--op: '", name, "' is not an operation, expected conv2d, depthwise, conv3d or conv1d",
         key.starts_with("DEPTHWISECONV1D")           ? kDepthwiseSequence
         : key.find("TRANSPOSE") != std::string::npos ? kTransposed
         : key == "CONVGRAD" || key == "CONV"         ? kAnyRank
                                                      : did_you_mean(name, names));
}

DType parse_dtype(std::string_view flag, std::string_view name) {
  return known(dtype_from_name(name), std::span(kStoredDTypes).first<4>(), flag, name);
}

DType parse_stored_dtype(std::string_view flag, std::string_view name) {
  return known(stored_dtype_from_name(name), kStoredDTypes, flag, name);
}

bool parse_data_format(Op op, std::string_view name) {
  if (name.empty()) return true;
  const std::string key = making::upper(name);
  if (key == "CHANNELS_LAST" || key == "CHANNELS_FIRST") return key == "CHANNELS_LAST";
  if (op == Op::depthwise && (key == "NWC" || key == "NCW")) {
    misuse("--data-format: '", name, "' is of a sequence, expected NHWC or NCHW",
           kDepthwiseSequence);
  }
  const bool blocks = key.starts_with("NCHW") && key.ends_with("C");
  if (spatial_rank(op) == 2 && (blocks || key == "CHWN")) {
    misuse("--data-format: '", name, "' is a library's own, expected NHWC or NCHW",
           Hint("in numpy ", blocks ? "x.transpose(0, 1, 4, 2, 3).reshape(N, C, H, W) is NCHW"
                                    : "x.transpose(3, 1, 2, 0) is NHWC"));
  }
  return making::choose("--data-format", name, making::data_formats(op)) == 0;
}

std::string in_tensorflow_letters(std::string_view filter_format) {
  constexpr std::string_view kTheirs = "TRSCK", kOurs = "DHWIO";
  std::string name = making::upper(filter_format);
  // K is the one letter that every format of theirs has and none of TensorFlow's.
  if (name.find('K') == name.npos) return name;
  for (char& letter : name) {
    const std::size_t at = kTheirs.find(letter);
    if (at != kTheirs.npos) letter = kOurs[at];
  }
  return name;
}

namespace making {

Names data_formats(Op op) {
  static constexpr const char* kByRank[][2] = {
      {"NWC", "NCW"}, {"NHWC", "NCHW"}, {"NDHWC", "NCDHW"}};
  return kByRank[spatial_rank(op) - 1];
}

Names filter_formats(Op op) {
  static constexpr const char* kByRank[][3] = {
      {"WIO", "OIW", "OWI"}, {"HWIO", "OIHW", "OHWI"}, {"DHWIO", "OIDHW", "ODHWI"}};
  return kByRank[spatial_rank(op) - 1];
}

}  // namespace making

std::string data_format_name(const WgradProblem& problem) {
  return making::data_formats(problem.op)[problem.channels_last ? 0 : 1];
}

std::string filter_format_name(const WgradProblem& problem) {
  return making::filter_formats(problem.op)[static_cast<std::size_t>(problem.filter_format)];
}

}  // namespace convgrad
