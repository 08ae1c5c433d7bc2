// gradient_file.hpp - from float64 sums in [tap][c][k] order to a file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convgrad/array_file.hpp"
#include "convgrad/problem.hpp"

namespace convgrad {

// What the writer holds at a time.
inline constexpr std::int64_t kOutputStagingBytes = std::int64_t{4} << 20;

// dw [begin, begin + count) in the order of dw_shape(), from sums in [tap][c][k] order.
void gather_gradient(const WgradProblem& problem, const double* dw, std::int64_t begin,
                     std::int64_t count, double* destination);

// Rounds dw to out_dtype and writes it to path, complete or not at all, in the format that
// array_file.hpp says. addend, if not null, is added before the rounding: dw_count() values in the
// order of dw_shape().
void write_gradient(const std::string& path, const WgradProblem& problem, const double* dw,
                    const double* addend, const OutputOptions& options);

// The values of a .npy file that must have the shape of the problem's gradient, in that order, as
// float64. Any float dtype unless dtype_must_match. Error(input) otherwise.
struct GradientFile {
  DType dtype = DType::f32;
  std::vector<double> values;
};
GradientFile read_gradient(const std::string& path, const WgradProblem& problem,
                           bool dtype_must_match);

// Where the entry at `index` of [tap][c][k] stands in a file of dw_shape().
std::vector<std::int64_t> position_in_file(const WgradProblem& problem, std::int64_t index);

// The entries at these indices of [tap][c][k] alone, in their order. A stream is read whole.
GradientFile read_gradient_entries(const std::string& path, const WgradProblem& problem,
                                   std::span<const std::int64_t> indices);

}  // namespace convgrad
