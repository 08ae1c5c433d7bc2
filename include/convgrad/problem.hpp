// problem.hpp - one filter-gradient problem, and the one place where requests are checked.
//
// dw[t,r,s,c,k] = sum over n,z,p,q of x[n,d,h,w,g(k)*C/groups + c] * dy[n,z,p,q,k]
//   d = z*stride_d - pad_d + t*dilation_d, likewise h (p, r) and w (q, s); g(k) = k / (K/groups).
// A tap outside x contributes nothing, also where dy is Inf or NaN. 2-D is D = Z = T = 1, 1-D has
// H = P = R = 1 too.
// Definitions: TensorFlow's Conv2DBackpropFilter, DepthwiseConv2dNativeBackpropFilter and
// Conv3DBackpropFilterV2; depthwise is groups = C with output channel k = c*M + m.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convgrad/dtype.hpp"
#include "convgrad/error.hpp"

namespace convgrad {

enum class Op : std::uint8_t { conv2d, depthwise, conv3d, conv1d };
inline int spatial_rank(Op op) { return op == Op::conv3d ? 3 : op == Op::conv1d ? 1 : 2; }

// The order in which the filter gradient is written. hwio is TensorFlow's. 3-D has D in front, 1-D
// has no H.
enum class FilterFormat : std::uint8_t { hwio, oihw, ohwi };

// Describes one spatial axis. All counts are in elements; stride and dilation count from 1.
struct SpatialAxis {
  std::int64_t in = 1;    // extent of x: D, H or W
  std::int64_t out = 1;   // extent of dy: Z, P or Q
  std::int64_t taps = 1;  // extent of dw: T, R or S
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t pad_before = 0;
  std::int64_t pad_after = 0;
  bool operator==(const SpatialAxis&) const = default;
};

// Plain data, valid by construction: make_problem() is the only maker. Every product of extents
// that the program forms fits in 63 bits.
struct WgradProblem {
  Op op = Op::conv2d;
  DType dtype = DType::f32;      // of x and dy as they are multiplied
  DType out_dtype = DType::f32;  // of dw
  DType x_dtype = DType::f32;    // of the file: widened to dtype as it is read
  DType dy_dtype = DType::f32;
  bool channels_last = true;  // NWC, NHWC, NDHWC; else NCW, NCHW, NCDHW
  FilterFormat filter_format = FilterFormat::hwio;
  std::int64_t N = 1, C = 1, K = 1, groups = 1;  // groups is 1 where C is 0
  std::int64_t empty_multiplier = 1;             // of depthwise where C is 0, so that K cannot tell
  std::array<SpatialAxis, 3> axis;               // d, h, w
  bool operator==(const WgradProblem&) const = default;

  int spatial_rank() const { return convgrad::spatial_rank(op); }
  std::int64_t group_c() const { return C / groups; }  // C/groups
  std::int64_t group_k() const { return K / groups; }  // K/groups
  // Depthwise calls this M: its K is C*M.
  std::int64_t multiplier() const { return C > 0 ? K / C : empty_multiplier; }
  std::int64_t taps() const { return axis[0].taps * axis[1].taps * axis[2].taps; }
  std::int64_t out_pixels() const { return axis[0].out * axis[1].out * axis[2].out; }  // one image
  std::int64_t dw_count() const { return taps() * group_c() * K; }
  std::int64_t x_count() const { return N * C * axis[0].in * axis[1].in * axis[2].in; }
  std::int64_t dy_count() const { return N * K * out_pixels(); }
};

// Multiply-adds counted as 2, padding included, so the count does not depend on the kernel.
double flop_count(const WgradProblem& problem);
// Terms of the longest sum that one element of dw can have: N*Z*P*Q.
std::int64_t term_count(const WgradProblem& problem);

// Returns one number of each spatial axis, in the data format's order: 2, of conv3d 3, of conv1d 1.
std::vector<std::int64_t> per_axis(const WgradProblem& problem, std::int64_t SpatialAxis::*field);

// These are the shapes of x and dy in their files, by data_format.
std::vector<std::int64_t> x_shape(const WgradProblem& problem);
std::vector<std::int64_t> dy_shape(const WgradProblem& problem);
// This is dw's shape as it is written: [R,S,C/groups,K], depthwise [R,S,C,M], 3-D with T in front,
// 1-D without R, or permuted by filter_format (depthwise other than hwio: as the grouped filter, K
// and 1). Channels or a multiplier of 0 make it empty.
std::vector<std::int64_t> dw_shape(const WgradProblem& problem);

// Returns the problem as one line, "conv2d float32 NHWC n8 h56 w56 c64 k128 r3 s3 stride2
// pad_same": what suites of problems, --problem, jobs, reports and files of parts have, and
// parse_problem() reads.
std::string describe(const WgradProblem& problem);

// Returns "bfloat16", or for tensors that differ "float8_e4m3fn*float8_e5m2".
std::string input_dtypes(const WgradProblem& problem);

// A tensor file says this of itself. name is what messages call it: "--input (x.npy)".
struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
};

