// problem_line_test.cpp - a problem as a line of text, and back.
#include <doctest/doctest.h>

#include <initializer_list>
#include <utility>

#include "convgrad/problem.hpp"

using namespace convgrad;

TEST_CASE("a line says a problem, in any order and with defaults") {
  const auto read = [](const std::string& line) { return make_problem(parse_problem(line)); };
  const auto same = [&](const std::string& one, const std::string& other) {
    CAPTURE(one);
    CHECK(describe(read(one)) == other);
    CHECK(describe(read(other)) == other);
    CHECK(read(other) == read(one));
  };
  same("conv2d h8 w9 c3 k4 r3 s3", "conv2d float32 NHWC n1 h8 w9 c3 k4 r3 s3");
  same("Conv2DBackpropFilter s3 r3 k4 c3 w9 h8 n2 nchw bf16",
       "conv2d bfloat16 NCHW n2 h8 w9 c3 k4 r3 s3");
  same("conv2d h8 w9 c3 k4 r3 s3 pad_same", "conv2d float32 NHWC n1 h8 w9 c3 k4 r3 s3 pad_same");
  same("conv2d h8 w9 c3 k4 r3 s3 pad1", "conv2d float32 NHWC n1 h8 w9 c3 k4 r3 s3 pad_same");
  same("conv2d h8 w9 c3 k4 r3 s3 pad2,3 stride2,2 OHWI",
       "conv2d float32 NHWC n1 h8 w9 c3 k4 r3 s3 stride2 pad2,3 OHWI");
  same("conv2d h8 w9 c3 k4 r3 s3 pad_after1 dilation1,2 float16->float32",
       "conv2d float16->float32 NHWC n1 h8 w9 c3 k4 r3 s3 dilation1,2 pad_after1");
  same("depthwise float8_e4m3fn*float8_e5m2->float32 h8 w9 c3 m2 r3 s3",
       "depthwise float8_e4m3fn*float8_e5m2->float32 NHWC n1 h8 w9 c3 k6 r3 s3");
  same("depthwise h8 w9 c0 m2 r3 s3", "depthwise float32 NHWC n1 h8 w9 c0 m2 r3 s3");
  same("depthwise h8 w9 c0 k0 r3 s3 OIHW", "depthwise float32 NHWC n1 h8 w9 c0 m1 r3 s3 OIHW");
  same("conv3d d4 h0 w9 c2 k4 groups2 t1 r2 s3 stride1,3,1",
       "conv3d float32 NDHWC n1 d4 h0 w9 c2 k4 t1 r2 s3 groups2 stride1,3,1");
  for (const auto& rejected : std::initializer_list<std::pair<const char*, const char*>>{
           {"conv4d n2", "'conv4d' is not an operation"},
           {"conv2d h8 w9 c3 k4 r3", "s is missing"},
           {"conv2d h8 w9 c3 k4 r3 s3 n2 n3", "'n3': n is there twice"},
           {"conv2d h8 w9 c3 k4 r3 s3 d2", "'d2' is no word of a conv2d"},
           {"conv2d h8 w9 c3 k4 r3 s3 n-1", "'n-1', expected n and a whole number"},
           {"conv2d h8 w9 c3,3 k4 r3 s3", "c: 2 numbers, expected one"},
           {"conv2d h8 w9 c3 k4 r3 s3 stride1,", "'stride1,', expected stride and a whole number"},
           {"conv2d h8 w9 c3 k4 r3 s3 pad1,2,3", "pad: 3 numbers, expected 1 or 2"},
           {"conv2d h8 w9 c3 k4 r3 s3 pad1 pad_same", "the padding is there twice"},
           {"conv2d h8 w9 c3 m4 r3 s3", "m is there, expected it of depthwise"},
           {"depthwise h8 w9 c3 m4 k4 r3 s3", "m is there, expected m or k"},
           {"conv2d h8 w9 c3 k4 r3 s99", "x: W is 9 with padding 0,0"}}) {
    CAPTURE(rejected.first);
    CHECK_THROWS_WITH_AS(read(rejected.first), doctest::Contains(rejected.second), Error);
  }
}

TEST_CASE("more than 2^31 elements are legal") {
  const auto read = [](const char* line) { return make_problem(parse_problem(line)); };
  const WgradProblem problem = read("conv2d n70000 h300 w300 c3 k8 r3 s3 pad_same");
  CHECK(problem.x_count() == 18900000000);
  CHECK(term_count(problem) == 6300000000);
  CHECK(flop_count(problem) == doctest::Approx(2.0 * 6.3e9 * 216));
  CHECK(read("conv2d h9 w9 c3 k8 r50000 s50000 pad_same").dw_count() == 60000000000);
}
