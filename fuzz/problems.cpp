// problems.cpp - whole tiny problems through every algorithm that this processor can run, and the
// one that emulates AMX, against the reference.
//
// Sums must stay within the documented bound, be exact on small integers, and have the same bits
// whatever the blocks.
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/integers.hpp"
#include "fuzz.hpp"
#include "support/emulated_amx/emulated_amx.hpp"
#include "support/tensors.hpp"

using namespace convgrad;
using namespace convgrad::fuzz;
using namespace convgrad::testing;

namespace {

constexpr double kMostFlops = 30'000;  // what takes a millisecond under the sanitizers

enum class Data { integers, normal, special };

struct Case {
  WgradProblem problem;
  Data data = Data::integers;
  std::vector<std::byte> x, dy;
  std::int64_t block_bytes = 0;
};

std::int64_t channels(Choices& choices) {
  static constexpr std::array<std::int64_t, 16> kCounts = {1, 2,  3,  4,  5,  7,  8,  15,
                                                           9, 16, 17, 24, 32, 33, 48, 65};
  return choices.of(kCounts);
}

std::optional<WgradProblem> choose_problem(Choices& choices, DType dtype) {
  const std::int64_t kind = choices.between(0, 4);
  const bool deep = kind == 4;
  WgradAttributes a;
  a.op = deep ? "conv3d" : kind == 3 ? "depthwise" : "conv2d";
  const bool last = choices.one_in(2);
  a.data_format = last ? (deep ? "NDHWC" : "NHWC") : (deep ? "NCDHW" : "NCHW");
  const std::int64_t groups = kind == 2 ? channels(choices) : 1;
  const std::int64_t C = kind == 2 ? groups * choices.between(1, 4) : channels(choices);
  const std::int64_t K = kind == 2   ? groups * choices.between(1, 4)
                         : kind == 3 ? C * choices.between(1, 3)
                                     : channels(choices);
  if (kind != 3) a.groups = groups;
  TensorInfo x{"x", dtype, {choices.between(0, 4)}}, dy{"dy", dtype, {}};
  if (!last) x.shape.push_back(C);
  for (int axis = deep ? 0 : 1; axis < 3; ++axis) {
    x.shape.push_back(choices.one_in(8) ? choices.between(0, 40) : choices.between(1, 9));
    a.kernel.push_back(choices.between(1, choices.one_in(8) ? 9 : 3));
    a.strides.push_back(choices.one_in(2) ? choices.between(1, 4) : 1);
    a.dilations.push_back(choices.one_in(4) ? choices.between(1, 4) : 1);
  }
  if (last) x.shape.push_back(C);
  a.padding = choices.one_in(2) ? "SAME" : choices.one_in(2) ? "VALID" : "EXPLICIT";
  for (std::size_t i = 0; a.padding == "EXPLICIT" && i < 2 * a.kernel.size(); ++i) {
    a.explicit_paddings.push_back(choices.between(0, 5));
  }
  std::optional<WgradProblem> problem;
  refused(0, "", [&] {
    dy.shape = out_backprop_shape(x, a, K);
    problem = make_problem(x, dy, a);
  });
  if (problem && flop_count(*problem) + static_cast<double>(problem->x_count()) +
                         static_cast<double>(problem->dy_count()) * 4 +
                         static_cast<double>(problem->dw_count()) * 4 >
                     kMostFlops) {
    problem.reset();
  }
  return problem;
}

// Any numbers of medium size, with zeros of both signs, NaN and infinities among them.
std::vector<std::byte> special_values(Choices& choices, DType dtype, std::int64_t count,
                                      unsigned seed) {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr std::array<double, 8> kSpecial = {
      0.0, -0.0, kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN(), 0.0, 1.0, -0.0};
  std::vector<double> values = widened(dtype, filled(dtype, count, Fill::normal, seed));
  for (std::int64_t n = choices.between(0, 5); n > 0 && count > 0; --n) {
    const auto at = static_cast<std::size_t>(choices.byte() * 256 + choices.byte());
    values[at % values.size()] = choices.of(kSpecial);
  }
  return tensor_of(dtype, values);
}

std::optional<Case> choose(Choices& choices) {
  static constexpr std::array<DType, 4> kDTypes = {DType::f32, DType::bf16, DType::f16, DType::f64};
  Case c;
  const DType dtype = choices.of(kDTypes);
  c.data = static_cast<Data>(choices.between(0, 2));
  const std::uint8_t seed = choices.byte();
  if (choices.one_in(2)) c.block_bytes = std::int64_t{1} << choices.between(0, 14);
  const std::optional<WgradProblem> problem = choose_problem(choices, dtype);
  if (!problem) return {};
  c.problem = *problem;
  const auto tensor = [&](std::int64_t count, unsigned number) {
    if (c.data == Data::special) return special_values(choices, dtype, count, number);
    return filled(dtype, count, c.data == Data::normal ? Fill::normal : Fill::small_integers,
                  number);
  };
  c.x = tensor(problem->x_count(), seed);
  c.dy = tensor(problem->dy_count(), seed + 1000u);
  return c;
}

std::vector<double> sums(const Case& c, const Kernel& kernel, std::int64_t block_bytes) {
  PlanOptions options;
  options.kernel = &kernel;  // which need not be in the table
  options.in_memory = true;
  options.threads = 1;
  options.block_bytes = block_bytes;
  return sums_of(make_plan(c.problem, this_machine(), options), c.x.data(), c.dy.data());
}

void check(const Case& c, const Kernel& kernel, const Expected& reference) {
  if (!kernel.why_not(c.problem, this_machine()).empty()) return;
  const std::string what = cat(kernel.name, " on ", describe(c.problem));
  const std::vector<double> got = sums(c, kernel, 0);
  const Comparison comparison = compare_sums(c.problem, got, reference);
  require(comparison.match(), "a gradient",
          cat(what, ": ", comparison.mismatches, " wrong, the first at ",
              comparison.first_mismatch.index, ": ", comparison.first_mismatch.got, " for ",
              comparison.first_mismatch.want, "; errors ", comparison.rounding->worst.rms,
              " times rounding's, ", comparison.rounding->worst.allowed, " allowed"));
  if (c.data == Data::integers) {
    require(got == reference.values, "a gradient of integers, which is exact", what);
  }
  if (c.block_bytes == 0) return;
  const std::vector<double> again = sums(c, kernel, c.block_bytes);
  require(std::memcmp(again.data(), got.data(), got.size() * sizeof(double)) == 0,
          "the bits in other blocks", cat(what, " in blocks of ", c.block_bytes, " bytes"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices choices(data, size);
  const std::optional<Case> c = choose(choices);
  if (!c) return 0;
  const Expected reference = reference_of(c->problem, c->x.data(), c->dy.data(), 1);
  for (const Kernel& kernel : kernels()) check(*c, kernel, reference);
  // The last is AMX-FP16; the others are packings that give the same panels.
  const auto emulated = emulated_amx_kernels();
  check(*c, *emulated[size % (emulated.size() - 1)], reference);
  check(*c, *emulated.back(), reference);
  return 0;
}
