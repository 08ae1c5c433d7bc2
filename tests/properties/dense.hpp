// dense.hpp - tensors by logical position, for properties that move elements about.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "random_case.hpp"

namespace convgrad::testing {

using Position = std::array<std::int64_t, 5>;  // n, d, h, w, c; or t, r, s, c, k of dw

struct Dense {
  Position extent{};
  std::vector<double> values;  // in this order of axes, the last one fastest

  explicit Dense(const Position& shape);
  double& operator[](const Position& at) { return values[index(at)]; }
  double operator[](const Position& at) const { return values[index(at)]; }

 private:
  std::size_t index(const Position& at) const;
};

// Calls f(position) for all of them, the last axis fastest.
template <typename Function>
void for_each_position(const Position& extent, Function&& f) {
  Position at{};
  for (at[0] = 0; at[0] < extent[0]; ++at[0]) {
    for (at[1] = 0; at[1] < extent[1]; ++at[1]) {
      for (at[2] = 0; at[2] < extent[2]; ++at[2]) {
        for (at[3] = 0; at[3] < extent[3]; ++at[3]) {
          for (at[4] = 0; at[4] < extent[4]; ++at[4]) f(at);
        }
      }
    }
  }
}

// A tensor of the new shape with from(position) at each position.
template <typename Function>
Dense dense_of(const Position& extent, Function&& from) {
  Dense tensor(extent);
  std::size_t i = 0;
  for_each_position(extent, [&](const Position& at) { tensor.values[i++] = from(at); });
  return tensor;
}

// Shapes in that order, 2-D with depth 1.
Position x_extent(const WgradProblem& problem);
Position dy_extent(const WgradProblem& problem);
Position dw_extent(const WgradProblem& problem);

// From and to the order of the problem's files.
Dense from_file(const WgradProblem& problem, Operand operand, const std::vector<std::byte>& bytes);
std::vector<std::byte> to_file(const WgradProblem& problem, const Dense& tensor);

// x and dy of a case, and a gradient of it.
struct Tensors {
  Dense x, dy;
};
Tensors made_tensors(const RandomCase& c);

// The kernel's sums for these tensors, with the threads and blocks of the case. An Error if it does
// not compute the problem.
Dense gradient(const Kernel& kernel, const RandomCase& c, const WgradProblem& problem,
               const Dense& x, const Dense& dy);

// "" or "got 3, want 4 at t0 r1 s0 c2 k5: WHAT". NaN is not equal to anything but NaN.
std::string difference(const Dense& got, const Dense& want, const std::string& what);

}  // namespace convgrad::testing
