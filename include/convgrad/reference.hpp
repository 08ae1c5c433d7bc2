// reference.hpp - the definition as naive loops: what everything else is compared with.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "convgrad/kernel.hpp"
#include "convgrad/task_pool.hpp"

namespace convgrad {

// What is summed beside a gradient, or instead of one, from the blocks of x and dy in their order.
class BlockSum {
 public:
  virtual ~BlockSum() = default;
  // progress(done, total) is called from the threads that do the work, if set.
  virtual void add(const Block& block,
                   const std::function<void(std::int64_t, std::int64_t)>& progress) = 0;
  // After the last block.
  virtual void finish() = 0;
};

// Adds block after block. float64 accumulators; for float64 data the products and sums are
// compensated (Ogita, Rump, Oishi: Accurate sum and dot product, 2005, Dot2). The order of each
// element's sum is n, z, p, q, whatever the blocks and threads. Shares no code with the kernels.
class ReferenceSum final : public BlockSum {
 public:
  ReferenceSum(const WgradProblem& problem, TaskPool& pool);
  void add(const Block& block,
           const std::function<void(std::int64_t, std::int64_t)>& progress = {}) override;
  void finish() override;

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
