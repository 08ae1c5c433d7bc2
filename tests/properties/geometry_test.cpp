// geometry_test.cpp - problems whose axes or padding are spelled otherwise, for every algorithm.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "check_property.hpp"
#include "dense.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// The case with its paddings written out, whatever they were.
RandomCase with_explicit_padding(const RandomCase& c) {
  const WgradProblem problem = c.problem();
  RandomCase result = c;
  result.spec.padding = "EXPLICIT";
  result.spec.pads.clear();
  for (std::size_t a = 3 - c.spec.axes.size(); a < 3; ++a) {
    result.spec.pads.push_back(problem.axis[a].pad_before);
    result.spec.pads.push_back(problem.axis[a].pad_after);
  }
  return result;
}

// Moves spatial axes about: axis 1 + order[a] of the tensor becomes axis 1 + a.
Dense turned(const Dense& tensor, const std::array<std::size_t, 3>& order) {
  Position extent = tensor.extent;
  for (std::size_t a = 0; a < 3; ++a) extent[1 + a] = tensor.extent[1 + order[a]];
  return dense_of(extent, [&](const Position& at) {
    Position from = at;
    for (std::size_t a = 0; a < 3; ++a) from[1 + order[a]] = at[1 + a];
    return tensor[from];
  });
}

// dw has its spatial axes first.
Dense turned_filter(const Dense& dw, const std::array<std::size_t, 3>& order) {
  Position extent = dw.extent;
  for (std::size_t a = 0; a < 3; ++a) extent[a] = dw.extent[order[a]];
  return dense_of(extent, [&](const Position& at) {
    Position from = at;
    for (std::size_t a = 0; a < 3; ++a) from[order[a]] = at[a];
    return dw[from];
  });
}

Dense flipped(const Dense& tensor, std::size_t axis) {
  return dense_of(tensor.extent, [&](Position at) {
    at[axis] = tensor.extent[axis] - 1 - at[axis];
    return tensor[at];
  });
}

// x[begin, begin + extent) of one axis, zeros outside.
Dense windowed(const Dense& x, std::size_t axis, std::int64_t begin, std::int64_t size) {
  Position extent = x.extent;
  extent[axis] = size;
  return dense_of(extent, [&](Position at) {
    at[axis] += begin;
    return at[axis] >= 0 && at[axis] < x.extent[axis] ? x[at] : 0.0;
  });
}

bool same_bits(const Dense& a, const Dense& b) {
  return a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * 8) == 0;
}

// "", or the first kernel that gives other bits where the same tensors are read as `other`.
std::string other_bits_as(const RandomCase& c, const WgradProblem& other) {
  const Tensors made = made_tensors(c);
  const WgradProblem problem = c.problem();
  return first_wrong_kernel(c, {other}, [&](const Kernel& kernel) -> std::string {
    const Dense dw = gradient(kernel, c, problem, made.x, made.dy);
    const Dense got = gradient(kernel, c, other, made.x, made.dy);
    return same_bits(got, dw) ? "" : "other bits as " + describe(other);
  });
}

}  // namespace

TEST_CASE("a problem's line is read back as the problem") {
  check_property(named("a line read back"), [](const RandomCase& c) -> std::string {
    WgradProblem problem = c.problem();
    problem.filter_format = static_cast<FilterFormat>(c.data.seed % 3);
    problem.out_dtype = c.data.seed % 2 == 0 ? DType::f64 : problem.dtype;
    const WgradProblem back = make_problem(parse_problem(describe(problem)));
    return back == problem ? "" : cat(describe(problem), " is read as ", describe(back));
  });
}

TEST_CASE("exchanging spatial axes exchanges the filter's") {
  check_property(named("transposing spatial axes"), [](const RandomCase& c) {
    RandomCase other = with_explicit_padding(c);
    std::ranges::reverse(other.spec.axes);
    std::vector<std::int64_t> pads;
    for (std::size_t a = other.spec.axes.size(); a-- > 0;) {
      pads.push_back(other.spec.pads[2 * a]);
      pads.push_back(other.spec.pads[2 * a + 1]);
    }
    other.spec.pads = pads;
    const std::array<std::size_t, 3> order = c.spec.axes.size() == 3
                                                 ? std::array<std::size_t, 3>{2, 1, 0}
                                                 : std::array<std::size_t, 3>{0, 2, 1};
    const Tensors made = made_tensors(c);
    const WgradProblem problem = c.problem(), turned_problem = other.problem();
    return first_wrong_kernel(c, {turned_problem}, [&](const Kernel& kernel) {
      const Dense dw = gradient(kernel, c, problem, made.x, made.dy);
      const Dense got =
          gradient(kernel, c, turned_problem, turned(made.x, order), turned(made.dy, order));
      return difference(got, turned_filter(dw, order), describe(turned_problem));
    });
  });
}

