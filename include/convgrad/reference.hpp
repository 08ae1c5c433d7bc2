// reference.hpp - the definition as naive loops: what everything else is compared with.
#pragma once

#include <cstdint>
#include <vector>

#include "convgrad/block_sum.hpp"

namespace convgrad {

// Adds block after block. float64 accumulators; for float64 data the products and sums are
// compensated (Ogita, Rump, Oishi: Accurate sum and dot product, 2005, Dot2). The order of each
// element's sum is n, z, p, q, whatever the blocks and threads. Shares no code with the kernels.
class ReferenceSum final : public BlockSum {
 public:
  ReferenceSum(const WgradProblem& problem, TaskPool& pool);
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t node = 0) override;

  // After finish(), in [tap][c][k] order:
  const std::vector<double>& values() const { return sum_; }
  // sum |x||dy| of each element: what errors are measured against.
  const std::vector<double>& magnitudes() const { return magnitude_; }

 private:
  const WgradProblem problem_;
  TaskPool& pool_;
  std::vector<double> sum_, compensation_, magnitude_;
};

}  // namespace convgrad
