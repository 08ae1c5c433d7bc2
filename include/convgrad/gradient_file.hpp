// gradient_file.hpp - from float64 sums in [tap][c][k] order to a file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convgrad/array_file.hpp"
#include "convgrad/problem.hpp"

namespace convgrad {

// The writer holds at most this much at a time.
inline constexpr std::int64_t kOutputStagingBytes = std::int64_t{4} << 20;

// Copies entries [begin, begin + count) in the order of dw_shape() from dw, which is in [tap][c][k]
// order. Both are of one dtype, float64 before they are rounded.
void gather_gradient(const WgradProblem& problem, DType dtype, const void* dw, std::int64_t begin,
                     std::int64_t count, void* destination);

// Rounds dw to out_dtype and writes it to path, complete or not at all, in the format that
// array_file.hpp says.
void write_gradient(const std::string& path, const WgradProblem& problem, const double* dw,
                    const OutputOptions& options);
// Does it for dw that is rounded to out_dtype.
void write_rounded_gradient(const std::string& path, const WgradProblem& problem, const void* dw,
                            const OutputOptions& options);

// Reads a file that must have the shape of the problem's gradient, else Error(input). The values
// are in [tap][c][k] order, as float64. Any float dtype is taken.
struct GradientFile {
  DType dtype = DType::f32;
  std::vector<double> values;
};
GradientFile read_gradient(const std::string& path, const WgradProblem& problem);

// Returns the position in a file of dw_shape() of the entry at `index` of [tap][c][k].
std::vector<std::int64_t> position_in_file(const WgradProblem& problem, std::int64_t index);

// Reads the entries at these indices of [tap][c][k] alone, in their order. A stream is read whole.
GradientFile read_gradient_entries(const std::string& path, const WgradProblem& problem,
                                   std::span<const std::int64_t> indices);

}  // namespace convgrad
