// kernels.cpp - the one table of kernels.
#include <array>

#include "convgrad/kernel.hpp"
#include "convgrad/suggest.hpp"
#include "cpu/direct_wgrad.hpp"
#include "cpu/im2col_wgrad.hpp"
#include "cpu/outer_product_amx.hpp"
#include "cpu/outer_product_wgrad.hpp"
#include "cpu/streaming_wgrad.hpp"

namespace convgrad {

std::span<const Kernel> kernels() {
  static const std::array<Kernel, 11> table = {kStreamingAvx512Kernel,
                                               kOuterProductAmxKernel,
                                               kOuterProductAmxFp16Kernel,
                                               kOuterProductBf16Kernel,
                                               kOuterProductAvx512Kernel,
                                               kStreamingAvx2Kernel,
                                               kOuterProductAvx2Kernel,
                                               kIm2colGemmKernel,
                                               kOuterProductKernel,
                                               kStreamingKernel,
                                               kDirectKernel};
  return table;
}

const Kernel& find_kernel(std::string_view name) {
  std::vector<std::string> names = {"auto"};
  for (const Kernel& kernel : kernels()) {
    if (kernel.name == name) return kernel;
    names.emplace_back(kernel.name);
  }
  if (name == "reference") {
    throw Error(ErrorKind::usage,
                "--algorithm: 'reference' is not one of the kernels; use --backend reference");
  }
  throw Error(ErrorKind::usage, cat("--algorithm: '", name, "' is unknown, expected ",
                                    join_or(names), did_you_mean(name, names)));
}

const Kernel& choose_kernel(const WgradProblem& problem, const Machine& machine,
                            std::string_view name) {
  if (name != "auto") {
    const Kernel& kernel = find_kernel(name);
    const std::string reason = kernel.why_not(problem, machine);
    if (!reason.empty()) {
      throw Error(ErrorKind::unavailable,
                  cat("--algorithm: ", name, " cannot compute ", describe(problem), ": ", reason));
    }
    return kernel;
  }
  const Kernel* best = nullptr;
  double best_seconds = 0;
  for (const Kernel& kernel : kernels()) {
    if (!kernel.why_not(problem, machine).empty()) continue;
    const double seconds = kernel.estimated_seconds(problem);
    if (best == nullptr || seconds < best_seconds) {
      best = &kernel;
      best_seconds = seconds;
    }
  }
  if (best == nullptr) {
    throw Error(ErrorKind::unavailable, cat("no kernel computes ", describe(problem)));
  }
  return *best;
}

}  // namespace convgrad
