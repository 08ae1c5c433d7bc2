// kernels.cpp - the one table of kernels.
#include "cpu/kernels.hpp"

#include <algorithm>
#include <array>

#include "base/messages.hpp"
#include "engine/kernel.hpp"

namespace convgrad {

std::span<const Kernel> kernels() {
  // They are listed in this order; auto takes the first of those that take equally long.
  static const std::array table = {
#if defined(__x86_64__)
    kStreamingAvx512Kernel,
    kOuterProductAmxKernel,
    kOuterProductAmxFp16Kernel,
    kOuterProductAmxBf16x3Kernel,
    kOuterProductBf16Kernel,
    kOuterProductAvx512Kernel,
    kStreamingAvx2Kernel,
    kOuterProductAvx2Kernel,
#elif defined(__aarch64__)
    kStreamingNeonKernel,
    kOuterProductNeonKernel,
#endif
    kIm2colGemmKernel,
    kOuterProductKernel,
    kStreamingKernel,
    kDirectKernel
  };
  return table;
}

// The names are those of the table, so that a kernel cannot be left out of the message.
const Kernel& find_kernel(std::string_view name) {
  std::vector<std::string> names = {"auto"};
  for (const Kernel& kernel : kernels()) {
    if (kernel.name == name) return kernel;
    names.emplace_back(kernel.name);
  }
  if (name == "reference") {
    throw Error(ErrorKind::usage, "--algorithm: 'reference' is not one of the kernels",
                Hint("use --backend reference"));
  }
  throw Error(ErrorKind::usage, "--algorithm: '", name, "' is unknown, expected ", join_or(names),
              did_you_mean(name, names));
}

double estimated_seconds(const Kernel& kernel, const WgradProblem& problem,
                         const Machine& machine) {
  // Twice as much would lead from AMX to streaming, where that is slower.
  const bool slow = kernel.slow_beside_amx && lacks(machine, {"amx_bf16"}).empty();
  return kernel.estimated_seconds(seen_by_kernels(problem)) * (slow ? 1.5 : 1);
}

Feasible<const Kernel*> find_kernel(const WgradProblem& problem, const Machine& machine,
                                    std::string_view name) {
  if (name != "auto") {
    const Kernel& kernel = find_kernel(name);
    const std::string reason = kernel.why_not(with_channels(problem), machine);
    if (reason.empty()) return &kernel;
    return Error(ErrorKind::unavailable, "--algorithm: ", name, " cannot compute ",
                 describe(problem), ": ", reason);
  }
  // Estimates from the shape alone decide: a choice by measured times could change from run to run,
  // and the bits of the result with it.
  const Kernel* best = nullptr;
  double best_seconds = 0;
  const WgradProblem shape = with_channels(problem);
  for (const Kernel& kernel : kernels()) {
    if (!kernel.why_not(shape, machine).empty()) continue;
    const double seconds = estimated_seconds(kernel, problem, machine);
    if (best == nullptr || seconds < best_seconds) {
      best = &kernel;
      best_seconds = seconds;
    }
  }
  if (best != nullptr) return best;
  return Error(ErrorKind::unavailable, "no kernel computes ", describe(problem));
}

}  // namespace convgrad
