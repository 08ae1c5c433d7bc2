// gradient.hpp - a filter gradient in one call, from memory or from files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convgrad/npy.hpp"
#include "convgrad/problem.hpp"

namespace convgrad {

struct GradientOptions {
  std::string algorithm = "auto";       // a name of convgrad --list-algorithms
  int threads = 0;                      // 0: all that this process may run on
  std::int64_t memory_limit_bytes = 0;  // 0: what the machine has
  int cuda_device = -1;                 // the number of the one that computes; -1: the processor
};

// Each gradient has the same bits for every number of threads and every limit. Error(usage) for an
// unknown algorithm, Error(unavailable) for one that cannot compute the problem and for a device
// that is not there, Error(runtime) where the memory needed is over the limit.

// Takes whole tensors in C order and native byte order, in the problem's dtype and layout. The
// caller owns all three; dw gets dw_count() elements of out_dtype in the order of dw_shape().
void filter_gradient(const WgradProblem& problem, const void* x, const void* dy, void* dw,
                     const GradientOptions& options);

// Reads two files, whose headers the problem was made from, block by block. Returns the sums as
// write_gradient() takes them: before rounding, in [tap][c][k] order.
std::vector<double> filter_gradient(const WgradProblem& problem, NpyReader& x, NpyReader& dy,
                                    const GradientOptions& options);

}  // namespace convgrad
