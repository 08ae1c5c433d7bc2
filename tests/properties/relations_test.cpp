// relations_test.cpp - how gradients of related problems are related, for every algorithm.
//
// On integers every sum is exact, so relations that reorder the sum hold bit for bit too.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "check_property.hpp"
#include "dense.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// Checks verdict(kernel, problem, tensors, gradient) for every kernel that computes the case.
template <typename Verdict>
void check_relation(const Property& property, Verdict&& verdict) {
  check_property(property, [&](const RandomCase& c) {
    const WgradProblem problem = c.problem();
    const Tensors made = made_tensors(c);
    return first_wrong_kernel(c, {}, [&](const Kernel& kernel) {
      return verdict(kernel, c, made, gradient(kernel, c, problem, made.x, made.dy));
    });
  });
}

// The images that order names, in that order.
Dense images_of(const Dense& tensor, const std::vector<std::int64_t>& order) {
  Position extent = tensor.extent;
  extent[0] = std::ssize(order);
  return dense_of(extent, [&](Position at) {
    at[0] = order[static_cast<std::size_t>(at[0])];
    return tensor[at];
  });
}

Dense scaled(Dense tensor, double factor) {
  for (double& value : tensor.values) value *= factor;
  return tensor;
}

Dense sum(Dense a, const Dense& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

// 0 .. count - 1 in an order that the seed chooses.
std::vector<std::int64_t> shuffled(std::int64_t count, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(seed);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

}  // namespace

TEST_CASE("scaling x and dy by powers of two scales every bit") {
  Property property = named("linearity in powers of two, on normal data");
  property.limits.distribution = Distribution::normal;
  check_relation(property, [](const Kernel& kernel, const RandomCase& c, const Tensors& made,
                              const Dense& dw) {
    // float16's subnormal numbers would lose bits.
    const int least = c.dtype == DType::f16 ? 0 : -8, most = c.dtype == DType::f16 ? 3 : 8;
    const int span = most - least + 1, pick = static_cast<int>(c.data.seed % 10'000);
    const double a = std::ldexp(1, least + pick % span),
                 b = std::ldexp(1, least + pick / span % span);
    const Dense got = gradient(kernel, c, c.problem(), scaled(made.x, a), scaled(made.dy, b));
    return difference(got, scaled(dw, a * b), cat("x times ", a, ", dy times ", b));
  });
}

TEST_CASE("the gradient of a sum is the sum of the gradients") {
  check_relation(named("additivity in dy"), [](const Kernel& kernel, const RandomCase& c,
                                               const Tensors& made, const Dense& dw) {
    RandomCase other = c;
    other.data.seed += 1'000'000;
    const Dense dy = from_file(c.problem(), Operand::dy, made_tensor(other, Operand::dy));
    const Dense more = gradient(kernel, c, c.problem(), made.x, dy);
    const Dense got = gradient(kernel, c, c.problem(), made.x, sum(made.dy, dy));
    return difference(got, sum(dw, more), "dy is a sum of two");
  });
}

TEST_CASE("the gradient of a batch is the sum of its parts'") {
  check_relation(named("sum over batch splits"), [](const Kernel& kernel, const RandomCase& c,
                                                    const Tensors& made, const Dense& dw) {
    const std::int64_t N = c.spec.N, cut = static_cast<std::int64_t>(c.data.seed) % (N + 1);
    Dense total(dw.extent);
    for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, {cut, N}}) {
      std::vector<std::int64_t> images(static_cast<std::size_t>(end - begin));
      std::iota(images.begin(), images.end(), begin);
      RandomCase part = c;
      part.spec.N = end - begin;
      // Fewer images can make longer chunks, and those a panel that is too large for the kernel.
      if (!kernel.why_not(part.problem(), this_machine()).empty()) return std::string();
      total = sum(total, gradient(kernel, c, part.problem(), images_of(made.x, images),
                                  images_of(made.dy, images)));
    }
    return difference(total, dw, cat("images 0 to ", cut, " and the rest apart"));
  });
}

TEST_CASE("the order of the images does not matter") {
  check_relation(named("permuting images"), [](const Kernel& kernel, const RandomCase& c,
                                               const Tensors& made, const Dense& dw) {
    const std::vector<std::int64_t> order = shuffled(c.spec.N, c.data.seed);
    const Dense got =
        gradient(kernel, c, c.problem(), images_of(made.x, order), images_of(made.dy, order));
    return difference(got, dw, "images in another order");
  });
}

TEST_CASE("both data formats have one gradient") {
  check_relation(named("transposing layouts"), [](const Kernel& kernel, const RandomCase& c,
                                                  const Tensors& made, const Dense& dw) {
    const WgradProblem other = make(c.spec, c.dtype, !c.channels_last);
    if (!kernel.why_not(other, this_machine()).empty()) return std::string();
    return difference(gradient(kernel, c, other, made.x, made.dy), dw,
                      "channels in the other place");
  });
}

TEST_CASE("groups are problems of their own") {
  Property property = named("groups against separate problems");
  property.applies = [](const RandomCase& c) { return c.spec.groups > 1; };
  check_relation(
      property,
      [](const Kernel& kernel, const RandomCase& c, const Tensors& made,
         const Dense& dw) -> std::string {
        const std::int64_t C = c.spec.C / c.spec.groups, K = c.spec.K / c.spec.groups;
        const std::int64_t group = static_cast<std::int64_t>(c.data.seed) % c.spec.groups;
        RandomCase one = c;
        if (c.spec.op == "depthwise") one.spec.op = "conv2d";
        one.spec.groups = 1;
        one.spec.C = C;
        one.spec.K = K;
        const WgradProblem problem = one.problem();
        if (!kernel.why_not(problem, this_machine()).empty()) return "";
        const auto part = [&](const Dense& tensor, std::int64_t channels) {
          Position extent = tensor.extent;
          extent[4] = channels;
          return dense_of(extent, [&](Position at) {
            at[4] += group * channels;
            return tensor[at];
          });
        };
        return difference(gradient(kernel, one, problem, part(made.x, C), part(made.dy, K)),
                          part(dw, K), cat("group ", group, " by itself"));
      });
}