// The last tap of the last output falls on row (out - 1) * stride + reach - pad_before of x: rows
// behind it are not read, and rows that it lacks are padding after. Flipped, both come first.
TEST_CASE("flipping x and dy flips the gradient") {
  check_property(named("flipping"), [](const RandomCase& c) -> std::string {
    const WgradProblem problem = c.problem();
    const auto offset = 3 - c.spec.axes.size();
    const std::size_t a = c.data.seed % c.spec.axes.size();
    const SpatialAxis& axis = problem.axis[a + offset];
    const std::int64_t seen =
        (axis.out - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1 - axis.pad_before;
    if (seen < 1 || axis.out == 0) return "";  // no tap sees x
    RandomCase other = with_explicit_padding(c);
    other.spec.axes[a].in = std::min(seen, axis.in);
    other.spec.pads[2 * a] = seen - other.spec.axes[a].in;
    other.spec.pads[2 * a + 1] = axis.pad_before;
    const WgradProblem flipped_problem = other.problem();
    const std::size_t at = 1 + a + offset;
    const Tensors made = made_tensors(c);
    const Dense x = flipped(windowed(made.x, at, 0, other.spec.axes[a].in), at);
    return first_wrong_kernel(c, {flipped_problem}, [&](const Kernel& kernel) {
      const Dense dw = gradient(kernel, c, problem, made.x, made.dy);
      const Dense got = gradient(kernel, c, flipped_problem, x, flipped(made.dy, at));
      return difference(got, flipped(dw, at - 1), describe(flipped_problem));
    });
  });
}

TEST_CASE("padding is zeros around the input") {
  check_property(named("padding against an explicitly padded input"), [](const RandomCase& c) {
    const WgradProblem problem = c.problem();
    const auto offset = 3 - c.spec.axes.size();
    const Tensors made = made_tensors(c);
    RandomCase padded = c;
    padded.spec.padding = "VALID";
    padded.spec.pads.clear();
    Dense x = made.x;
    for (std::size_t a = 0; a < c.spec.axes.size(); ++a) {
      const SpatialAxis& axis = problem.axis[a + offset];
      padded.spec.axes[a].in = axis.in + axis.pad_before + axis.pad_after;
      x = windowed(x, 1 + a + offset, -axis.pad_before, padded.spec.axes[a].in);
    }
    const WgradProblem padded_problem = padded.problem();
    return first_wrong_kernel(c, {padded_problem}, [&](const Kernel& kernel) {
      const Dense dw = gradient(kernel, c, problem, made.x, made.dy);
      return difference(gradient(kernel, c, padded_problem, x, made.dy), dw,
                        describe(padded_problem));
    });
  });
}

TEST_CASE("a depthwise convolution is a grouped one, to the bit") {
  Property property = named("depthwise against groups = C, on normal data");
  property.limits.ops = {"depthwise"};
  property.limits.distribution = Distribution::normal;
  check_property(property, [](const RandomCase& c) {
    RandomCase grouped = c;
    grouped.spec.op = "conv2d";
    return other_bits_as(c, grouped.problem());
  });
}

TEST_CASE("conv2d is conv3d of depth 1, to the bit") {
  Property property = named("conv3d of depth 1 against conv2d, on normal data");
  property.limits.ops = {"conv2d"};
  property.limits.distribution = Distribution::normal;
  check_property(property, [](const RandomCase& c) {
    RandomCase deep = c;
    deep.spec.op = "conv3d";
    deep.spec.axes.insert(deep.spec.axes.begin(), AxisSpec{1, 1});
    if (!deep.spec.pads.empty()) deep.spec.pads.insert(deep.spec.pads.begin(), {0, 0});
    return other_bits_as(c, deep.problem());
  });
}
