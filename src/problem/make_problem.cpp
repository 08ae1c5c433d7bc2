// make_problem.cpp - the one validator: nothing after it checks a shape or an attribute again.
#include <algorithm>
#include <array>
#include <cctype>

#include "base/integers.hpp"
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

namespace {

struct AxisNames {
  const char *in, *out, *taps;
};
constexpr AxisNames kAxisNames[3] = {{"D", "Z", "T"}, {"H", "P", "R"}, {"W", "Q", "S"}};

// TensorFlow's attributes are int32; larger values are refused before they enter a product.
constexpr std::int64_t kMaxAttribute = std::int64_t{1} << 31;

void check_range(const std::string& what, std::int64_t value, std::int64_t low) {
  if (value < low) bad_input(what, " is ", value, ", expected at least ", low);
  if (value > kMaxAttribute) bad_input(what, " is ", value, ", expected at most ", kMaxAttribute);
}

std::int64_t reach_of(const SpatialAxis& axis, const std::string& what) {
  return checked_add(checked_mul(axis.taps - 1, axis.dilation, what), 1, what);
}

// The taps and groups, from --kernel, --filter-sizes or --filter-like.

using Shape = std::vector<std::int64_t>;

// Depthwise has a group for each channel; without channels it has one, which is empty.
std::int64_t depthwise_groups(const WgradProblem& pb) { return std::max<std::int64_t>(pb.C, 1); }

void set_groups(Draft& draft, const std::string& flag, std::int64_t groups) {
  WgradProblem& pb = draft.problem;
  if (groups < 1) bad_input(flag, " is ", groups, ", expected at least 1");
  if (pb.op == Op::depthwise && groups != depthwise_groups(pb)) {
    bad_input(flag, " is ", groups, ", but depthwise has one group per channel: C=", pb.C,
              Hint("leave it out"));
  }
  if (pb.C % groups != 0) {
    bad_input(flag, ": ", groups, " groups do not divide the input's C=", pb.C);
  }
  if (pb.K % groups != 0) {
    bad_input(flag, ": ", groups, " groups do not divide out_backprop's K=", pb.K, " (",
              draft.dy.name, ")");
  }
  pb.groups = groups;
}

std::string axes_of(const Shape& shape) {
  return cat(shape.size(), shape.size() == 1 ? " axis" : " axes");
}

void read_kernel(Draft& draft) {
  const Shape& kernel = draft.attributes.kernel;
  const WgradProblem& pb = draft.problem;
  const std::size_t rank = draft.rank();
  if (kernel.size() != 1 && kernel.size() != rank) {
    bad_input("--kernel: ", counted(kernel.size(), "number"), " ", bracketed(kernel),
              ", expected 1", rank > 1 ? cat(" or ", rank) : "", " (",
              std::string_view("T,R,S").substr(2 * draft.first()), ")");
  }
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t a = draft.first() + i;
    const std::int64_t taps = kernel.size() == 1 ? kernel[0] : kernel[i];
    check_range(cat("--kernel: ", kAxisNames[a].taps), taps, 1);
    draft.problem.axis[a].taps = taps;
  }
  if (pb.op == Op::depthwise && pb.C == 0) {
    bad_input("--kernel: C is 0 (", draft.x.name, "), so the multiplier does not follow from K",
              Hint("give --filter-sizes R,S,0,M"));
  }
  if (pb.op == Op::depthwise && pb.K % pb.C != 0) {
    bad_input(draft.dy.name, ": axis ", draft.channel_position(), " (K) is ", pb.K,
              ", expected a multiple of C=", pb.C, " as ", draft.x.name, " has");
  }
  set_groups(draft, "--groups",
             draft.attributes.groups.value_or(pb.op == Op::depthwise ? pb.C : 1));
}

// Reads TensorFlow's [.., C, M].
void read_depthwise_channels(Draft& draft, const std::string& flag, std::int64_t c,
                             std::int64_t m) {
  WgradProblem& pb = draft.problem;
  if (c != pb.C)
    bad_input(flag, "[2] (C) is ", c, ", expected ", pb.C, " as ", draft.x.name, " has");
  if (checked_mul(c, m, flag) != pb.K) {
    bad_input(draft.dy.name, ": axis ", draft.channel_position(), " (K) is ", pb.K, ", expected ",
              c * m, " = C*M from ", flag, " C=", c, " M=", m);
  }
  if (c == 0) pb.empty_multiplier = m;
  set_groups(draft, flag, depthwise_groups(pb));
}

