// cases.hpp - makes problems with their tensors, one after the other.
#pragma once

#include <doctest/doctest.h>

#include <span>
#include <string>

#include "engine/device_kernel.hpp"
#include "engine/machine.hpp"
#include "support/problems.hpp"
#include "support/sanitized.hpp"
#include "support/tensors.hpp"

namespace convgrad::testing {

// Calls check(problem, x, dy) for each spec, dtype and layout, or every thin-th of them, with data
// of its own. There are eight of a spec with four dtypes: of odd numbers, other specs have others.
template <typename Check>
void for_each_case(std::span<const ProblemSpec> specs, std::span<const DType> dtypes, Fill fill,
                   Check&& check, unsigned thin = 1) {
  unsigned seed = 1;
  for (const ProblemSpec& spec : specs) {
    for (const DType dtype : dtypes) {
      for (const bool channels_last : {true, false}) {
        seed += 2;
        if (seed / 2 % thin != 0) continue;
        const WgradProblem problem = make(spec, dtype, channels_last);
        const std::string line = describe(problem);
        CAPTURE(spec.name);
        CAPTURE(line);
        check(problem, filled(dtype, problem.x_count(), fill, seed),
              filled(dtype, problem.dy_count(), fill, seed + 1));
      }
    }
  }
}

// Calls check(kernel) for each kernel of the table that computes the problem on this machine.
template <typename Check>
void for_each_kernel_here(const WgradProblem& problem, Check&& check) {
  for (const Kernel& kernel : kernels()) {
    if (!kernel.why_not(problem, this_machine()).empty()) continue;
    CAPTURE(kernel.name);
    check(kernel);
  }
}

// By what the emulation multiplies, most of it nothing where groups are smaller than tiles: other
// problems would take minutes.
inline bool is_quick(const WgradProblem& problem, const DeviceKernel& kernel) {
  const std::int64_t slabs = (term_count(problem) + 31) / 32 * kernel.tiles(problem).count;
  if (kernel.name == "cuda_streaming") return true;
  if (kernel.name == "cuda_wgmma_bf16x3") return slabs < 20;  // times six products
  return slabs < (kernel.name == "cuda_simt_gemm" ? 800 : kernel.name == "cuda_wgmma" ? 40 : 150);
}

}  // namespace convgrad::testing
