// device_sum.hpp - sums on a CUDA device. The functions load the CUDA module, once
// (cuda/module.hpp), and stand in src/cuda.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/buffer.hpp"
#include "engine/block_sum.hpp"

namespace convgrad {

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
