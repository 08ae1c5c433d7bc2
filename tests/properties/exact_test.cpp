// exact_test.cpp - every algorithm on random problems: exact on integers, else within the bound.
#include <doctest/doctest.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "check_property.hpp"
#include "convgrad/gradient_file.hpp"
#include "cuda/emulated_device.hpp"
#include "support/cases.hpp"
#include "support/emulated_amx/emulated_amx.hpp"
#include "support/tensors.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// The kernel's sums from tensors in memory, and from copies of the boxes that blocks are.
std::vector<double> sums_from_blocks(const Kernel& kernel, const RandomCase& c) {
  const WgradProblem problem = c.problem();
  const Plan plan = plan_for(kernel, problem, c.threads, c.block_bytes);
  const TensorMaker x(problem, Operand::x, c.data), dy(problem, Operand::dy, c.data);
  MadeSource source(x, dy);
  TaskPool pool(plan.threads);
  const std::unique_ptr<BlockSum> sum = make_sum(plan, pool);
  sum_blocks(plan, source, *sum);
  const double* dw = sum->finish();
  return {dw, dw + problem.dw_count()};
}

std::string first_difference(const WgradProblem& problem, const std::vector<double>& got,
                             const std::vector<double>& want) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i]) continue;
    const auto at = static_cast<std::int64_t>(i), k = problem.K, c = problem.group_c();
    return cat("got ", got[i], ", want ", want[i], " at tap ", at / (c * k), ", c ", at / k % c,
               ", k ", at % k);
  }
  return "";
}

std::string not_exact(const Kernel& kernel, const RandomCase& c) {
  const WgradProblem problem = c.problem();
  const auto x = made_tensor(c, Operand::x), dy = made_tensor(c, Operand::dy);
  const Expected reference = reference_of(problem, x.data(), dy.data(), 1);
  const auto got = sums_of(kernel, problem, x.data(), dy.data(), c.threads, c.block_bytes);
  std::string what = first_difference(problem, got, reference.values);
  if (what.empty() && c.block_bytes > 0) {
    what = first_difference(problem, sums_from_blocks(kernel, c), reference.values);
    if (!what.empty()) what += ", from copies of blocks";
  }
  return what.empty() ? "" : what + "\n" + repeat_lines(c, cat(" -a ", kernel.name));
}

// Dtypes of which the kernel computes some problem here.
std::vector<DType> dtypes_of(const Kernel& kernel) {
  std::vector<DType> dtypes;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    for (const WgradProblem& problem : plain_problems(dtype)) {
      if (!kernel.why_not(problem, this_machine()).empty()) continue;
      dtypes.push_back(dtype);
      break;
    }
  }
  return dtypes;
}

void check_exact(const Kernel& kernel, double multiply_adds, int divisor) {
  Property property;
  property.name = cat(kernel.name, " is bit-exact on integers");
  property.limits.dtypes = dtypes_of(kernel);
  property.limits.multiply_adds = multiply_adds;
  property.divisor = divisor;
  property.applies = [&](const RandomCase& c) {
    return kernel.why_not(c.problem(), this_machine()).empty();
  };
  if (property.limits.dtypes.empty()) {
    const std::string reason = lacking(kernel);
    std::cout << property.name << ": not run, " << reason << std::endl;
    CHECK_FALSE(reason.empty());  // it must not fall out unseen
    return;
  }
  check_property(property, [&](const RandomCase& c) { return not_exact(kernel, c); });
}

}  // namespace

TEST_CASE("random problems are of every kind") {
  std::map<std::string, int> seen;
  Property property;
  property.name = "kinds of problems";
  property.least = 250;
  check_property(property, [&](const RandomCase& c) {
    const WgradProblem problem = c.problem();
    const Plan plan = plan_for(kernels().back(), problem, c.threads, c.block_bytes);
    ++seen[c.spec.op];
    ++seen[c.spec.padding];
    ++seen[std::string(dtype_name(c.dtype))];
    ++seen[data_format_name(problem)];
    seen["several chunks"] += plan.schedule.chunks.count > 1 ? 1 : 0;
    seen["several slices"] += plan.schedule.slices.count() > 1 ? 1 : 0;
    seen["several blocks"] += plan.schedule.blocks.count > 1 ? 1 : 0;
    seen["grouped"] += problem.groups > 1 && c.spec.op != "depthwise" ? 1 : 0;
    seen["wide"] += problem.C > 40 || problem.K > 40 ? 1 : 0;
    seen["nothing to add"] += plan.schedule.chunks.count == 0 ? 1 : 0;
    for (const SpatialAxis& axis : problem.axis) {
      seen["strided"] += axis.stride > 1 ? 1 : 0;
      seen["dilated"] += axis.dilation > 1 ? 1 : 0;
      seen["stride over filter"] += axis.stride > axis.taps ? 1 : 0;
      seen["cropped"] += axis.pad_before < 0 ? 1 : 0;
      seen["padding over filter"] += axis.pad_before > (axis.taps - 1) * axis.dilation ? 1 : 0;
    }
    return std::string();
  });
  const int cases = std::max(property.least, property_cases());
  for (const auto& kind : seen) {
    CAPTURE(kind.first);
    CAPTURE(kind.second);
    std::cout << "  " << kind.first << ": " << kind.second << std::endl;
    CHECK(kind.second * 100 >= cases);
  }
  CHECK(seen.size() == 25);
}