void read_channels(Draft& draft, const std::string& flag, const Shape& shape, std::size_t in,
                   std::size_t out) {
  const WgradProblem& pb = draft.problem;
  // A depthwise filter that is not HWIO has 1 channel for each group, also where C is 0.
  const std::int64_t of_none = pb.op == Op::depthwise ? 1 : 0;
  if (pb.op == Op::depthwise && pb.C == 0 && pb.K != 0) {
    bad_input(draft.dy.name, ": axis ", draft.channel_position(), " (K) is ", pb.K,
              ", expected 0, as C is 0 in ", draft.x.name);
  }
  if (pb.C == 0 && shape[in] != of_none) {
    bad_input(flag, "[", in, "] (C/groups) is ", shape[in], ", expected ", of_none,
              ", as C is 0 in ", draft.x.name);
  }
  if (pb.C > 0 && (shape[in] == 0 || pb.C % shape[in] != 0)) {
    bad_input(flag, "[", in, "] (C/groups) is ", shape[in],
              ", expected a divisor of the input's C=", pb.C, " (", draft.x.name, ")");
  }
  if (shape[out] != pb.K) {
    bad_input(flag, "[", out, "] (K) is ", shape[out], ", expected ", pb.K, " as ", draft.dy.name,
              " has");
  }
  // No channels can be any number of empty groups.
  set_groups(draft, flag, pb.C > 0 ? pb.C / shape[in] : draft.attributes.groups.value_or(1));
}

void read_shape(Draft& draft, const std::string& flag, const Shape& shape, FilterFormat format) {
  const WgradProblem& pb = draft.problem;
  const std::size_t rank = draft.rank();
  if (shape.size() != rank + 2) {
    const bool of_file = !draft.attributes.filter_like.empty();
    const bool of_images = shape.size() == rank + 3 && shape[0] == pb.N;
    bad_input(flag, ": ", of_file ? axes_of(shape) : counted(shape.size(), "number"), " ",
              bracketed(shape), ", expected ", rank + 2, " for ", op_name(pb.op),
              !of_file    ? Hint()
              : of_images ? Hint("make images groups, x and dy as [1,H,W,N*C] with --groups N")
                          : Hint("reshape it to ", filter_format_name(pb)));
  }
  struct Places {
    std::size_t taps, in, out;
  };
  const Places at = format == FilterFormat::hwio   ? Places{0, rank, rank + 1}
                    : format == FilterFormat::oihw ? Places{2, 1, 0}
                                                   : Places{1, rank + 1, 0};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool is_tap = at.taps <= i && i < at.taps + rank;
    check_range(cat(flag, "[", i, "]"), shape[i], is_tap ? 1 : 0);
    if (is_tap) draft.problem.axis[draft.first() + i - at.taps].taps = shape[i];
  }
  if (pb.op == Op::depthwise && format == FilterFormat::hwio) {
    read_depthwise_channels(draft, flag, shape[at.in], shape[at.out]);
  } else {
    read_channels(draft, flag, shape, at.in, at.out);
  }
  const std::optional<std::int64_t>& groups = draft.attributes.groups;
  if (groups && *groups != pb.groups) {
    bad_input("--groups is ", *groups, ", but C=", pb.C, " and ", flag, " ", bracketed(shape),
              " give ", pb.groups);
  }
}

void read_filter(Draft& draft) {
  const WgradAttributes& given = draft.attributes;
  const auto count = std::ranges::count(
      std::array{given.filter_sizes.empty(), given.kernel.empty(), given.filter_like.empty()},
      false);
  if (count != 1) {
    misuse(count == 0 ? "the filter's size is missing" : "the filter's size is given twice",
           ", expected one of --kernel 3,3, --filter-sizes ",
           std::string_view("T,R,S,C,K").substr(2 * draft.first()), " and --filter-like W.npy");
  }
  if (!given.kernel.empty()) return read_kernel(draft);
  if (!given.filter_sizes.empty()) {
    return read_shape(draft, given.filter_sizes_name, given.filter_sizes, FilterFormat::hwio);
  }
  read_shape(draft, given.filter_like_name, given.filter_like, draft.problem.filter_format);
}

// Strides, dilations and padding, and the output extents that follow from them.

enum class Padding : std::uint8_t { same, valid, explicit_pads, same_upper, same_lower };
// The last two are ONNX's.
constexpr const char* kPaddings[] = {"SAME", "VALID", "EXPLICIT", "SAME_UPPER", "SAME_LOWER"};

