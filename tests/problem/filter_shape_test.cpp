// filter_shape_test.cpp - the filter's shape as a file has it: read in each format, or refused.
#include <doctest/doctest.h>

#include "convgrad/problem.hpp"

using namespace convgrad;

namespace {

TensorInfo of_float32(const char* name, std::vector<std::int64_t> shape) {
  return {name, DType::f32, std::move(shape)};
}

WgradAttributes like_file(std::vector<std::int64_t> shape) {
  WgradAttributes a;
  a.op = "conv2d";
  a.padding = "SAME";
  a.filter_like = std::move(shape);
  return a;
}

}  // namespace

TEST_CASE("a filter's shape is read in the filter format") {
  WgradAttributes a = like_file({3, 2, 4, 12});
  const TensorInfo x = of_float32("x", {2, 5, 6, 8}), dy = of_float32("dy", {2, 5, 6, 12});
  const WgradProblem hwio = make_problem(x, dy, a);
  CHECK(dw_shape(hwio) == std::vector<std::int64_t>{3, 2, 4, 12});
  a.filter_like = {12, 4, 3, 2};
  a.filter_format = "OIHW";
  const WgradProblem oihw = make_problem(x, dy, a);
  CHECK(dw_shape(oihw) == a.filter_like);
  CHECK(oihw.axis == hwio.axis);
  CHECK(oihw.groups == 2);
  a.filter_like = {12, 3, 2, 4};
  a.filter_format = "ohwi";
  CHECK(dw_shape(make_problem(x, dy, a)) == a.filter_like);
  a.op = "DepthwiseConv2dNativeBackpropFilter";
  a.filter_like = {16, 3, 2, 1};
  const WgradProblem depthwise = make_problem(x, of_float32("dy", {2, 5, 6, 16}), a);
  CHECK(depthwise.groups == 8);
  CHECK(dw_shape(depthwise) == a.filter_like);
}

TEST_CASE("a filter's shape of too few or too many axes is told what fits") {
  const auto refused = [&](const WgradAttributes& a, const std::string& message) {
    const TensorInfo x = of_float32("x", {2, 5, 6, 4}), dy = of_float32("dy", {2, 5, 6, 8});
    CHECK_THROWS_WITH_AS(make_problem(x, dy, a), doctest::Contains(message.c_str()), Error);
  };
  refused(like_file({288}), ": 1 axis [288], expected 4 for conv2d; reshape it to HWIO");
  refused(like_file({2, 3, 3, 4, 8}),
          ": 5 axes [2,3,3,4,8], expected 4 for conv2d; make images groups");
  refused(like_file({3, 3, 3, 4, 8}), "expected 4 for conv2d; reshape it to HWIO");
}
