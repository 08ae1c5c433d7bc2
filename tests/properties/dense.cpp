// dense.cpp - see dense.hpp.
#include "dense.hpp"

#include <bit>
#include <numeric>

#include "tensors.hpp"

namespace convgrad::testing {
namespace {

Position spatial_extent(const WgradProblem& problem, std::int64_t n,
                        std::int64_t SpatialAxis::*extent, std::int64_t channels) {
  return {n, problem.axis[0].*extent, problem.axis[1].*extent, problem.axis[2].*extent, channels};
}

// The number of an element in a file whose tensor has this shape.
std::size_t file_index(const WgradProblem& problem, const Position& extent, const Position& at) {
  std::int64_t pixel = 0;
  for (std::size_t a = 1; a < 4; ++a) pixel = pixel * extent[a] + at[a];
  const std::int64_t pixels = extent[1] * extent[2] * extent[3];
  return static_cast<std::size_t>(problem.channels_last
                                      ? (at[0] * pixels + pixel) * extent[4] + at[4]
                                      : (at[0] * extent[4] + at[4]) * pixels + pixel);
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
  const Position extent = operand == Operand::x ? x_extent(problem) : dy_extent(problem);
  const std::vector<double> values = widened(problem.dtype, bytes);
  return dense_of(extent,
                  [&](const Position& at) { return values[file_index(problem, extent, at)]; });
}

std::vector<std::byte> to_file(const WgradProblem& problem, const Dense& tensor) {
  std::vector<double> values(tensor.values.size());
  std::size_t i = 0;
  for_each_position(tensor.extent, [&](const Position& at) {
    values[file_index(problem, tensor.extent, at)] = tensor.values[i++];
  });
  return tensor_of(problem.dtype, values);
}

Tensors made_tensors(const RandomCase& c) {
  const WgradProblem problem = c.problem();
  return {from_file(problem, Operand::x, made_tensor(c, Operand::x)),
          from_file(problem, Operand::dy, made_tensor(c, Operand::dy))};
}

Dense gradient(const Kernel& kernel, const RandomCase& c, const WgradProblem& problem,
               const Dense& x, const Dense& dy) {
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
