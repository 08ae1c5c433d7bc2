// relations_test.cpp - problems whose bits follow from another's, for every algorithm on normal
// data. Of integers exact_test.cpp knows every bit.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "check_property.hpp"
#include "support/tensors.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

std::vector<double> sums(const Kernel& kernel, const RandomCase& c, const WgradProblem& problem,
                         const std::vector<std::byte>& x, const std::vector<std::byte>& dy) {
  return sums_of(kernel, problem, x.data(), dy.data(), c.threads, c.block_bytes);
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 8) == 0;
}

Property of_ops(const char* name, const std::vector<std::string>& ops) {
  Property property = named(name);
  property.limits.ops = ops;
  property.limits.distribution = Distribution::normal;
  return property;
}

// "", or the first kernel that gives other bits where the same tensors are read as `other`.
std::string other_bits_as(const RandomCase& c, const WgradProblem& other) {
  const WgradProblem problem = c.problem();
  const auto x = made_tensor(c, Operand::x), dy = made_tensor(c, Operand::dy);
  return first_wrong_kernel(c, {other}, [&](const Kernel& kernel) -> std::string {
    const bool same = same_bits(sums(kernel, c, problem, x, dy), sums(kernel, c, other, x, dy));
    return same ? "" : "other bits as " + describe(other);
  });
}

std::vector<std::byte> scaled(DType dtype, const std::vector<std::byte>& tensor, double factor) {
  std::vector<double> values = widened(dtype, tensor);
  for (double& value : values) value *= factor;
  return tensor_of(dtype, values);
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

TEST_CASE("scaling x and dy by powers of two scales every bit") {
  const Property property = of_ops("linearity in powers of two", CaseLimits().ops);
  check_property(property, [](const RandomCase& c) {
    const WgradProblem problem = c.problem();
    const auto x = made_tensor(c, Operand::x), dy = made_tensor(c, Operand::dy);
    // float16's subnormal numbers would lose bits.
    const int least = c.dtype == DType::f16 ? 0 : -8, most = c.dtype == DType::f16 ? 3 : 8;
    const int span = most - least + 1, pick = static_cast<int>(c.data.seed % 10'000);
    const double a = std::ldexp(1, least + pick % span),
                 b = std::ldexp(1, least + pick / span % span);
    const auto x_scaled = scaled(c.dtype, x, a), dy_scaled = scaled(c.dtype, dy, b);
    return first_wrong_kernel(c, {}, [&](const Kernel& kernel) -> std::string {
      std::vector<double> want = sums(kernel, c, problem, x, dy);
      for (double& value : want) value *= a * b;
      const bool same = sums(kernel, c, problem, x_scaled, dy_scaled) == want;
      return same ? "" : cat("other bits with x times ", a, ", dy times ", b);
    });
  });
}

TEST_CASE("a depthwise convolution is a grouped one, to the bit") {
  check_property(of_ops("depthwise against groups = C", {"depthwise"}), [](const RandomCase& c) {
    RandomCase grouped = c;
    grouped.spec.op = "conv2d";
    return other_bits_as(c, grouped.problem());
  });
}

TEST_CASE("conv2d is conv3d of depth 1, to the bit") {
  check_property(of_ops("conv3d of depth 1 against conv2d", {"conv2d"}), [](const RandomCase& c) {
    RandomCase deep = c;
    deep.spec.op = "conv3d";
    deep.spec.axes.insert(deep.spec.axes.begin(), AxisSpec{1, 1});
    if (!deep.spec.pads.empty()) deep.spec.pads.insert(deep.spec.pads.begin(), {0, 0});
    return other_bits_as(c, deep.problem());
  });
}
