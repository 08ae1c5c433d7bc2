// emulated_device.cpp - see emulated_device.hpp.
#include "cuda/emulated_device.hpp"

#include <string>

#include "cuda/device_adder.hpp"
#include "cuda/emulated_runtime.hpp"

namespace convgrad::testing {

Plan plan_with(const WgradProblem& problem, std::string_view kernel, std::int64_t block_bytes) {
  PlanOptions options;
  options.algorithm = std::string(kernel);
  options.backend = Backend::cuda;
  options.device = emulated_device();
  options.in_memory = true;
  options.block_bytes = block_bytes;
  options.least_chunks = 2;  // so that kernels go from one to the next
  return make_plan(problem, this_machine(), options);
}

std::unique_ptr<DeviceSum> emulated_adder(const Plan& plan, std::int64_t* launched,
                                          std::int64_t* copied) {
  return std::make_unique<cuda::DeviceAdder<EmulatedDevice>>(plan,
                                                             EmulatedDevice(launched, copied));
}

std::vector<double> emulated_sums(const Plan& plan, const void* x, const void* dy) {
  const std::unique_ptr<DeviceSum> adder = emulated_adder(plan);
  MemorySource source(x, dy);
  Timing timing;
  stream_blocks(
      plan, source, [&](const Block& block, std::int64_t i) { adder->add(block, i); }, timing);
  const double* dw = adder->finish(0);
  return {dw, dw + plan.problem.dw_count()};
}

}  // namespace convgrad::testing
