// emulated_device.cpp - see emulated_device.hpp.
#include "cuda/emulated_device.hpp"

#include <string>

#include "cuda/device_adder.hpp"
#include "cuda/emulated_runtime.hpp"

namespace convgrad::testing {

Plan plan_with(const WgradProblem& problem, std::string_view kernel, std::int64_t block_bytes,
               std::int64_t least_chunks) {
  return make_plan(problem, this_machine(),
                   {.backend = Backend::cuda,
                    .device = emulated_device(),
                    .algorithm = std::string(kernel),
                    .block_bytes = block_bytes,
                    .least_chunks = least_chunks,
                    .in_memory = true});
}

std::unique_ptr<DeviceSum> emulated_adder(const Plan& plan) {
  return std::make_unique<cuda::DeviceAdder<EmulatedDevice>>(plan, EmulatedDevice());
}

std::vector<double> emulated_sums(const Plan& plan, const void* x, const void* dy) {
  const std::unique_ptr<DeviceSum> adder = emulated_adder(plan);
  MemorySource source(x, dy);
  sum_blocks(plan, source, *adder);
  const double* dw = adder->finish(0);
  return {dw, dw + plan.problem.dw_count()};
}

}  // namespace convgrad::testing
