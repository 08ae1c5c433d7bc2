// cuda_module_test.cpp - the module with the CUDA runtime: found, and its errors arrive as errors.
#include <doctest/doctest.h>

#include "engine/block_sum.hpp"
#include "engine/device_kernel.hpp"
#include "support/cases.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// A plan for a device that no machine has.
Plan plan_for_device(int number) {
  const WgradProblem problem = make(basic_problems().front(), DType::f32, true);
  PlanOptions options;
  options.backend = Backend::cuda;
  options.device = Device{number, "none", 9, 0, std::int64_t{1} << 36, 100, std::int64_t{1} << 36};
  return make_plan(problem, this_machine(), options);
}

ErrorKind kind_of_failure_of(const Plan& plan) {
  try {
    make_device_sum(plan);
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("--backend cpu") != std::string::npos);
    return error.kind();
  }
  FAIL("there is a device 4095");
  return ErrorKind::input;
}

}  // namespace

#ifdef CONVGRAD_HAS_CUDA

TEST_CASE("a build with CUDA finds its module") {
  const CudaInfo info = cuda_info();
  CHECK(info.built);
  CHECK(info.toolkit_version >= 12000);
  CHECK_FALSE(info.architectures.empty());
  CHECK(info.devices.empty() != info.why_none.empty());
}

TEST_CASE("what fails in the module is an Error here") {
  CHECK(kind_of_failure_of(plan_for_device(4095)) == ErrorKind::runtime);
}

TEST_CASE("memory comes from the module, or from where all memory comes") {
  Buffer buffer = pinned_buffer(1000, "a test", 4095);
  buffer.as<char>()[999] = 1;
  CHECK(buffer.as<char>()[999] == 1);
}

#else

TEST_CASE("a build without CUDA says so") {
  CHECK_FALSE(cuda_info().built);
  CHECK(cuda_info().why_none == "this convgrad was built without the CUDA Toolkit");
  CHECK(why_no_cudnn() == cuda_info().why_none);
  CHECK(kind_of_failure_of(plan_for_device(0)) == ErrorKind::unavailable);
}

#endif
