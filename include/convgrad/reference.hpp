// reference.hpp - the definition as naive loops: what everything else is compared with, and how far
// rounding takes a right sum from it.
#pragma once

#include <cstdint>
#include <vector>

#include "convgrad/gradient.hpp"
#include "convgrad/problem.hpp"

namespace convgrad {

// What is known of the way in which a gradient was summed that is to be judged.
struct Summation {
  // Terms that follow one another in one sum of the accumulator's type, before that goes to a wider
  // one; 0: there may be as many as there are.
  std::int64_t longest_sum = 0;
  // Whether the adders of tensor cores, which cut digits off, may have been used. usual: for
  // float16 and bfloat16 data; tensor_core: also for float32 data, as three products of TF32
  // (3xTF32).
  enum class Adders : std::uint8_t { usual, ieee, tensor_core } adders = Adders::usual;
  bool cuts(DType data) const;
};

// What elements should be, and what their own terms t = x*dy say of the error of a right result.
// One number for each element, in [tap][c][k] order, or for each entry of a sample.
struct Expected {
  std::vector<double> values;
  std::vector<double> tails;       // float64 data: exact sum - values; else empty
  std::vector<double> magnitudes;  // sum |t|
  // Root mean square of the error of a sum in the accumulator's type, in any usual order, before it
  // is rounded to the result's dtype; docs/numerics.md derives it.
  std::vector<double> scales;
  // What that error cannot exceed, sharp where there are few terms.
  std::vector<double> limits;
  double squares = 0;  // sum t^2 over all elements of which it is finite
  // Whether errors of right results may all make elements smaller, or may have any one sign.
  enum class Bias : std::uint8_t { none, smaller, any } bias = Bias::none;
};

// From whole tensors in memory, as filter_gradient() takes them, and by no algorithm or device of
// the options. Error(runtime) where the memory needed is over the limit.
Expected expected_gradient(const WgradProblem& problem, const void* x, const void* dy,
                           const GradientOptions& options = {}, const Summation& summation = {});

}  // namespace convgrad
