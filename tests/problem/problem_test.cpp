// problem_test.cpp - the validator: what it computes, and what it refuses with which words.
#include "convgrad/problem.hpp"

#include <doctest/doctest.h>

#include "problem/schedule.hpp"
#include "support/errors.hpp"

using namespace convgrad;

namespace {

WgradAttributes conv2d_attributes() {
  WgradAttributes a;
  a.op = "conv2d";
  a.kernel = {3};
  a.padding = "SAME";
  return a;
}

using Numbers = std::vector<std::int64_t>;

WgradAttributes changed(Numbers WgradAttributes::*field, const Numbers& numbers) {
  WgradAttributes a = conv2d_attributes();
  a.*field = numbers;
  return a;
}

WgradAttributes sized(const Numbers& sizes, const char* op = "conv2d") {
  WgradAttributes a = changed(&WgradAttributes::filter_sizes, sizes);
  a.op = op;
  a.kernel = {};
  return a;
}

WgradAttributes padded(const Numbers& pads) {
  WgradAttributes a = changed(&WgradAttributes::explicit_paddings, pads);
  a.padding = "EXPLICIT";
  return a;
}

WgradAttributes grouped(std::int64_t groups, const char* op = "conv2d") {
  WgradAttributes a = conv2d_attributes();
  a.op = op;
  a.groups = groups;
  return a;
}

TensorInfo tensor(const char* name, std::vector<std::int64_t> shape, DType dtype = DType::f32) {
  return {name, dtype, std::move(shape)};
}

// The message of the Error that f throws, after checking its kind.
template <typename Function>
std::string refusal(ErrorKind kind, Function&& f) {
  testing::check_error(kind, "", "", f);
  return testing::error_of(f).value().what();
}

bool contains(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

void check_refused(const TensorInfo& x, const TensorInfo& dy, const WgradAttributes& a,
                   const std::string& part, ErrorKind kind = ErrorKind::input) {
  testing::check_error(kind, "", part, [&] { make_problem(x, dy, a); });
}

}  // namespace

TEST_CASE("SAME pads as TensorFlow does") {
  const struct {
    std::int64_t in, taps, stride, dilation, out, before, after;
  } table[] = {{5, 3, 1, 1, 5, 1, 1}, {5, 2, 1, 1, 5, 0, 1}, {6, 3, 2, 1, 3, 0, 1},
               {5, 3, 2, 1, 3, 1, 1}, {7, 2, 3, 1, 3, 0, 1}, {9, 1, 2, 1, 5, 0, 0},
               {8, 2, 5, 1, 2, 0, 0}, {8, 3, 1, 3, 8, 3, 3}, {1, 7, 1, 1, 1, 3, 3},
               {4, 4, 4, 2, 1, 1, 2}, {0, 3, 1, 1, 0, 0, 0}};
  for (const auto& row : table) {
    WgradAttributes a = conv2d_attributes();
    a.kernel = {row.taps, 1};
    a.strides = {row.stride, 1};
    a.dilations = {row.dilation, 1};
    const WgradProblem problem =
        make_problem(tensor("x", {2, row.in, 4, 3}), tensor("dy", {2, row.out, 4, 5}), a);
    CHECK(problem.axis[1].out == row.out);
    CHECK(problem.axis[1].pad_before == row.before);
    CHECK(problem.axis[1].pad_after == row.after);
  }
}

TEST_CASE("VALID leaves unread rows, an empty output and an error, in this order") {
  WgradAttributes a = conv2d_attributes();
  a.padding = "valid";
  const auto problem = [&](std::int64_t in, std::int64_t out, std::int64_t stride) {
    a.strides = {stride};
    return make_problem(tensor("x", {1, in, 9, 1}), tensor("dy", {1, out, (9 - 3) / stride + 1, 1}),
                        a);
  };
  CHECK(problem(6, 2, 2).axis[1].out == 2);  // the 6th row is never read
  CHECK(problem(3, 1, 1).axis[1].out == 1);
  CHECK(problem(2, 0, 1).axis[1].out == 0);
  CHECK(problem(1, 0, 2).axis[1].out == 0);
  a.strides = {1};
  check_refused(tensor("x", {1, 1, 9, 1}), tensor("dy", {1, 0, 7, 1}), a,
                "x: H is 1 with padding 0,0, but the filter reaches over 3");
}

TEST_CASE("the shape of out_backprop follows from the input and the attributes") {
  WgradAttributes a = conv2d_attributes();
  a.kernel = {3, 2};
  a.strides = {2, 1};
  a.dilations = {1, 3};
  const TensorInfo x = tensor("x", {4, 9, 7, 6});
  CHECK(out_backprop_shape(x, a, 5) == Numbers{4, 5, 7, 5});
  a.padding = "VALID";
  CHECK(out_backprop_shape(x, a, 5) == Numbers{4, 4, 4, 5});
  a.padding = "";
  a.explicit_paddings = {2, 1, 0, 5};
  CHECK(out_backprop_shape(x, a, 5) == Numbers{4, 5, 9, 5});
  a.data_format = "NCHW";
  CHECK(out_backprop_shape(tensor("x", {4, 6, 9, 7}), a, 5) == Numbers{4, 5, 5, 9});
  // K as each spelling of the filter says it.
  CHECK(out_backprop_shape(x, sized({3, 3, 3, 8})) == Numbers{4, 9, 7, 8});
  a = sized({});
  a.filter_like = {8, 3, 3, 3};
  a.filter_format = "OIHW";
  CHECK(out_backprop_shape(x, a) == Numbers{4, 9, 7, 8});
  a.op = "depthwise";
  a.filter_format = "";
  a.filter_like = {3, 3, 6, 2};
  CHECK(out_backprop_shape(x, a) == Numbers{4, 9, 7, 12});
  a.filter_format = "OHWI";
  a.filter_like = {12, 3, 3, 1};
  CHECK(out_backprop_shape(x, a) == Numbers{4, 9, 7, 12});
}

TEST_CASE("a shape of out_backprop that cannot be is refused as make_problem does") {
  const auto check = [](const TensorInfo& x, const WgradAttributes& a, std::int64_t K,
                        const char* part) {
    CHECK(contains(refusal(ErrorKind::input, [&] { out_backprop_shape(x, a, K); }), part));
  };
  WgradAttributes a = conv2d_attributes();
  check(tensor("x", {2, 5, 5, 4}), grouped(2), 3, "2 groups do not divide");
  a.padding = "VALID";
  check(tensor("x", {2, 1, 5, 4}), a, 3, "but the filter reaches over 3");
  check(tensor("x", {2, 5, 5, 4}), sized({3, 3}), 0, "--filter-sizes: 2 numbers");
}

TEST_CASE("short and long vectors mean the same, in both data formats") {
  WgradAttributes a = padded({1, 0, 2, 3});
  a.strides = {2, 3};
  a.dilations = {1, 2};
  const TensorInfo x = tensor("x", {2, 9, 11, 4}), dy = tensor("dy", {2, 4, 4, 6});
  const WgradProblem short_form = make_problem(x, dy, a);
  a.explicit_paddings = {0, 0, 1, 0, 2, 3, 0, 0};
  a.strides = {1, 2, 3, 1};
  a.dilations = {1, 1, 2, 1};
  a.kernel = {};
  a.filter_sizes = {3, 3, 4, 6};
  CHECK(make_problem(x, dy, a) == short_form);
  a.data_format = "nchw";
  a.explicit_paddings = {0, 0, 0, 0, 1, 0, 2, 3};
  a.strides = {1, 1, 2, 3};
  a.dilations = {1, 1, 1, 2};
  WgradProblem nchw = make_problem(tensor("x", {2, 4, 9, 11}), tensor("dy", {2, 6, 4, 4}), a);
  CHECK_FALSE(nchw.channels_last);
  nchw.channels_last = true;
  CHECK(nchw == short_form);
}

TEST_CASE("groups follow from the shapes and are checked") {
  WgradAttributes a = sized({3, 3, 2, 8});
  const TensorInfo x = tensor("x", {2, 5, 5, 8}), dy = tensor("dy", {2, 5, 5, 8});
  CHECK(make_problem(x, dy, a).groups == 4);
  a.groups = 4;
  CHECK(make_problem(x, dy, a).groups == 4);
  a.groups = 2;
  check_refused(x, dy, a, "--groups is 2");
  check_refused(x, dy, sized({3, 3, 3, 8}), "--filter-sizes[2] (C/groups) is 3");
  check_refused(x, dy, grouped(3), "3 groups do not divide the input's C=8");
  check_refused(x, dy, sized({3, 3, 2, 7}), "--filter-sizes[3] (K) is 7, expected 8");
  check_refused(x, tensor("dy", {2, 5, 5, 6}), sized({3, 3, 2, 6}),
                "4 groups do not divide out_backprop's K=6");
}

TEST_CASE("numbers of padding may stand for both sides of an axis") {
  WgradAttributes a = conv2d_attributes();
  a.padding.clear();
  const auto pads = [&](std::vector<std::int64_t> numbers, bool one_for_both, std::int64_t out) {
    a.explicit_paddings = std::move(numbers);
    a.explicit_one_for_both = one_for_both;
    const WgradProblem pb =
        make_problem(tensor("x", {2, 8, 9, 3}), tensor("dy", {2, 8, out, 4}), a);
    const SpatialAxis &h = pb.axis[1], &w = pb.axis[2];
    return std::vector{h.pad_before, h.pad_after, w.pad_before, w.pad_after};
  };
  for (const bool one_for_both : {true, false}) {
    CHECK(pads({1}, one_for_both, 9) == std::vector<std::int64_t>{1, 1, 1, 1});
  }
  CHECK(pads({1, 0}, true, 7) == std::vector<std::int64_t>{1, 1, 0, 0});
  CHECK(pads({1, 1, 0, 0}, true, 7) == std::vector<std::int64_t>{1, 1, 0, 0});
  CHECK(pads({1, 1, 0, 0}, false, 7) == std::vector<std::int64_t>{1, 1, 0, 0});
  const auto refused = [&](bool one_for_both) {
    return refusal(ErrorKind::input, [&] { pads({1, 0, 1}, one_for_both, 9); });
  };
  CHECK(contains(refused(true), "or one for each spatial axis, or one"));
  CHECK_FALSE(contains(refused(false), "or one for each"));
}

TEST_CASE("padding that a transposed layer's output_padding needs is named") {
  WgradAttributes a = changed(&WgradAttributes::strides, {3, 2});
  a.dilations = {4, 4};
  a.kernel = {4, 5};
  a.padding.clear();
  a.explicit_paddings = {1, 1, 2, 2};
  const auto said = [&](std::int64_t p, std::int64_t q) {
    return refusal(ErrorKind::input, [&] {
      make_problem(tensor("x", {2, 22, 22, 3}), tensor("dy", {2, p, q, 4}), a);
    });
  };
  CHECK(contains(said(4, 4), "-p '[[1,1],[2,-1]]': then it fits"));
  for (const auto& [p, q] : {std::pair{4, 6}, {4, 2}, {4, 0}}) {  // more, or too few
    CHECK_FALSE(contains(said(p, q), "then it fits"));
  }
  a.explicit_paddings = {};
  a.padding = "SAME";
  CHECK_FALSE(contains(said(7, 11), "output_padding"));
}

TEST_CASE("1-D problems, and filters of no channels, are refused as others are") {
  WgradAttributes a;
  a.op = "conv1d";
  a.kernel = {3, 3};
  a.padding = "SAME";
  const TensorInfo x = tensor("x", {2, 9, 3}), dy = tensor("dy", {2, 9, 4});
  check_refused(x, dy, a, "--kernel: 2 numbers [3,3], expected 1 (S)");
  check_refused(tensor("x", {9, 3}), dy, a, "expected 3 (NWC)");
  a.kernel = {3};
  a.strides = {1, 1};
  check_refused(x, dy, a, "--strides");
  a.strides.clear();
  a.padding = "causal";
  a.dilations = {2};
  check_refused(x, dy, a, "'causal' is unknown; it is -p '[[4,0]]'", ErrorKind::usage);

  WgradAttributes depthwise = conv2d_attributes();
  depthwise.op = "depthwise";
  const TensorInfo none = tensor("x", {2, 8, 9, 0}), no_dy = tensor("dy", {2, 8, 9, 0});
  check_refused(none, no_dy, depthwise, "give --filter-sizes R,S,0,M");
  check_refused(none, tensor("dy", {2, 8, 9, 4}), sized({3, 3, 2, 4}),
                "(C/groups) is 2, expected 0, as C is 0 in x");
  depthwise.kernel = {};
  depthwise.filter_like = {4, 1, 3, 3};
  depthwise.filter_format = "OIHW";
  check_refused(none, tensor("dy", {2, 8, 9, 4}), depthwise, "(K) is 4, expected 0, as C is 0");
}

TEST_CASE("tensors of two dtypes are multiplied in one that has both exactly") {
  using enum DType;
  const struct {
    DType x, dy, product, out;
    const char* words;
  } cases[] = {{f16, f16, f16, f16, "conv2d float16 NHWC"},
               {bf16, f32, f32, f32, "conv2d bfloat16*float32->float32 NHWC"},
               {f16, bf16, f32, f32, "conv2d float16*bfloat16->float32 NHWC"},
               {f32, f64, f64, f64, "conv2d float32*float64->float64 NHWC"},
               {e4m3fn, e4m3fn, bf16, f32, "conv2d float8_e4m3fn->float32 NHWC"},
               {e4m3fn, e5m2, bf16, f32, "conv2d float8_e4m3fn*float8_e5m2->float32 NHWC"},
               {bf16, e5m2fnuz, bf16, f32, "conv2d bfloat16*float8_e5m2fnuz->float32 NHWC"},
               {e4m3fnuz, f16, f16, f32, "conv2d float8_e4m3fnuz*float16->float32 NHWC"}};
  WgradAttributes a = conv2d_attributes();
  for (const auto& c : cases) {
    CAPTURE(c.words);
    const auto make = [&] {
      return make_problem(tensor("x", {2, 8, 9, 3}, c.x), tensor("dy", {2, 8, 9, 4}, c.dy), a);
    };
    const WgradProblem pb = make();
    CHECK(pb.dtype == c.product);
    CHECK(pb.out_dtype == c.out);
    CHECK(describe(pb).starts_with(c.words));
    a.out_dtype = "float16";
    CHECK(make().out_dtype == f16);
    a.out_dtype.clear();
  }
}

TEST_CASE("what does not fit is named with axis, found and expected") {
  const TensorInfo x = tensor("--input (x.npy)", {2, 8, 9, 3});
  const TensorInfo dy = tensor("--out-backprop (dy.npy)", {2, 8, 9, 4});
  WgradAttributes a = conv2d_attributes();
  check_refused(x, tensor("dy", {2, 7, 9, 4}), a,
                "dy: axis 1 (P) is 7, expected 8: H=8 R=3 stride 1 dilation 1 padding 1,1");
  check_refused(x, tensor("dy", {3, 8, 9, 4}), a, "dy: axis 0 (N) is 3, expected 2");
  check_refused(tensor("x", {8, 9, 3}), dy, a, "x: 3 axes [8,9,3], expected 4 (NHWC)");
  check_refused(tensor("x", {8, 9, 3}), dy, a,
                "x[None] for one image, x[..., None] for one channel");
  a.data_format = "NCHW";
  check_refused(tensor("x", {8, 9, 3}), dy, a, "x[:, None] for one channel");
  check_refused(tensor("x", {2, 2, 8, 8, 16}), dy, a,
                "nChw16c) x.transpose(0, 1, 4, 2, 3).reshape(2, -1, 8, 8) is NCHW");
  for (const char* format : {"nChw16c", "NCHW8c", "CHWN"}) {
    a.data_format = format;
    check_refused(x, dy, a, "is a library's own, expected NHWC or NCHW; in numpy x.transpose(",
                  ErrorKind::usage);
  }
  a.data_format.clear();
  a.padding = "causal";
  check_refused(x, dy, a, "'causal' is unknown, expected SAME", ErrorKind::usage);
  a.padding = "SMAE";
  check_refused(x, dy, a, "did you mean 'SAME'?", ErrorKind::usage);
  a.padding = "";
  check_refused(x, dy, a, "--padding is missing", ErrorKind::usage);
  a.padding = "SAME";
  a.explicit_paddings = {1, 1, 1, 1};
  check_refused(x, dy, a, "expected only with EXPLICIT", ErrorKind::usage);
  a.explicit_paddings = {};
  a.kernel = {};
  check_refused(x, dy, a, "the filter's size is missing", ErrorKind::usage);
}

TEST_CASE("channels of 0 make an empty gradient of the filter's shape") {
  struct Case {
    std::string op;
    Numbers x, dy, sizes, oihw;
  };
  const Case cases[] = {{"conv2d", {1, 2, 3, 1}, {1, 1, 2, 0}, {2, 2, 1, 0}, {0, 1, 2, 2}},
                        {"conv2d", {1, 2, 3, 0}, {1, 1, 2, 4}, {2, 2, 0, 4}, {4, 0, 2, 2}},
                        {"depthwise", {1, 2, 3, 2}, {1, 1, 2, 0}, {2, 2, 2, 0}, {0, 1, 2, 2}},
                        {"depthwise", {1, 2, 3, 0}, {1, 1, 2, 0}, {2, 2, 0, 3}, {0, 1, 2, 2}},
                        {"conv1d", {1, 3, 0}, {1, 2, 2}, {2, 0, 2}, {2, 0, 2}}};
  for (const Case& c : cases) {
    WgradAttributes a;
    a.op = c.op;
    a.padding = "VALID";
    a.filter_sizes = c.sizes;
    const TensorInfo x = tensor("x", c.x), dy = tensor("dy", c.dy);
    WgradProblem pb = make_problem(x, dy, a);
    CHECK(dw_shape(pb) == c.sizes);
    CHECK(pb.dw_count() == 0);
    CHECK(chunk_grid(pb).count == 0);
    CHECK(out_backprop_shape(x, a) == c.dy);
    pb.filter_format = FilterFormat::oihw;
    CHECK(dw_shape(pb) == c.oihw);
    a.filter_sizes = {};
    a.filter_like = c.oihw;
    a.filter_format = c.op == "conv1d" ? "OIW" : "OIHW";
    CHECK(dw_shape(make_problem(x, dy, a)) == c.oihw);
  }
}

TEST_CASE("conv1d is conv2d with one row") {
  WgradAttributes a;
  a.op = "Conv1D";
  a.kernel = {3};
  a.strides = {1, 2, 1};
  a.dilations = {2};
  a.groups = 2;
  a.explicit_paddings = {0, 0, 3, 1, 0, 0};
  const TensorInfo x = tensor("x", {2, 9, 4}), dy = tensor("dy", {2, 5, 6});
  const WgradProblem line = make_problem(x, dy, a);
  CHECK(describe(line) ==
        "conv1d float32 NWC n2 w9 c4 k6 s3 groups2 stride2 dilation2 pad_before3 pad_after1");
  CHECK(dw_shape(line) == std::vector<std::int64_t>{3, 2, 6});
  a.kernel.clear();
  a.filter_sizes = {3, 2, 6};
  CHECK(make_problem(x, dy, a) == line);
  WgradAttributes like = a;
  like.filter_sizes.clear();
  like.filter_like = {6, 2, 3};
  like.filter_format = "OIW";
  CHECK(dw_shape(make_problem(x, dy, like)) == like.filter_like);
  a.op = "conv2d";
  a.filter_sizes = {1, 3, 2, 6};
  a.strides = {1, 2};
  a.dilations = {1, 2};
  a.explicit_paddings = {0, 0, 3, 1};
  WgradProblem plane = make_problem(tensor("x", {2, 1, 9, 4}), tensor("dy", {2, 1, 5, 6}), a);
  plane.op = Op::conv1d;
  CHECK(plane == line);
}

TEST_CASE("each attribute that is wrong is named with what was expected") {
  const TensorInfo x = tensor("x", {2, 8, 9, 4}), dy = tensor("dy", {2, 8, 9, 8});
  WgradAttributes no_op = conv2d_attributes();
  no_op.op = "";
  const std::string batch = "expected 0,0 for the batch and channel axes";
  using A = WgradAttributes;
  const struct {
    std::string message;
    WgradAttributes attributes;
    ErrorKind kind = ErrorKind::input;
  } cases[] = {
      {"--op is missing", no_op, ErrorKind::usage},
      {"--kernel: 3 numbers [1,2,3], expected 1 or 2 (R,S)", changed(&A::kernel, {1, 2, 3})},
      {"--filter-sizes: 1 number [3], expected 4 for conv2d", sized({3})},
      {"the filter's size is given twice", changed(&A::filter_like, {3, 3, 4, 8}),
       ErrorKind::usage},
      {"the filter's size is given twice", changed(&A::filter_sizes, {3, 3, 4, 8}),
       ErrorKind::usage},
      {"--strides: 3 numbers [1,1,1], expected 1, 2 or 4 (NHWC)", changed(&A::strides, {1, 1, 1})},
      {"--strides: [2,1,1,1] in NHWC order, expected 1 for the batch and channel axes",
       changed(&A::strides, {2, 1, 1, 1})},
      {"--dilations: [1,1,1,2] in NHWC order", changed(&A::dilations, {1, 1, 1, 2})},
      {"--explicit-paddings is missing, expected 4 numbers", padded({}), ErrorKind::usage},
      {"--explicit-paddings: 3 numbers, expected 8", padded({1, 1, 1})},
      {batch, padded({1, 0, 1, 1, 1, 1, 0, 0})},
      {batch, padded({0, 0, 1, 1, 1, 1, 0, 1})},
      {"--groups is 2, but depthwise has one group per channel: C=4", grouped(2, "depthwise")},
      {"--filter-sizes[2] (C) is 3, expected 4", sized({3, 3, 3, 2}, "depthwise")},
      {"axis 3 (K) is 8, expected 12 = C*M", sized({3, 3, 4, 3}, "depthwise")},
  };
  for (const auto& each : cases) {
    CAPTURE(each.message);
    check_refused(x, dy, each.attributes, each.message, each.kind);
  }
  WgradAttributes a = conv2d_attributes();
  make_problem(x, dy, a);  // as it is, it is right
  check_refused(tensor("x", {7}), dy, a, "x: 1 axis [7], expected 4");
  check_refused(tensor("x", {2, 8, -9, 4}), dy, a, "x: axis 2 is -9, expected at least 0");
  a.op = "depthwise";
  check_refused(x, tensor("dy", {2, 8, 9, 6}), a,
                "dy: axis 3 (K) is 6, expected a multiple of C=4");
}

TEST_CASE("3-D attributes that are wrong are told of in 3-D words") {
  const TensorInfo x = tensor("x", {2, 5, 8, 9, 4}), dy = tensor("dy", {2, 5, 8, 9, 8});
  WgradAttributes a = conv2d_attributes();
  a.op = "conv3d";
  make_problem(x, dy, a);
  for (const auto& [kernel, message] : {std::pair{Numbers{1, 2}, "expected 1 or 3 (T,R,S)"},
                                        {{0, 3, 3}, "--kernel: T is 0, expected at least 1"}}) {
    a.kernel = kernel;
    check_refused(x, dy, a, message);
  }
  a.kernel = {};
  check_refused(x, dy, a, "--filter-sizes T,R,S,C,K", ErrorKind::usage);
  a.filter_format = "OIHW";
  check_refused(x, dy, a, "'OIHW' is unknown, expected DHWIO, OIDHW", ErrorKind::usage);
  a.filter_format = "";
  a.data_format = "NHWC";
  check_refused(x, dy, a, "'NHWC' is unknown, expected NDHWC or", ErrorKind::usage);
}

TEST_CASE("numbers out of range are refused before they are multiplied") {
  const TensorInfo x = tensor("x", {2, 8, 9, 3}), dy = tensor("dy", {2, 8, 9, 4});
  const std::int64_t huge = std::int64_t{1} << 62;
  using A = WgradAttributes;
  for (const std::int64_t bad :
       {std::int64_t{0}, std::int64_t{-1}, -huge, huge, std::int64_t{0x7fffffffffffffff}}) {
    CAPTURE(bad);
    const std::string found = cat(" is ", bad, ", expected at ", bad < 1 ? "least 1" : "most ");
    check_refused(x, dy, changed(&A::kernel, {bad, 3}), "--kernel: R" + found);
    check_refused(x, dy, changed(&A::kernel, {3, bad}), "--kernel: S" + found);
    check_refused(x, dy, changed(&A::strides, {bad}), "--strides: H" + found);
    check_refused(x, dy, changed(&A::strides, {1, bad}), "--strides: W" + found);
    check_refused(x, dy, changed(&A::dilations, {1, bad, 1, 1}), "--dilations: H" + found);
    check_refused(x, dy, changed(&A::dilations, {1, bad}), "--dilations: W" + found);
    check_refused(x, dy, sized({3, 3, bad, 4}), "--filter-sizes[2] ");
    check_refused(x, dy, grouped(bad), "groups");
    if (bad != 0) check_refused(x, dy, padded({bad, 0, 0, 0}), "");
  }
  CHECK_THROWS_AS(make_problem(tensor("x", {huge, 8, 9, 3}), tensor("dy", {huge, 8, 9, 4}),
                               conv2d_attributes()),
                  Error);
  WgradAttributes lower = changed(&A::kernel, {3, std::int64_t{1} << 31});
  lower.dilations = {1, 3};
  lower.padding = "SAME_LOWER";
  check_refused(x, dy, lower, "--padding SAME_LOWER: the padding is 3221225471, expected at most");
  // An extent of 0 must not hide that the others overflow.
  CHECK_THROWS_AS(make_problem(tensor("x", {0, huge, 9, 3}), tensor("dy", {0, huge, 9, 4}),
                               conv2d_attributes()),
                  Error);
}
