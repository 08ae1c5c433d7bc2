// cuda_module_test.cpp - the module with the CUDA runtime: found, and its errors arrive as errors.
#include <doctest/doctest.h>

#include "engine/block_sum.hpp"
#include "engine/device_kernel.hpp"
#include "support/cases.hpp"
#include "support/errors.hpp"

using namespace convgrad;
using namespace convgrad::testing;

TEST_CASE("a build with CUDA finds its module, one without says so") {
  const CudaInfo info = cuda_info();
  if (info.built) {
    CHECK(info.toolkit_version >= 12000);
    CHECK_FALSE(info.architectures.empty());
    CHECK(info.devices.empty() != info.why_none.empty());
    // Memory comes from the module, or from where all memory comes.
    Buffer buffer = pinned_buffer(1000, "a test", 4095);
    buffer.as<char>()[999] = 1;
    CHECK(buffer.as<char>()[999] == 1);
  } else {
    CHECK(info.why_none == "this convgrad was built without the CUDA Toolkit");
    CHECK(why_no_cudnn() == info.why_none);
  }
}

TEST_CASE("what fails in the module is an Error here") {
  const Device none{4095, "none", 9, 0, std::int64_t{1} << 36, 100, std::int64_t{1} << 36};
  const Plan plan = make_plan(make(basic_problems().front(), DType::f32, true), this_machine(),
                              {.backend = Backend::cuda, .device = none});
  check_error(cuda_info().built ? ErrorKind::runtime : ErrorKind::unavailable, "", "--backend cpu",
              [&] { make_device_sum(plan); });
}
