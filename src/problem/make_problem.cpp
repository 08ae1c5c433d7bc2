// make_problem.cpp - the one validator: nothing after it checks a shape or an attribute again.
#include <algorithm>
#include <cctype>

#include "base/messages.hpp"
#include "problem/draft.hpp"

namespace convgrad::making {

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

std::size_t choose(const std::string& flag, std::string_view value, Names names) {
  const std::vector<std::string> choices(names.begin(), names.end());
  const auto found = std::ranges::find(choices, upper(value));
  if (found == choices.end()) {
    misuse(flag, ": '", value, "' is unknown, expected ", join_or(choices),
           did_you_mean(value, choices));
  }
  return static_cast<std::size_t>(found - choices.begin());
}

void check_range(const std::string& what, std::int64_t value, std::int64_t low) {
  // TensorFlow's attributes are int32; larger values are refused before they enter a product.
  constexpr std::int64_t kMaxAttribute = std::int64_t{1} << 31;
  if (value < low) bad_input(what, " is ", value, ", expected at least ", low);
  if (value > kMaxAttribute) bad_input(what, " is ", value, ", expected at most ", kMaxAttribute);
}

namespace {

void read_op_and_formats(Draft& draft) {
  const WgradAttributes& given = draft.attributes;
  WgradProblem& pb = draft.problem;
  if (given.op.empty()) misuse("--op is missing, expected conv2d, depthwise, conv3d or conv1d");
  pb.op = parse_op(given.op);
  if (!given.data_format.empty()) {
    pb.channels_last = parse_data_format(pb.op, given.data_format);
  }
  if (!given.filter_format.empty()) {
    pb.filter_format = parse_filter_format(pb.op, given.filter_format);
  }
}

void check_rank(const Draft& draft, const TensorInfo& tensor) {
  const std::size_t axes = tensor.shape.size();
  if (axes != draft.rank() + 2) {
    bad_input(tensor.name, ": ", axes, axes == 1 ? " axis " : " axes ", bracketed(tensor.shape),
              ", expected ", draft.rank() + 2, " (", data_format_name(draft.problem), ") for ",
              op_name(draft.problem.op));
  }
  for (std::size_t i = 0; i < axes; ++i) {
    if (tensor.shape[i] >= 0) continue;
    bad_input(tensor.name, ": axis ", i, " is ", tensor.shape[i], ", expected at least 0");
  }
}

void read_tensors(Draft& draft) {
  const TensorInfo &x = draft.x, &dy = draft.dy;
  WgradProblem& pb = draft.problem;
  check_rank(draft, x);
  check_rank(draft, dy);
  if (x.shape[0] != dy.shape[0]) {
    bad_input(dy.name, ": axis 0 (N) is ", dy.shape[0], ", expected ", x.shape[0], " as ", x.name,
              " has");
  }
  const std::string& out_dtype = draft.attributes.out_dtype;
  pb.x_dtype = x.dtype;
  pb.dy_dtype = dy.dtype;
  pb.dtype = common_dtype(x.dtype, dy.dtype);
  const bool alike = pb.dtype == x.dtype && pb.dtype == dy.dtype;
  pb.out_dtype = !out_dtype.empty() ? parse_dtype("--out-dtype", out_dtype)
                 : alike            ? pb.dtype
                                    : accumulator_dtype(pb.dtype);
  const std::size_t channel = draft.channel_position();
  pb.N = x.shape[0];
  pb.C = x.shape[channel];
  pb.K = dy.shape[channel];
  for (std::size_t a = draft.first(); a < 3; ++a) pb.axis[a].in = x.shape[draft.position(a)];
}

// The filter's groups have to divide C and K, and windows need its taps, so the order matters.
void read_attributes(Draft& draft) {
  read_tensors(draft);
  read_filter(draft);
  read_windows(draft);
}

void check_out_extents(const Draft& draft) {
  for (std::size_t a = draft.first(); a < 3; ++a) {
    const SpatialAxis& axis = draft.problem.axis[a];
    const AxisNames& names = kAxisNames[a];
    const std::int64_t found = draft.dy.shape[draft.position(a)];
    if (found == axis.out) continue;
    bad_input(draft.dy.name, ": axis ", draft.position(a), " (", names.out, ") is ", found,
              ", expected ", axis.out, ": ", names.in, "=", axis.in, " ", names.taps, "=",
              axis.taps, " stride ", axis.stride, " dilation ", axis.dilation, " padding ",
              axis.pad_before, ",", axis.pad_after);
  }
}

// Checks 16 times the elements of a tensor: their bytes as float64, and as much again. Extents of 0
// count as 1 so that no partial product overflows either.
void check_size(const TensorInfo& tensor) {
  std::int64_t bytes = 16;
  for (const std::int64_t n : tensor.shape) {
    bytes = checked_mul(bytes, std::max<std::int64_t>(n, 1), tensor.name);
  }
}

void check_products(const Draft& draft) {
  check_size(draft.x);
  check_size(draft.dy);
  const std::string what = "the filter gradient's size";
  std::int64_t dw_bytes = 16;
  for (const SpatialAxis& axis : draft.problem.axis) {
    dw_bytes = checked_mul(dw_bytes, axis.taps, what);
  }
  checked_mul(checked_mul(dw_bytes, draft.problem.group_c(), what), draft.problem.K, what);
}

// Takes K from the filter's shape. A shape of the wrong rank gets any K; read_filter() refuses it.
std::int64_t channels_of_filter(const Draft& draft, const std::string& filter_name) {
  const WgradAttributes& given = draft.attributes;
  const bool like = !given.filter_like.empty();
  const std::vector<std::int64_t>& shape = like ? given.filter_like : given.filter_sizes;
  if (shape.size() != draft.rank() + 2) return 1;
  if (like && draft.problem.filter_format != FilterFormat::hwio) return shape[0];
  const std::int64_t last = shape.back();
  return draft.problem.op == Op::depthwise ? checked_mul(shape[draft.rank()], last, filter_name)
                                           : last;
}

WgradProblem made(const TensorInfo& x, const TensorInfo& dy, const WgradAttributes& attributes) {
  Draft draft = {x, dy, attributes, {}};
  read_op_and_formats(draft);
  read_attributes(draft);
  check_out_extents(draft);
  check_products(draft);
  return draft.problem;
}

bool fits(const TensorInfo& x, const TensorInfo& dy, const WgradAttributes& attributes) {
  try {
    made(x, dy, attributes);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace
}  // namespace convgrad::making

namespace convgrad {

using namespace making;

FilterFormat parse_filter_format(Op op, std::string_view name) {
  const Names names = filter_formats(op);
  const auto found = std::ranges::find(names, in_tensorflow_letters(name));
  const std::size_t number = found != names.end() ? static_cast<std::size_t>(found - names.begin())
                                                  : choose("--filter-format", name, names);
  return static_cast<FilterFormat>(number);
}

WgradProblem make_problem(const TensorInfo& x, const TensorInfo& dy,
                          const WgradAttributes& attributes) {
  try {
    return made(x, dy, attributes);
  } catch (const Error& error) {
    // Unknown names and missing flags fail in every reading of the tensors, so they get no hint.
    if (error.kind() != ErrorKind::input) throw;
    throw Error(error.kind(), error.what(), hint(x, dy, attributes, fits));
  }
}

std::vector<std::int64_t> out_backprop_shape(const TensorInfo& x, const WgradAttributes& attributes,
                                             std::optional<std::int64_t> K) {
  // x stands in for dy until the windows give its extents: rank and batch are the same.
  Draft draft = {x, x, attributes, {}};
  read_op_and_formats(draft);
  check_rank(draft, x);
  const std::string& filter_name =
      attributes.filter_like.empty() ? attributes.filter_sizes_name : attributes.filter_like_name;
  draft.dy.name = K ? "--out-channels" : filter_name;
  draft.dy.shape[draft.channel_position()] = K ? *K : channels_of_filter(draft, filter_name);
  read_attributes(draft);
  for (std::size_t a = draft.first(); a < 3; ++a) {
    draft.dy.shape[draft.position(a)] = draft.problem.axis[a].out;
  }
  return draft.dy.shape;
}

}  // namespace convgrad
