// reference.hpp - the definition as naive loops, with which everything else is compared, and how
// far rounding takes a right sum from it.
#pragma once

#include <cstdint>
#include <vector>

#include "convgrad/gradient.hpp"
#include "convgrad/problem.hpp"

namespace convgrad {

// Tells what is known of the way in which a gradient that is to be judged was summed.
struct Summation {
  // This many terms at most follow one another in one sum of the accumulator's type, before that
  // goes to a wider one; 0 sets no limit.
  std::int64_t longest_sum = 0;
  // The adders of tensor cores cut digits off. They may have been used: by `usual` for float16 and
  // bfloat16 data, by `tensor_core` also for float32 data, as three products of TF32 (3xTF32).
  enum class Adders : std::uint8_t { usual, ieee, tensor_core } adders = Adders::usual;
  bool cuts(DType data) const;
  double factor = 1;  // the sum is multiplied by it: alpha, as matrix products have it
};

// Says what elements should be, and what their own terms t = x*dy say of the error of a right
// result. There is one number for each element, in [tap][c][k] order, or for each entry of a
// sample.
struct Expected {
  std::vector<double> values;
  std::vector<double> tails;       // float64 data: exact sum - values; else empty
  std::vector<double> magnitudes;  // sum |t|
  // These are the root mean squares of the error of a sum in the accumulator's type, in any usual
  // order, before it is rounded to the result's dtype; docs/numerics.md derives them.
  std::vector<double> scales;
  // That error cannot exceed these, which are sharp where there are few terms.
  std::vector<double> limits;
  std::vector<double> added;  // what values have besides the gradient, a buffer's; or empty
  double squares = 0;         // sum t^2 over all elements of which it is finite
  // Errors of right results may all make elements smaller, or may all have any one sign.
  enum class Bias : std::uint8_t { none, smaller, any } bias = Bias::none;
};

// Takes whole tensors in memory, as filter_gradient() does, and ignores the options' algorithm and
// device. Error(runtime) says that the memory needed is over the limit.
Expected expected_gradient(const WgradProblem& problem, const void* x, const void* dy,
                           const GradientOptions& options = {}, const Summation& summation = {});

}  // namespace convgrad
