// block_sum.hpp - the interface of all sums over the blocks of x and dy: the gradient by kernels,
// on a device or by the reference, and the checks of verify.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/buffer.hpp"
#include "base/task_pool.hpp"
#include "engine/kernel.hpp"
#include "engine/plan.hpp"

namespace convgrad {

class BlockSum {
 public:
  // Tells how much of a block is done; the threads that do the work call it.
  using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

  virtual ~BlockSum() = default;
  // Takes the plan's blocks, each once, in order. When it returns, the block's memory is free
  // again.
  virtual void add(const Block& block, std::int64_t index, const Progress& progress = {}) = 0;
  // Is called before the first block and asks for the whole gradient, rounded, in `result` when
  // finish() has returned (dw_count() elements of out_dtype in the order of the sums, owned by the
  // caller). What finish() returns is then of no use. Returns false if it gives the sums alone.
  virtual bool round_to_result(void*) { return false; }
  // Is called after the last block, once for each of the plan's nodes (schedule.nodes), and returns
  // its sums. They are valid as long as this object; the caller may add to them. They are dw in
  // [tap][c][k] order, C/groups channels c and K channels k; a check may have other sums, or none
  // (null).
  virtual double* finish(std::size_t node = 0) = 0;
};

// Makes the sum that the plan says. It copies the plan and does not own the pool.
// Error(unavailable) where the plan's backend is not available, Error(runtime) without the memory.
std::unique_ptr<BlockSum> make_sum(const Plan& plan, TaskPool& pool);

// Sums by the reference; the function is in src/check.
std::unique_ptr<BlockSum> make_reference_sum(const WgradProblem& problem, TaskPool& pool);

// Sums on a CUDA device. The functions load the CUDA module, once (cuda/module.hpp), and stand in
// src/cuda.
class DeviceSum : public BlockSum {
 public:
  // Returns the seconds that the kernels of the last block and the tree take once more, by the
  // device's own clock: the mean of many runs behind each other, on copies of the block that no
  // cache holds together. For cuDNN only its own gradient is timed.
  virtual double time_replay() = 0;
};

// The plan must have a device. Error(unavailable) says that the CUDA module is not available.
std::unique_ptr<DeviceSum> make_device_sum(const Plan& plan);

// The device can copy from this memory while the processor does something else.
Buffer pinned_buffer(std::int64_t bytes, const char* what, int device);

// Returns a clause that says why the algorithm cudnn is not available, or "".
std::string why_no_cudnn();

}  // namespace convgrad
