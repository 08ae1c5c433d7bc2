// reference_sum.hpp - sums the reference, block after block.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "check/term_batch.hpp"
#include "convgrad/reference.hpp"
#include "engine/block_sum.hpp"

namespace convgrad {

// Accumulators are float64; for float64 data products and sums are compensated. Each element's sum
// has the order n, z, p, q, whatever the blocks and threads. Kernels share no code with it.
class ReferenceSum final : public BlockSum {
 public:
  // Without a summation it forms the values alone.
  ReferenceSum(const WgradProblem& problem, TaskPool& pool,
               const std::optional<Summation>& summation = {});
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t node = 0) override;

  // Both are for after finish(); the first one leaves nothing behind.
  Expected take_expected() { return std::move(expected_); }
  const Expected& expected() const { return expected_; }

  static std::int64_t memory_bytes(const WgradProblem& problem,
                                   const std::optional<Summation>& summation);

 private:
  // Adds some channels of a group, under one tap.
  template <typename Scalar>
  void add_task(const Block& block, std::int64_t tap, std::int64_t group, const Range& channels);
  TermSums sums_from(std::int64_t cell);

  const WgradProblem problem_;
  TaskPool& pool_;
  const std::optional<Summation> summation_;
  Expected expected_;
  // Each element has the sum in float64 since it was restarted, and what rounding took from the
  // whole; the sum in float32, and the earlier ones; sum t^2, the sum of squares of the sum on its
  // way, and how many terms are not 0.
  std::vector<double> run_, compensation_, plain_, squares_, walk_, terms_;
  std::vector<float> plain_run_;
  std::vector<std::int64_t> pixels_, seen_;  // of each tap: that lay in x so far, with this block
};

}  // namespace convgrad
