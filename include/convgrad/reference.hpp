// reference.hpp - the definition as naive loops: what everything else is compared with, and how far
// rounding takes a right sum from it.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "convgrad/block_sum.hpp"

namespace convgrad {

// What is known of the way in which a gradient was summed that is to be judged.
struct Summation {
  // Terms that follow one another in one sum of the accumulator's type, before that goes to a wider
  // one; 0: there may be as many as there are.
  std::int64_t longest_sum = 0;
  // float16 and bfloat16 data: the adders of tensor cores, which cut digits off, may have been
  // used.
  bool cutting_adders = true;
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
};

// Adds block after block. float64 accumulators; for float64 data the products and sums are
// compensated (Ogita, Rump, Oishi: Accurate sum and dot product, 2005, Dot2). The order of each
// element's sum is n, z, p, q, whatever the blocks and threads. Shares no code with the kernels.
class ReferenceSum final : public BlockSum {
 public:
  // Without a summation it forms the values alone.
  ReferenceSum(const WgradProblem& problem, TaskPool& pool,
               const std::optional<Summation>& summation = {});
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t node = 0) override;

  // After finish(); the first one leaves nothing behind.
  Expected take_expected() { return std::move(expected_); }
  const Expected& expected() const { return expected_; }

  static std::int64_t memory_bytes(const WgradProblem& problem,
                                   const std::optional<Summation>& summation);

 private:
  struct Channels;
  template <typename Scalar>
  void add_task(const Block& block, const Channels& at);
  void restart(const Channels& at);
  void judge_rounding();

  const WgradProblem problem_;
  TaskPool& pool_;
  const std::optional<Summation> summation_;
  Expected expected_;
  // Of each element: the sum in float64 since it was restarted, and what rounding took from the
  // whole; the same sum in float32, the earlier ones, and the largest error of it on its way;
  // sum t^2, the sum of squares of the sum on its way, and how many terms are not 0. finish() puts
  // other numbers in their places.
  std::vector<double> run_, compensation_, plain_, plain_error_, squares_, walk_, terms_;
  std::vector<float> plain_run_;
  std::vector<std::int64_t> pixels_, seen_;  // of each tap: that lay in x so far, with this block
};

}  // namespace convgrad
