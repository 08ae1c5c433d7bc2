// pixel_sum.hpp - finds whether the error of a gradient looks like what one pixel adds to it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/block_sum.hpp"

namespace convgrad {

// Names the pixel whose terms the errors resemble most.
struct PixelError {
  std::int64_t pixel = -1;  // counted over n, z, p, q
  double times = 0;         // the errors are so many times its terms: -1 if it is left out
  double spreads = 0;       // of that number in right sums
};

// Projects e = got - want on the terms of each pixel: the forward convolution of x with e, times
// dy, summed over k, divided by its spread if errors are independent and of these units each.
class PixelSum final : public BlockSum {
 public:
  // errors and units are the gradient's, in [tap][c][k] order; what is not finite counts as 0.
  PixelSum(const WgradProblem& problem, TaskPool& pool, std::span<const double> errors,
           std::span<const double> units);
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t) override { return nullptr; }

  // Returns, after the last block, the pixel with the most spreads among those that would be left
  // out, or there twice, within what rounding makes of their number.
  const PixelError& worst() const { return worst_; }

 private:
  template <typename Scalar>
  PixelError line(const Block& block, std::int64_t n, std::int64_t z, std::int64_t p) const;

  const WgradProblem problem_;
  TaskPool& pool_;
  std::vector<float> errors_, squares_;  // of units
  double unit_ = 1;                      // of both
  PixelError worst_;
};

}  // namespace convgrad
