// rounding.hpp - how far rounding takes a right sum from the exact one, by what its own terms say.
// docs/numerics.md derives the formulas and says how the constants were found.
#pragma once

#include <span>

#include "convgrad/problem.hpp"
#include "convgrad/reference.hpp"

namespace convgrad {

// Sums of 16-bit numbers by tensor cores are taken to go to float32 after so many terms at most,
// where Summation::longest_sum does not say it.
inline constexpr std::int64_t kUsualCutRun = 4096;

// Describes one element's terms t = x*dy, added in the order n, z, p, q.
struct TermStatistics {
  double sum = 0;          // the exact one
  double terms = 0;        // that are not 0
  double squares = 0;      // sum t^2
  double walk = 0;         // mean square of the sum as it grows; since its last restart, if any
  double plain_error = 0;  // of a sum in the accumulator's type, which restarts in float64
  double magnitude = 0;    // sum |t|
};

// Returns TermStatistics::walk from the sum of squares seen, of an element with so many pixels.
double mean_walk(const WgradProblem& problem, std::int64_t pixels, double squares);

struct RoundingScale {
  double scale = 0;  // Expected::scales
  double limit = 0;  // Expected::limits
  double plain = 0;  // plain_error / scale
  double drift = 0;  // what errors add up to that all have one sign: u * terms * walk
};
RoundingScale rounding_scale(const TermStatistics& s, DType data, const Summation& summation);

// Returns Expected::scales of so many terms with that walk. Terms that are alike round one way.
double walk_scale(double terms, double walk, bool alike, DType data, const Summation& summation);

// Sets scales, limits and bias by what each element's terms say. Terms that are alike (constants,
// two values) round one way: then errors grow with their number and not with its root, and a plain
// sum shows it. So it widens the scales of elements whose plain sums, or those of their neighbours
// (the same tap and c, the same tap and k, other taps of c and k; of a sample, which is not whole,
// all of it), are off by more than chance allows.
void set_scales(const WgradProblem& problem, bool whole, const Summation& summation,
                std::span<const RoundingScale> judged, Expected& expected);

// Multiplies what is expected by Summation::factor, which rounds in the accumulator's type.
void multiply(DType data, double factor, Expected& expected);

// Adds beta*buffer to what is expected of a gradient in `out`. That product, and a sum that is
// wider than `out`, may be rounded in the accumulator's type before the last rounding, which
// comparisons know of. A beta of 0 does not read the buffer.
void add_to_buffer(DType data, DType out, double beta, std::span<const double> buffer,
                   Expected& expected);

// Returns sqrt(a*a + b*b). std::hypot of two is a symbol of glibc 2.35; packages run on 2.34.
double root_of_squares(double a, double b);

// Returns sqrt(1 + 2*sqrt(exponent/n) + 2*exponent/n). The root mean square of n numbers of a right
// result stays below that times the expected one but with probability exp(-exponent) (the tail of
// chi squared; Laurent, Massart: Adaptive estimation of a quadratic functional, 2000, Lemma 1).
double group_factor(double n, double exponent = 30);

}  // namespace convgrad
