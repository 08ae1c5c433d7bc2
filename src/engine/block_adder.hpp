// block_adder.hpp - what sums blocks up somewhere else than on the processor's threads. The
// functions load the CUDA module, once (cuda/module.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "convgrad/buffer.hpp"
#include "convgrad/plan.hpp"

namespace convgrad {

class BlockAdder {
 public:
  virtual ~BlockAdder() = default;
  // Returns when the block's memory may be used again.
  virtual void add(const Block& block, std::int64_t index) = 0;
  // The sums of one of the plan's nodes in [tap][c][k] order, valid as long as this object; once
  // for each.
  virtual double* finish(std::size_t node) = 0;
  // The seconds that clearing, the kernels of the last block and the tree take once more.
  virtual double again() = 0;
};

// For a plan with a device. Error(unavailable) where the CUDA module is not available.
std::unique_ptr<BlockAdder> make_device_adder(const Plan& plan);

// Memory that the device can copy from while the processor does something else.
Buffer pinned_buffer(std::int64_t bytes, const char* what, int device);

// Why the algorithm cudnn is not available, a clause, or "".
std::string why_no_cudnn();

}  // namespace convgrad
