// make_problem.cpp - the one validator: nothing after it checks a shape or an attribute again.
#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include "base/suggest.hpp"
#include "convgrad/problem.hpp"

namespace convgrad {
namespace {

using Numbers = std::vector<std::int64_t>;

// TensorFlow's attributes are int32; larger values are refused before they enter a product.
constexpr std::int64_t kMaxAttribute = std::int64_t{1} << 31;

struct AxisNames {
  const char* in;
  const char* out;
  const char* taps;
};
constexpr AxisNames kNames[3] = {{"D", "Z", "T"}, {"H", "P", "R"}, {"W", "Q", "S"}};

// In the order of the enumerators, channels_last first.
using Choices = std::span<const char* const>;
constexpr const char* kDataFormats[] = {"NHWC", "NCHW"};
constexpr const char* kDataFormats3d[] = {"NDHWC", "NCDHW"};
constexpr const char* kFilterFormats[] = {"HWIO", "OIHW", "OHWI"};
constexpr const char* kFilterFormats3d[] = {"DHWIO", "OIDHW", "ODHWI"};
constexpr const char* kPaddings[] = {"SAME", "VALID", "EXPLICIT"};

std::string list(const Numbers& numbers) {
  std::string text = "[";
  for (const std::int64_t n : numbers) text += cat(text.size() > 1 ? "," : "", n);
  return text + "]";
}

std::string counted(std::size_t count, const char* noun) {
  return cat(count, " ", noun, count == 1 ? "" : "s");
}

std::string upper(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

[[noreturn]] void bad(const std::string& message) { throw Error(ErrorKind::input, message); }
[[noreturn]] void misuse(const std::string& message) { throw Error(ErrorKind::usage, message); }

std::size_t choose(const std::string& flag, const std::string& value, Choices names) {
  const std::vector<std::string> choices(names.begin(), names.end());
  const std::string key = upper(value);
  const auto found = std::find(choices.begin(), choices.end(), key);
  if (found == choices.end()) {
    misuse(cat(flag, ": '", value, "' is unknown, expected ", join_or(choices),
               did_you_mean(value, choices)));
  }
  return static_cast<std::size_t>(found - choices.begin());
}

// Everything make_problem works on, so that each check below is a function of its own.
class Maker {
 public:
  Maker(const TensorInfo& x, const TensorInfo& dy, const WgradAttributes& attributes)
      : x_(x), dy_(dy), attr_(attributes) {}

  WgradProblem make() {
    read_op();
    read_attributes();
    check_out_extents();
    check_products();
    return pb_;
  }

  // dy's shape: everything of make() but the comparison with the dy that is there.
  Numbers out_backprop_shape(std::int64_t K) {
    read_op();
    check_rank(x_);
    dy_ = {K > 0 ? "--out-channels" : filter_name(), x_.dtype, x_.shape};
    dy_.shape[channel_position()] = K > 0 ? K : channels_of_filter();
    read_attributes();
    for (std::size_t a = first(); a < 3; ++a) dy_.shape[position(a)] = pb_.axis[a].out;
    return dy_.shape;
  }

 private:
  void read_op() {
    if (attr_.op.empty()) misuse("--op is missing, expected conv2d, depthwise or conv3d");
    pb_.op = parse_op(attr_.op);
    rank_ = pb_.spatial_rank();
    read_formats();
  }

  void read_attributes() {
    read_tensors();
    read_filter();
    read_vector("--strides", attr_.strides, &SpatialAxis::stride);
    read_vector("--dilations", attr_.dilations, &SpatialAxis::dilation);
    read_padding();
  }

  // What K follows from where it is not given.
  const std::string& filter_name() const {
    return attr_.filter_like.empty() ? attr_.filter_sizes_name : attr_.filter_like_name;
  }

  // K by the filter's shape. A shape that is not one gets some K; read_filter() refuses it.
  std::int64_t channels_of_filter() const {
    const bool like = !attr_.filter_like.empty();
    const Numbers& shape = like ? attr_.filter_like : attr_.filter_sizes;
    if (shape.size() != rank() + 2) return 1;
    if (like && pb_.filter_format != FilterFormat::hwio) return shape[0];
    const std::int64_t last = shape[rank() + 1];
    return pb_.op == Op::depthwise ? checked_mul(shape[rank()], last, filter_name()) : last;
  }

  // axis[first()], ..., axis[2] are the spatial axes of this op.
  std::size_t first() const { return static_cast<std::size_t>(3 - rank_); }
  std::size_t rank() const { return static_cast<std::size_t>(rank_); }

  void read_formats() {
    const bool deep = pb_.op == Op::conv3d;
    if (!attr_.data_format.empty()) {
      pb_.channels_last = choose("--data-format", attr_.data_format,
                                 deep ? Choices(kDataFormats3d) : Choices(kDataFormats)) == 0;
    }
    if (!attr_.filter_format.empty()) {
      pb_.filter_format = static_cast<FilterFormat>(
          choose("--filter-format", attr_.filter_format,
                 deep ? Choices(kFilterFormats3d) : Choices(kFilterFormats)));
    }
  }

  // The axis that holds spatial axis a of x and dy.
  std::size_t position(std::size_t a) const { return a - first() + (pb_.channels_last ? 1 : 2); }
  std::size_t channel_position() const { return pb_.channels_last ? rank() + 1 : 1; }

  void check_rank(const TensorInfo& tensor) const {
    if (tensor.shape.size() != rank() + 2) {
      bad(cat(tensor.name, ": ", tensor.shape.size(),
              tensor.shape.size() == 1 ? " axis " : " axes ", list(tensor.shape), ", expected ",
              rank_ + 2, " (", data_format_name(pb_), ") for ", op_name(pb_.op)));
    }
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      if (tensor.shape[i] < 0) {
        bad(cat(tensor.name, ": axis ", i, " is ", tensor.shape[i], ", expected at least 0"));
      }
    }
  }

  void read_tensors() {
    check_rank(x_);
    check_rank(dy_);
    if (x_.dtype != dy_.dtype) {
      bad(cat(dy_.name, ": dtype ", dtype_name(dy_.dtype), ", expected ", dtype_name(x_.dtype),
              " as ", x_.name, " has; convert one of them"));
    }
    if (x_.shape[0] != dy_.shape[0]) {
      bad(cat(dy_.name, ": axis 0 (N) is ", dy_.shape[0], ", expected ", x_.shape[0], " as ",
              x_.name, " has"));
    }
    pb_.dtype = pb_.out_dtype = x_.dtype;
    if (!attr_.out_dtype.empty()) pb_.out_dtype = parse_dtype("--out-dtype", attr_.out_dtype);
    pb_.N = x_.shape[0];
    pb_.C = x_.shape[channel_position()];
    pb_.K = dy_.shape[channel_position()];
    for (std::size_t a = first(); a < 3; ++a) {
      pb_.axis[a].in = x_.shape[position(a)];
      pb_.axis[a].out = dy_.shape[position(a)];
    }
    // An empty channel axis makes a filter with an extent of 0.
    if (pb_.C == 0) bad(cat(x_.name, ": axis ", channel_position(), " (C) is 0, expected >= 1"));
    if (pb_.K == 0) bad(cat(dy_.name, ": axis ", channel_position(), " (K) is 0, expected >= 1"));
  }

  static void check_range(const std::string& what, std::int64_t value, std::int64_t low) {
    if (value < low) bad(cat(what, " is ", value, ", expected at least ", low));
    if (value > kMaxAttribute) bad(cat(what, " is ", value, ", expected at most 2147483648"));
  }

  void read_filter() {
    const auto given = std::ranges::count(
        std::array{!attr_.filter_sizes.empty(), !attr_.kernel.empty(), !attr_.filter_like.empty()},
        true);
    if (given != 1) {
      misuse(cat(given == 0 ? "the filter's size is missing" : "the filter's size is given twice",
                 ", expected one of --kernel 3,3, --filter-sizes ",
                 pb_.op == Op::conv3d ? "T,R,S,C,K" : "R,S,C,K", " and --filter-like W.npy"));
    }
    if (!attr_.kernel.empty()) {
      read_kernel();
    } else if (!attr_.filter_sizes.empty()) {
      read_filter_shape(attr_.filter_sizes_name, attr_.filter_sizes, FilterFormat::hwio);
    } else {
      read_filter_shape(attr_.filter_like_name, attr_.filter_like, pb_.filter_format);
    }
  }

  void read_kernel() {
    const Numbers& kernel = attr_.kernel;
    if (kernel.size() != 1 && kernel.size() != rank()) {
      bad(cat("--kernel: ", counted(kernel.size(), "number"), " ", list(kernel), ", expected 1 or ",
              rank_, " (", rank_ == 3 ? "T,R,S" : "R,S", ")"));
    }
    for (std::size_t i = 0; i < rank(); ++i) {
      set_taps("--kernel", first() + i, kernel.size() == 1 ? kernel[0] : kernel[i]);
    }
    if (pb_.op == Op::depthwise && pb_.K % pb_.C != 0) {
      bad(cat(dy_.name, ": axis ", channel_position(), " (K) is ", pb_.K,
              ", expected a multiple of C=", pb_.C, " as ", x_.name, " has"));
    }
    const std::int64_t groups = attr_.groups.value_or(pb_.op == Op::depthwise ? pb_.C : 1);
    check_groups(groups, "--groups");
  }

  void set_taps(const std::string& flag, std::size_t a, std::int64_t taps) {
    check_range(cat(flag, ": ", kNames[a].taps), taps, 1);
    pb_.axis[a].taps = taps;
  }

  void check_groups(std::int64_t groups, const std::string& flag) {
    if (groups < 1) bad(cat(flag, " is ", groups, ", expected at least 1"));
    if (pb_.op == Op::depthwise && groups != pb_.C) {
      bad(cat(flag, " is ", groups, ", but depthwise has one group per channel: C=", pb_.C,
              "; leave it out"));
    }
    if (pb_.C % groups != 0) {
      bad(cat(flag, ": ", groups, " groups do not divide the input's C=", pb_.C));
    }
    if (pb_.K % groups != 0) {
      bad(cat(flag, ": ", groups, " groups do not divide out_backprop's K=", pb_.K, " (", dy_.name,
              ")"));
    }
    pb_.groups = groups;
  }

  // shape in the order of format; depthwise in hwio has [.., C, M], else one input channel a group.
  void read_filter_shape(const std::string& flag, const Numbers& shape, FilterFormat format) {
    if (shape.size() != rank() + 2) {
      bad(cat(flag, ": ", counted(shape.size(), "number"), " ", list(shape), ", expected ",
              rank_ + 2, " for ", op_name(pb_.op)));
    }
    for (std::size_t i = 0; i < shape.size(); ++i) {
      check_range(cat(flag, "[", i, "]"), shape[i], 1);
    }
    const std::size_t first_tap = format == FilterFormat::hwio   ? 0
                                  : format == FilterFormat::oihw ? 2
                                                                 : 1;
    for (std::size_t i = 0; i < rank(); ++i) set_taps(flag, first() + i, shape[first_tap + i]);
    const std::size_t in_at = format == FilterFormat::hwio   ? rank()
                              : format == FilterFormat::oihw ? 1
                                                             : rank() + 1;
    const std::size_t out_at = format == FilterFormat::hwio ? rank() + 1 : 0;
    if (pb_.op == Op::depthwise && format == FilterFormat::hwio) {
      check_depthwise_channels(flag, shape[in_at], shape[out_at]);
    } else {
      check_channels(flag, in_at, shape[in_at], out_at, shape[out_at]);
    }
    if (attr_.groups && *attr_.groups != pb_.groups) {
      bad(cat("--groups is ", *attr_.groups, ", but C=", pb_.C, " and ", flag, " ", list(shape),
              " give ", pb_.groups));
    }
  }

  void check_depthwise_channels(const std::string& flag, std::int64_t c, std::int64_t m) {
    if (c != pb_.C) {
      bad(cat(flag, "[2] (C) is ", c, ", expected ", pb_.C, " as ", x_.name, " has"));
    }
    if (checked_mul(c, m, flag) != pb_.K) {
      bad(cat(dy_.name, ": axis ", channel_position(), " (K) is ", pb_.K, ", expected ", c * m,
              " = C*M from ", flag, " C=", c, " M=", m));
    }
    check_groups(pb_.C, flag);
  }

  void check_channels(const std::string& flag, std::size_t in_at, std::int64_t in,
                      std::size_t out_at, std::int64_t out) {
    if (pb_.C % in != 0) {
      bad(cat(flag, "[", in_at, "] (C/groups) is ", in,
              ", expected a divisor of the input's C=", pb_.C, " (", x_.name, ")"));
    }
    if (out != pb_.K) {
      bad(cat(flag, "[", out_at, "] (K) is ", out, ", expected ", pb_.K, " as ", dy_.name, " has"));
    }
    check_groups(pb_.C / in, flag);
  }

  void read_vector(const std::string& flag, const Numbers& values,
                   std::int64_t SpatialAxis::*field) {
    if (values.empty()) return;
    const bool full = values.size() == rank() + 2;
    if (values.size() != 1 && values.size() != rank() && !full) {
      bad(cat(flag, ": ", counted(values.size(), "number"), " ", list(values), ", expected 1, ",
              rank_, " or ", rank_ + 2, " (", data_format_name(pb_), ") for ", op_name(pb_.op)));
    }
    if (full && (values[0] != 1 || values[channel_position()] != 1)) {
      bad(cat(flag, ": ", list(values), " in ", data_format_name(pb_),
              " order, expected 1 for the batch and channel axes"));
    }
    for (std::size_t a = first(); a < 3; ++a) {
      const std::int64_t value = full                 ? values[position(a)]
                                 : values.size() == 1 ? values[0]
                                                      : values[a - first()];
      check_range(cat(flag, ": ", kNames[a].in), value, 1);
      pb_.axis[a].*field = value;
    }
  }

  void read_padding() {
    const Numbers& pads = attr_.explicit_paddings;
    Padding padding = Padding::explicit_pads;
    if (!attr_.padding.empty()) {
      padding = static_cast<Padding>(choose("--padding", attr_.padding, kPaddings));
    } else if (pads.empty()) {
      misuse("--padding is missing, expected SAME, VALID or EXPLICIT");
    }
    if (padding == Padding::explicit_pads) {
      read_explicit_paddings();
    } else if (!pads.empty()) {
      misuse(cat("--explicit-paddings: given with --padding ", upper(attr_.padding),
                 ", expected only with EXPLICIT"));
    }
    for (std::size_t a = first(); a < 3; ++a) set_out_extent(pb_.axis[a], a, padding);
  }

  void read_explicit_paddings() {
    const Numbers& pads = attr_.explicit_paddings;
    if (pads.empty()) {
      misuse(cat("--explicit-paddings is missing, expected ", 2 * rank_,
                 " numbers (before,after for each spatial axis) with --padding EXPLICIT"));
    }
    const bool full = pads.size() == 2 * (rank() + 2);
    if (pads.size() != 1 && pads.size() != 2 * rank() && !full) {
      bad(cat("--explicit-paddings: ", counted(pads.size(), "number"), ", expected ",
              2 * (rank_ + 2), " (before,after for each axis of ", data_format_name(pb_), ") or ",
              2 * rank_, " (spatial axes)"));
    }
    for (std::size_t i = 0; i < pads.size(); ++i) {
      check_range(cat("--explicit-paddings[", i, "]"), pads[i], 0);
    }
    if (full) {
      for (const std::size_t at : {std::size_t{0}, channel_position()}) {
        if (pads[2 * at] != 0 || pads[2 * at + 1] != 0) {
          bad(cat("--explicit-paddings: ", list(pads),
                  ", expected 0,0 for the batch and channel axes"));
        }
      }
    }
    for (std::size_t a = first(); a < 3; ++a) {
      const std::size_t at = full ? position(a) : a - first();
      pb_.axis[a].pad_before = pads.size() == 1 ? pads[0] : pads[2 * at];
      pb_.axis[a].pad_after = pads.size() == 1 ? pads[0] : pads[2 * at + 1];
    }
  }

  // Replaces axis.out, until here what dy has, by what follows from the attributes; keeps dy's in
  // found_ for check_out_extents.
  void set_out_extent(SpatialAxis& axis, std::size_t a, Padding padding) {
    found_[a] = axis.out;
    const std::string what = cat(kNames[a].taps, ", dilation and stride along ", kNames[a].in);
    const std::int64_t reach =
        checked_add(checked_mul(axis.taps - 1, axis.dilation, what), 1, what);
    if (padding == Padding::same) {
      axis.out = axis.in / axis.stride + (axis.in % axis.stride != 0 ? 1 : 0);
      // (out-1)*stride < in, so only the sum can overflow. No output, no padding.
      const std::int64_t last = axis.out > 0 ? (axis.out - 1) * axis.stride : 0;
      const std::int64_t total =
          axis.out > 0 ? std::max<std::int64_t>(checked_add(last, reach, what) - axis.in, 0) : 0;
      axis.pad_before = total / 2;
      axis.pad_after = total - total / 2;
      return;
    }
    const std::int64_t padded =
        checked_add(checked_add(axis.in, axis.pad_before, what), axis.pad_after, what);
    const std::int64_t room = padded - reach;
    // floor(room / stride) + 1: one pixel short of a tap is an empty output, less is an error.
    const std::int64_t steps = room >= 0 ? room / axis.stride : -((-room - 1) / axis.stride) - 1;
    if (steps < -1) {
      bad(cat(x_.name, ": ", kNames[a].in, " is ", axis.in, " with padding ", axis.pad_before, ",",
              axis.pad_after, ", but the filter reaches over ", reach, " (", kNames[a].taps, "=",
              axis.taps, ", dilation ", axis.dilation, "); use a smaller filter or more padding"));
    }
    axis.out = steps + 1;
  }

  void check_out_extents() const {
    for (std::size_t a = first(); a < 3; ++a) {
      const SpatialAxis& axis = pb_.axis[a];
      if (found_[a] == axis.out) continue;
      bad(cat(dy_.name, ": axis ", position(a), " (", kNames[a].out, ") is ", found_[a],
              ", expected ", axis.out, ": ", kNames[a].in, "=", axis.in, " ", kNames[a].taps, "=",
              axis.taps, " stride ", axis.stride, " dilation ", axis.dilation, " padding ",
              axis.pad_before, ",", axis.pad_after));
    }
  }

  // Bytes of every tensor as float64, with extents of 0 counted as 1 so that no partial product
  // overflows either.
  void check_products() const {
    std::int64_t x_bytes = 16, dy_bytes = 16, dw_bytes = 16, terms = 1;
    for (const std::int64_t n : x_.shape) {
      x_bytes = checked_mul(x_bytes, std::max<std::int64_t>(n, 1), x_.name);
    }
    for (const std::int64_t n : dy_.shape) {
      dy_bytes = checked_mul(dy_bytes, std::max<std::int64_t>(n, 1), dy_.name);
      terms = checked_mul(terms, std::max<std::int64_t>(n, 1), dy_.name);
    }
    const std::string what = "the filter gradient's size";
    for (const SpatialAxis& axis : pb_.axis) dw_bytes = checked_mul(dw_bytes, axis.taps, what);
    checked_mul(checked_mul(dw_bytes, pb_.group_c(), what), pb_.K, what);
  }

  const TensorInfo& x_;
  TensorInfo dy_;
  const WgradAttributes& attr_;
  WgradProblem pb_;
  int rank_ = 2;
  std::array<std::int64_t, 3> found_{1, 1, 1};
};

}  // namespace

WgradProblem make_problem(const TensorInfo& x, const TensorInfo& dy,
                          const WgradAttributes& attributes) {
  return Maker(x, dy, attributes).make();
}

std::vector<std::int64_t> out_backprop_shape(const TensorInfo& x, const WgradAttributes& attributes,
                                             std::int64_t K) {
  return Maker(x, {}, attributes).out_backprop_shape(K);
}

}  // namespace convgrad
