// dense.cpp - see dense.hpp.
#include "dense.hpp"

#include <numeric>

#include "convgrad/error.hpp"
#include "support/tensors.hpp"

namespace convgrad::testing {
namespace {

Position spatial_extent(const WgradProblem& problem, std::int64_t n,
                        std::int64_t SpatialAxis::*extent, std::int64_t channels) {
  return {n, problem.axis[0].*extent, problem.axis[1].*extent, problem.axis[2].*extent, channels};
}

// The values of each image in the other of the two orders, channels last and channels first.
std::vector<double> transposed(const std::vector<double>& values, std::size_t images,
                               std::size_t rows, std::size_t columns) {
  std::vector<double> result(values.size());
  for (std::size_t n = 0; n < images; ++n) {
    const double* from = values.data() + n * rows * columns;
    double* to = result.data() + n * rows * columns;
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
    }
  }
  return result;
}

std::size_t pixels_of(const Dense& tensor) {
  return static_cast<std::size_t>(tensor.extent[1] * tensor.extent[2] * tensor.extent[3]);
}

}  // namespace

Dense::Dense(const Position& shape) : extent(shape) {
  const std::int64_t count =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  values.resize(static_cast<std::size_t>(count));
}

std::size_t Dense::index(const Position& at) const {
  std::int64_t i = 0;
  for (std::size_t a = 0; a < 5; ++a) i = i * extent[a] + at[a];
  return static_cast<std::size_t>(i);
}

Position x_extent(const WgradProblem& problem) {
  return spatial_extent(problem, problem.N, &SpatialAxis::in, problem.C);
}
Position dy_extent(const WgradProblem& problem) {
  return spatial_extent(problem, problem.N, &SpatialAxis::out, problem.K);
}
Position dw_extent(const WgradProblem& problem) {
  return {problem.axis[0].taps, problem.axis[1].taps, problem.axis[2].taps, problem.group_c(),
          problem.K};
}

Dense from_file(const WgradProblem& problem, Operand operand, const std::vector<std::byte>& bytes) {
  Dense tensor(operand == Operand::x ? x_extent(problem) : dy_extent(problem));
  const auto images = static_cast<std::size_t>(tensor.extent[0]),
             channels = static_cast<std::size_t>(tensor.extent[4]);
  tensor.values = widened(problem.dtype, bytes);
  if (!problem.channels_last) {
    tensor.values = transposed(tensor.values, images, channels, pixels_of(tensor));
  }
  return tensor;
}

std::vector<std::byte> to_file(const WgradProblem& problem, const Dense& tensor) {
  if (problem.channels_last) return tensor_of(problem.dtype, tensor.values);
  const auto images = static_cast<std::size_t>(tensor.extent[0]),
             channels = static_cast<std::size_t>(tensor.extent[4]);
  return tensor_of(problem.dtype, transposed(tensor.values, images, pixels_of(tensor), channels));
}

Tensors made_tensors(const RandomCase& c) {
  const WgradProblem problem = c.problem();
  return {from_file(problem, Operand::x, made_tensor(c, Operand::x)),
          from_file(problem, Operand::dy, made_tensor(c, Operand::dy))};
}

Dense gradient(const Kernel& kernel, const RandomCase& c, const WgradProblem& problem,
               const Dense& x, const Dense& dy) {
  const std::string why_not = kernel.why_not(problem, this_machine());
  if (!why_not.empty()) throw Error(ErrorKind::unavailable, cat(kernel.name, ": ", why_not));
  const std::vector<std::byte> x_bytes = to_file(problem, x), dy_bytes = to_file(problem, dy);
  Dense dw(dw_extent(problem));
  dw.values = sums_of(kernel, problem, x_bytes.data(), dy_bytes.data(), c.threads, c.block_bytes);
  return dw;
}

std::string difference(const Dense& got, const Dense& want, const std::string& what) {
  if (got.extent != want.extent) return "the shapes differ: " + what;
  std::string text;
  for_each_position(got.extent, [&](const Position& at) {
    const double a = got[at], b = want[at];
    if (a == b || (a != a && b != b) || !text.empty()) return;
    text = cat("got ", a, ", want ", b, " at t", at[0], " r", at[1], " s", at[2], " c", at[3], " k",
               at[4], ": ", what);
  });
  return text;
}

}  // namespace convgrad::testing