void read_vector(Draft& draft, const std::string& flag, const std::vector<std::int64_t>& values,
                 std::int64_t SpatialAxis::*field) {
  if (values.empty()) return;
  const std::size_t rank = draft.rank();
  const bool full = values.size() == rank + 2;
  if (values.size() != 1 && values.size() != rank && !full) {
    bad_input(flag, ": ", counted(values.size(), "number"), " ", bracketed(values), ", expected 1",
              rank > 1 ? cat(", ", rank) : "", " or ", rank + 2, " (",
              data_format_name(draft.problem), ") for ", op_name(draft.problem.op));
  }
  if (full && (values[0] != 1 || values[draft.channel_position()] != 1)) {
    bad_input(flag, ": ", bracketed(values), " in ", data_format_name(draft.problem),
              " order, expected 1 for the batch and channel axes");
  }
  for (std::size_t a = draft.first(); a < 3; ++a) {
    const std::int64_t value = full                 ? values[draft.position(a)]
                               : values.size() == 1 ? values[0]
                                                    : values[a - draft.first()];
    check_range(cat(flag, ": ", kAxisNames[a].in), value, 1);
    draft.problem.axis[a].*field = value;
  }
}

// (before, after) pairs. Only where one number may stand for both is one of an axis legal.
std::vector<std::int64_t> padding_pairs(const WgradAttributes& given, std::size_t rank) {
  if (!given.explicit_one_for_both || given.explicit_paddings.size() != rank) {
    return given.explicit_paddings;
  }
  std::vector<std::int64_t> pairs;
  for (const std::int64_t both : given.explicit_paddings) pairs.insert(pairs.end(), 2, both);
  return pairs;
}

void read_explicit_paddings(Draft& draft) {
  const std::string& flag = draft.attributes.explicit_paddings_name;
  const std::vector<std::int64_t> pads = padding_pairs(draft.attributes, draft.rank());
  const std::size_t spatial = 2 * draft.rank(), all = spatial + 4;
  if (pads.empty()) {
    misuse(flag, " is missing, expected ", spatial,
           " numbers (before,after for each spatial axis) with --padding EXPLICIT");
  }
  const bool full = pads.size() == all;
  if (pads.size() != 1 && pads.size() != spatial && !full) {
    bad_input(
        flag, ": ", counted(pads.size(), "number"), ", expected ", all,
        " (before,after for each axis of ", data_format_name(draft.problem), ") or ", spatial,
        " (spatial axes)",
        draft.attributes.explicit_one_for_both ? ", or one for each spatial axis, or one" : "");
  }
  for (std::size_t i = 0; i < pads.size(); ++i) {
    check_range(cat(flag, "[", i, "]"), pads[i], -kMaxAttribute);  // a negative number crops
  }
  for (const std::size_t at : {std::size_t{0}, draft.channel_position()}) {
    if (!full || (pads[2 * at] == 0 && pads[2 * at + 1] == 0)) continue;
    bad_input(flag, ": ", bracketed(pads), ", expected 0,0 for the batch and channel axes");
  }
  for (std::size_t a = draft.first(); a < 3; ++a) {
    const std::size_t at = full ? draft.position(a) : a - draft.first();
    draft.problem.axis[a].pad_before = pads.size() == 1 ? pads[0] : pads[2 * at];
    draft.problem.axis[a].pad_after = pads.size() == 1 ? pads[0] : pads[2 * at + 1];
  }
}

Padding read_padding(Draft& draft) {
  const WgradAttributes& given = draft.attributes;
  Padding padding = Padding::explicit_pads;
  if (!given.padding.empty()) {
    const SpatialAxis& w = draft.problem.axis[2];
    if (upper(given.padding) == "CAUSAL" && draft.rank() == 1) {
      misuse("--padding: '", given.padding, "' is unknown",
             Hint("it is -p '[[", (w.taps - 1) * w.dilation, ",0]]'"));
    }
    padding = static_cast<Padding>(choose("--padding", given.padding, kPaddings));
  } else if (given.explicit_paddings.empty()) {
    misuse("--padding is missing, expected SAME, VALID, EXPLICIT or numbers");
  }
  if (padding == Padding::explicit_pads) {
    read_explicit_paddings(draft);
  } else if (!given.explicit_paddings.empty()) {
    misuse("--explicit-paddings: given with --padding ", upper(given.padding),
           ", expected only with EXPLICIT");
  }
  return padding;
}

