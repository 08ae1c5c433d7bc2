// block_sum.hpp - what is summed over the blocks of x and dy: the gradient by kernels, on a device
// or by the reference, and the checks of verify. One interface for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/task_pool.hpp"
#include "engine/kernel.hpp"
#include "engine/plan.hpp"

namespace convgrad {

class BlockSum {
 public:
  // What is done of a block, of how much; called from the threads that do the work.
  using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

  virtual ~BlockSum() = default;
  // The plan's blocks, each once, in their order. Returns when the block's memory may be used
  // again.
  virtual void add(const Block& block, std::int64_t index, const Progress& progress = {}) = 0;
  // Before the first block: the whole gradient, rounded, is to be in `result` after the last one
  // (dw_count() elements of out_dtype in the order of the sums, owned by the caller). False if only
  // finish() gives it.
  virtual bool round_to_result(void*) { return false; }
  // After the last block: the sums of one of the plan's nodes (schedule.nodes), once for each,
  // valid as long as this object; the caller may add to them. dw in [tap][c][k] order, C/groups
  // channels c and K channels k; a check may have other sums, or none (null).
  virtual double* finish(std::size_t node = 0) = 0;
};

// The gradient by what the plan says. Copies the plan, does not own the pool. Error(unavailable)
// where the plan's backend is not available, Error(runtime) without the memory.
std::unique_ptr<BlockSum> make_sum(const Plan& plan, TaskPool& pool);

// By the reference; in src/check.
std::unique_ptr<BlockSum> make_reference_sum(const WgradProblem& problem, TaskPool& pool);

}  // namespace convgrad
