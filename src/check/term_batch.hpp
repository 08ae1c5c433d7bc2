// term_batch.hpp - the reference's innermost loop: some terms of many elements that lie side by
// side, and what they say of rounding. Files that add terms are compiled without contraction into
// fused multiply-adds.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "check/rounding.hpp"
#include "convgrad/reference.hpp"

#define CONVGRAD_INLINE inline __attribute__((always_inline))

namespace convgrad {

// Terms are added eight at a time, so that the sums of an element are loaded and stored once for
// eight of them. The order of each element's terms is that of the pixels all the same.
inline constexpr std::int64_t kBatchPixels = 8;
// A sum on its way is looked at once in so many terms, and after each of fewer than kLookedAtEach.
inline constexpr std::int64_t kLookedAtEach = 1024;

CONVGRAD_INLINE double size_of(double value) { return std::fabs(value); }
template <typename Doubles>
CONVGRAD_INLINE Doubles size_of(Doubles value) {
  for (std::size_t i = 0; i < sizeof value / 8; ++i) value[i] = std::fabs(value[i]);
  return value;
}
CONVGRAD_INLINE double product_error(double x, double y, double product) {
  return __builtin_fma(x, y, -product);
}
template <typename Doubles>
CONVGRAD_INLINE Doubles product_error(double x, Doubles y, Doubles product) {
  for (std::size_t i = 0; i < sizeof y / 8; ++i) y[i] = __builtin_fma(x, y[i], -product[i]);
  return y;
}

// Forms sum + compensation += value and keeps the rounding error of the sum, unless it overflows.
inline void add_exactly(double value, double& sum, double& compensation) {
  const double total = sum + value, part = total - sum;
  compensation += (sum - (total - part)) + (value - part);
  sum = total;
}

// Makes sum the float64 number nearest to sum + compensation, and compensation the rest: 0 if the
// sum overflowed.
inline void compensate(double& sum, double& compensation) {
  if (!std::isfinite(sum)) compensation = 0;
  const double total = sum + compensation;
  compensation -= total - sum;
  sum = total;
}

// Holds sums over terms t, as reference.hpp has them, and what rounding takes from the first
// (Ogita, Rump, Oishi: Accurate sum and dot product, 2005, Dot2).
template <typename Doubles>
struct TermValues {
  Doubles sum, compensation, magnitude, squares, walk, terms;

  // walk is looked at after each term if kEvery.
  template <bool kCompensated, bool kStatistics, bool kEvery>
  CONVGRAD_INLINE void add(double x, Doubles y) {
    const Doubles product = x * y, total = sum + product;
    if constexpr (kCompensated) {
      const Doubles part = total - sum;
      compensation += product_error(x, y, product) + ((sum - (total - part)) + (product - part));
    }
    sum = total;
    if constexpr (kStatistics) {
      magnitude += size_of(product);
      squares += product * product;
      terms += product != 0 ? Doubles{} + 1 : Doubles{};
      if constexpr (kEvery) walk += sum * sum;
    }
  }
};

struct TermBatch {
  std::int64_t pixels = 0;           // at most kBatchPixels
  std::int64_t count = 0;            // elements
  const double* dy = nullptr;        // [pixels][count]
  const float* dy_plain = nullptr;   // the same in float32
  bool every = false, last = false;  // whether the walk is looked at after each term, or the last
};

// These point at the sums of the first element; reference.hpp says what they are. compensation is
// null but for float64 data, magnitude and what follows if values alone are asked for.
struct TermSums {
  double* sum = nullptr;
  double* compensation = nullptr;
  double* magnitude = nullptr;
  double* squares = nullptr;
  double* walk = nullptr;
  double* terms = nullptr;
  float* plain = nullptr;  // null for float64 data
  // sum and plain were this when they were restarted; batches leave it alone.
  double* earlier = nullptr;
  double* plain_earlier = nullptr;
};

// Forms sums += x[pixel] * dy[pixel][element], with the same bits on every processor.
void add_batch(const TermBatch& batch, const double* x, const TermSums& sums);

// Moves sums to the earlier ones. float64 sums keep their compensations.
void restart(const TermSums& sums, std::int64_t count);
// Returns what the terms of element i, whose sums were restarted at the end, say of rounding, by so
// many pixels that it saw. earlier becomes the float64 number that is nearest, compensation what
// that leaves out. Adds the squares to `squares` where they are finite.
RoundingScale judge_terms(const TermSums& sums, std::int64_t i, const WgradProblem& problem,
                          std::int64_t pixels, const Summation& summation, double& squares);

using AddBatch = void (*)(const TermBatch& batch, const double* x, const TermSums& sums);
// Returns what this processor can run: the portable code, and what was compiled for more
// instructions; add_batch() takes the last one.
std::vector<AddBatch> batch_variants();

}  // namespace convgrad