void set_out_extent(Draft& draft, std::size_t a, Padding padding) {
  SpatialAxis& axis = draft.problem.axis[a];
  const AxisNames& names = kAxisNames[a];
  const std::string what = cat(names.taps, ", dilation and stride along ", names.in);
  if (padding != Padding::valid && padding != Padding::explicit_pads) {
    pad_same(axis, what);
    // Nothing is computed without rows of x, on whose sides SAME and SAME_LOWER would differ.
    if (padding != Padding::same_lower || std::ranges::count(draft.x.shape, 0) > 0) return;
    std::swap(axis.pad_before, axis.pad_after);
    // A problem's line gives these as numbers.
    check_range("--padding SAME_LOWER: the padding", axis.pad_before, 0);
    return;
  }
  const std::int64_t reach = reach_of(axis, what);
  const std::int64_t padded =
      checked_add(checked_add(axis.in, axis.pad_before, what), axis.pad_after, what);
  const std::int64_t room = padded - reach;
  // floor(room / stride) + 1: one pixel short of a tap is an empty output, less is an error.
  const std::int64_t steps = room >= 0 ? room / axis.stride : -((-room - 1) / axis.stride) - 1;
  if (steps < -1) {
    bad_input(draft.x.name, ": ", names.in, " is ", axis.in, " with padding ", axis.pad_before, ",",
              axis.pad_after, ", but the filter reaches over ", reach, " (", names.taps, "=",
              axis.taps, ", dilation ", axis.dilation, ")",
              Hint("use a smaller filter or more padding"));
  }
  axis.out = steps + 1;
}

void read_op_and_formats(Draft& draft) {
  const WgradAttributes& given = draft.attributes;
  WgradProblem& pb = draft.problem;
  if (given.op.empty()) misuse("--op is missing, expected conv2d, depthwise, conv3d or conv1d");
  pb.op = parse_op(given.op);
  pb.channels_last = parse_data_format(pb.op, given.data_format);
  pb.filter_format = parse_filter_format(pb.op, given.filter_format);
}

void check_rank(const Draft& draft, const TensorInfo& tensor) {
  const std::size_t axes = tensor.shape.size();
  if (axes != draft.rank() + 2) {
    bad_input(tensor.name, ": ", axes_of(tensor.shape), " ", bracketed(tensor.shape), ", expected ",
              draft.rank() + 2, " (", data_format_name(draft.problem), ") for ",
              op_name(draft.problem.op), rank_hint(draft, tensor.shape));
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

// The filter's groups have to divide C and K, and outputs need its taps, so the order matters.
void read_attributes(Draft& draft) {
  read_tensors(draft);
  read_filter(draft);
  read_vector(draft, "--strides", draft.attributes.strides, &SpatialAxis::stride);
  read_vector(draft, "--dilations", draft.attributes.dilations, &SpatialAxis::dilation);
  const Padding padding = read_padding(draft);
  for (std::size_t a = draft.first(); a < 3; ++a) set_out_extent(draft, a, padding);
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
              axis.pad_before, ",", axis.pad_after, transposed_hint(draft));
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
  check_size(x);
  check_size(dy);
  const WgradProblem& pb = draft.problem;
  std::int64_t dw_bytes = 16;
  for (const std::int64_t n :
       {pb.axis[0].taps, pb.axis[1].taps, pb.axis[2].taps, pb.group_c(), pb.K}) {
    dw_bytes = checked_mul(dw_bytes, n, "the filter gradient's size");
  }
  return pb;
}

}  // namespace

bool fits(const TensorInfo& x, const TensorInfo& dy, const WgradAttributes& attributes) {
  try {
    made(x, dy, attributes);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void pad_same(SpatialAxis& axis, const std::string& what) {
  const std::int64_t reach = reach_of(axis, what);
  axis.out = ceil_div(axis.in, axis.stride);
  // (out-1)*stride < in, so only the sum can overflow. No output, no padding.
  const std::int64_t last = axis.out > 0 ? (axis.out - 1) * axis.stride : 0;
  const std::int64_t total =
      axis.out > 0 ? std::max<std::int64_t>(checked_add(last, reach, what) - axis.in, 0) : 0;
  axis.pad_before = total / 2;
  axis.pad_after = total - total / 2;
}

}  // namespace convgrad::making

namespace convgrad {

using namespace making;

FilterFormat parse_filter_format(Op op, std::string_view name) {
  if (name.empty()) return FilterFormat::hwio;
  const Names names = filter_formats(op);
  const std::string ours = in_tensorflow_letters(name);
  const bool known = std::ranges::count(names, ours) > 0;
  return static_cast<FilterFormat>(choose("--filter-format", known ? ours : name, names));
}

WgradProblem make_problem(const TensorInfo& x, const TensorInfo& dy,
                          const WgradAttributes& attributes) {
  try {
    return made(x, dy, attributes);
  } catch (const Error& error) {
    // Unknown names and missing flags fail in every reading of the tensors, so they get no hint.
    if (error.kind() != ErrorKind::input) throw;
    const Hint found = hint(x, dy, attributes);
    if (found.text().empty()) throw;
    throw Error(error.kind(), error.what(), found);
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