// Holds the request as it is spelled. Vectors take 1 value (all spatial axes), one for each spatial
// axis, or one for every axis (data-format order, as TensorFlow's attributes). An empty one was not
// given.
struct WgradAttributes {
  std::string op;
  std::vector<std::int64_t> filter_sizes;       // of every axis, in TensorFlow's order
  std::vector<std::int64_t> kernel;             // taps alone; channels follow from the tensors
  std::vector<std::int64_t> filter_like;        // shape of a filter, in filter_format's order
  std::vector<std::int64_t> strides;            // default 1
  std::vector<std::int64_t> dilations;          // default 1
  std::string padding;                          // SAME, VALID or EXPLICIT, any case
  std::vector<std::int64_t> explicit_paddings;  // (before, after) pairs: spatial, or every axis
  bool explicit_one_for_both = false;           // one number for each spatial axis is legal too
  std::string data_format;                      // default NHWC, NDHWC or NWC
  std::string filter_format;                    // default HWIO, DHWIO or WIO
  std::optional<std::int64_t> groups;           // checked against the shapes
  // Messages call the paddings and the filter's shape so, with the file that it came from.
  std::string explicit_paddings_name = "--explicit-paddings";
  std::string filter_sizes_name = "--filter-sizes";
  std::string filter_like_name = "--filter-like";
  std::string out_dtype;  // default: the inputs' if they are alike and of 16 bits or more; float64
                          // if one of them is; float32 otherwise
};

// Holds what make_problem() takes.
struct ProblemRequest {
  TensorInfo x, dy;
  WgradAttributes attributes;
};

// This is the one validator. It throws Error(usage) for unknown names and attributes that exclude
// each other or are missing, Error(input) for values and shapes that do not fit each other; the
// latter ends with the slips, such as exchanged tensors, without which they would fit.
WgradProblem make_problem(const TensorInfo& x, const TensorInfo& dy,
                          const WgradAttributes& attributes);
inline WgradProblem make_problem(const ProblemRequest& request) {
  return make_problem(request.x, request.dy, request.attributes);
}

// Returns the shape of the out_backprop that fits x and the attributes, by make_problem's rules and
// with its errors. It has K channels, or as many as the filter's shape says where K is not given.
std::vector<std::int64_t> out_backprop_shape(const TensorInfo& x, const WgradAttributes& attributes,
                                             std::optional<std::int64_t> K = {});

// Reads a line that describe() writes, and others of its grammar: the operation, then in any order
//   float32                  the dtype; X*DY where they differ; ->OUT: the gradient's
//   NHWC HWIO                data format, filter format
//   n8 d9 h56 w56 c64 k128   extents of x, channels of dy; depthwise also m2: k = c*m
//   t3 r3 s3                 taps along d, h, w
//   groups2                  as many as c in depthwise
//   stride2 dilation2        of all spatial axes, or stride2,1 of each
//   pad1, pad_before1,0 pad_after1, pad_same   the same on both sides, or not, or SAME
// The defaults are float32, channels last, HWIO, n1, groups1, stride1, dilation1 and no padding.
// What has none and is missing, unknown or there twice is an Error(usage) that names it; others are
// make_problem()'s.
ProblemRequest parse_problem(const std::string& line);

// Takes the operation's short name, or what TensorFlow or PyTorch calls the function; case and
// underscores do not count. Other names are an Error(usage) with a suggestion.
Op parse_op(std::string_view name);
std::optional<Op> op_from_name(std::string_view name);

// Tells whether the data format, the op's NHWC or NCHW or Keras' channels_last or channels_first,
// has channels last; "" has. Error(usage) for other names.
bool parse_data_format(Op op, std::string_view name);
// Takes the op's HWIO, OIHW or OHWI, or RSCK, KCRS or KRSC; "" is HWIO. Error(usage) for others.
FilterFormat parse_filter_format(Op op, std::string_view name);
// Replaces the letters of cuDNN and CUTLASS by those of TensorFlow, KCRS by OIHW, in upper case.
std::string in_tensorflow_letters(std::string_view filter_format);

// Takes float16, bfloat16, float32 or float64, also by short names; Error(usage) names the flag.
DType parse_dtype(std::string_view flag, std::string_view name);
// Takes 8-bit floats too.
DType parse_stored_dtype(std::string_view flag, std::string_view name);

std::string_view op_name(Op op);  // conv2d, depthwise, conv3d, conv1d
std::string_view tensorflow_op_name(Op op);
std::string data_format_name(const WgradProblem& problem);    // NHWC, NCHW, NDHWC, NCDHW, NWC, NCW
std::string filter_format_name(const WgradProblem& problem);  // HWIO, DHWIO, WIO, ...

// These return a*b and a+b, or throw an Error(input) that says what overflowed.
std::int64_t checked_mul(std::int64_t a, std::int64_t b, std::string_view what);
std::int64_t checked_add(std::int64_t a, std::int64_t b, std::string_view what);

}  // namespace convgrad
