// gpu_test.cpp - the kernels on a device. Where there is none, each test says so and is skipped.
// CONVGRAD_TEST_KERNEL names one to be tested alone: what fails can take the process with it.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "support/cases.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// Empty, with a line that ctest takes for a skip, where there is no device.
std::optional<Device> device() {
  try {
    return cuda_device(0);
  } catch (const Error& error) {
    std::printf("skipped, no device: %s\n", error.what());
    return std::nullopt;
  }
}

PlanOptions options_for(const Device& device, std::string_view kernel) {
  return {.backend = Backend::cuda,
          .device = device,
          .algorithm = std::string(kernel),
          .least_chunks = 2};  // so that kernels go from one to the next
}

bool is_asked_for(const DeviceKernel& kernel) {
  const char* const name = std::getenv("CONVGRAD_TEST_KERNEL");
  return name == nullptr || kernel.name == name;
}

// What a kernel is tested with.
struct Case {
  const WgradProblem& problem;
  PlanOptions options;
  const void *x, *dy;
  const Expected& reference;

  std::vector<double> sums() const { return sums_of(problem, x, dy, options); }
};

// Calls check(case) for each kernel that is tested, but cuDNN.
template <typename Check>
void for_each_kernel(std::span<const ProblemSpec> specs, Fill fill, Check&& check) {
  const auto found = device();
  if (!found) return;
  for_each_case(
      specs, kDTypes, fill, [&](const WgradProblem& problem, const auto& x, const auto& dy) {
        const Expected reference = device_reference_of(problem, x.data(), dy.data());
        for (const DeviceKernel& kernel : device_kernels()) {
          if (!kernel.is_exact || !is_asked_for(kernel)) continue;
          if (!kernel.why_not(problem, *found).empty()) continue;
          CAPTURE(kernel.name);
          check(Case{problem, options_for(*found, kernel.name), x.data(), dy.data(), reference});
        }
      });
}

void check_exact(std::span<const ProblemSpec> specs) {
  for_each_kernel(specs, Fill::small_integers,
                  [](const Case& c) { CHECK(c.sums() == c.reference.values); });
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

}  // namespace

TEST_CASE("on a device, small integers come out bit-exact") { check_exact(basic_problems()); }

// Few blocks, for compute-sanitizer, but of several chunks, and these of more slabs than stages.
TEST_CASE("on a device, sums of several stages are bit-exact") {
  const ProblemSpec specs[] = {{"wide tile", "conv2d", 1, 128, 136, 1, {{40, 1}, {41, 1}}},
                               {"narrow tile", "conv2d", 1, 24, 16, 1, {{40, 3}, {41, 2}}},
                               {"packed", "conv2d", 1, 5, 9, 1, {{40, 2}, {41, 1}}},
                               {"depthwise", "depthwise", 1, 17, 17, 17, {{40, 3}, {41, 3}}}};
  check_exact(specs);
}

TEST_CASE("on a device, 65535 to 65537 images") {
  std::vector<ProblemSpec> specs;
  for (const std::int64_t images : {65535, 65536, 65537}) {
    specs.push_back({"images", "conv2d", images, 2, 3, 1, {{1, 1}, {2, 2}}});
  }
  check_exact(specs);
}

TEST_CASE("on a device, normal data stay within the bound and repeat to the bit") {
  for_each_kernel(basic_problems(), Fill::normal, [](const Case& c) {
    const auto got = c.sums();
    const Comparison comparison = compare_sums(c.problem, got, c.reference);
    CAPTURE(comparison.ratio.value);
    CHECK(comparison.mismatches == 0);
    CHECK(same_bits(c.sums(), got));
  });
}

TEST_CASE("on a device, blocks do not change a bit") {
  for_each_kernel(many_block_problems(), Fill::normal, [](Case c) {
    const auto one = c.sums();
    for (const std::int64_t block_bytes : {3000, 40000}) {
      c.options.block_bytes = block_bytes;
      CHECK(same_bits(c.sums(), one));
    }
  });
}

TEST_CASE("on a device, what only meets padding contributes nothing") {
  const ProblemSpec specs[] = {{"corner", "conv2d", 2, 4, 16, 1, {{4, 3}, {4, 3}}}};
  for_each_kernel(specs, Fill::small_integers, [](Case c) {
    const auto dy = dy_with_first_pixel(c.problem, kInf);
    c.dy = dy.data();
    const Expected reference = device_reference_of(c.problem, c.x, c.dy);
    CHECK(compare_gradients(c.problem, DType::f64, {}, c.sums(), reference,
                            {.criterion = Criterion::bitwise})
              .mismatches == 0);
  });
}

TEST_CASE("on a device, cuDNN agrees within the dtype where it is installed") {
  const auto found = device();
  if (!found) return;
  for (const DType dtype : kDTypes) {
    for (const bool channels_last : {true, false}) {
      const WgradProblem problem =
          make({"3x3", "conv2d", 3, 16, 32, 1, {{9, 3}, {11, 3}}}, dtype, channels_last);
      const DeviceKernel& cudnn = device_kernels().back();
      if (!is_asked_for(cudnn)) continue;
      const std::string why_not = cudnn.why_not(problem, *found);
      if (!why_not.empty()) {
        MESSAGE(why_not);
        continue;
      }
      const auto x = filled(dtype, problem.x_count(), Fill::normal, 3);
      const auto dy = filled(dtype, problem.dy_count(), Fill::normal, 4);
      const Expected reference = reference_of(problem, x.data(), dy.data(), 2, {});
      for (const std::string_view name : {"cudnn", "cudnn_any"}) {
        CAPTURE(name);
        const auto got = sums_of(problem, x.data(), dy.data(), options_for(*found, name));
        CHECK(compare_gradients(problem, dtype, {}, got, reference, {}).match());
      }
    }
  }
}