TEST_CASE("every algorithm is bit-exact on random integer problems") {
  for (const Kernel& kernel : kernels()) check_exact(kernel, 1e6, 1);
  for (const Kernel* kernel : emulated_amx_kernels()) check_exact(*kernel, 1e5, 1);
}

TEST_CASE("every algorithm for devices is bit-exact on random integer problems, emulated") {
  for (const DeviceKernel& kernel : device_kernels()) {
    if (!kernel.is_exact) continue;
    Property property;
    property.name = cat(kernel.name, ", emulated, is bit-exact on integers");
    property.limits.multiply_adds = 3e4;
    property.divisor = 2;
    property.applies = [&](const RandomCase& c) {
      const WgradProblem problem = c.problem();
      return kernel.why_not(problem, emulated_device()).empty() && is_quick(problem, kernel);
    };
    check_property(property, [&](const RandomCase& c) {
      const WgradProblem problem = c.problem();
      const auto x = made_tensor(c, Operand::x), dy = made_tensor(c, Operand::dy);
      const Expected reference = reference_of(problem, x.data(), dy.data(), 1);
      const Plan plan = plan_with(problem, kernel.name, c.block_bytes);
      const std::string what =
          first_difference(problem, emulated_sums(plan, x.data(), dy.data()), reference.values);
      return what.empty() ? "" : what + "\n" + repeat_lines(c, "");
    });
  }
}

TEST_CASE("every algorithm stays within the error bound on random data") {
  for (const auto& [data, name] : {std::pair{Distribution::normal, "normal"},
                                   std::pair{Distribution::adversarial, "adversarial"}}) {
    Property property;
    property.name = cat("every kernel stays within the error bound on ", name, " data");
    property.limits.distribution = data;
    property.divisor = 2;
    check_property(property, [](const RandomCase& c) {
      const WgradProblem problem = c.problem();
      const auto x = made_tensor(c, Operand::x), dy = made_tensor(c, Operand::dy);
      const Expected reference = reference_of(problem, x.data(), dy.data(), 1);
      return first_wrong_kernel(c, {}, [&](const Kernel& kernel) {
        const auto got = sums_of(kernel, problem, x.data(), dy.data(), c.threads, c.block_bytes);
        const Comparison comparison = compare_sums(problem, got, reference);
        return comparison.mismatches == 0 ? "" : cat(comparison.ratio.value, " times the bound");
      });
    });
  }
}

TEST_CASE("the result is the reference's, rounded, in every filter format and dtype") {
  Property property;
  property.name = "filter_gradient rounds the reference's sums, in every order and dtype";
  check_property(property, [](const RandomCase& c) -> std::string {
    const auto x = made_tensor(c, Operand::x), dy = made_tensor(c, Operand::dy);
    const Expected reference = reference_of(c.problem(), x.data(), dy.data(), 1);
    for (const char* format : {"HWIO", "OIHW", "OHWI"}) {
      for (const char* out : {"float16", "bfloat16", "float32", "float64"}) {
        std::string name = format;
        if (c.spec.axes.size() == 3) name.insert(name.find('H'), "D");
        const WgradProblem problem = make(c.spec, c.dtype, c.channels_last, name, out);
        std::vector<double> want(reference.values.size());
        gather_gradient(problem, DType::f64, reference.values.data(), 0, problem.dw_count(),
                        want.data());
        std::vector<std::byte> got(
            static_cast<std::size_t>(problem.dw_count() * dtype_bytes(problem.out_dtype)));
        filter_gradient(problem, x.data(), dy.data(), got.data(),
                        PlanOptions{.threads = c.threads});
        if (got != tensor_of(problem.out_dtype, want)) {
          return cat("wrong with --filter-format ", name, " --out-dtype ", out, "\n",
                     repeat_lines(c, cat(" --filter-format ", name, " --out-dtype ", out)));
        }
      }
    }
    return "";
  });
}
