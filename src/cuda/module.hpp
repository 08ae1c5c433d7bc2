// module.hpp - the library's way to convgrad_cuda.so, which has all calls of the CUDA runtime.
//
// The module is loaded when a device is needed. Linked in, the runtime registers its kernels
// whenever a program starts (and ends it where memory is missing for that), and whoever links the
// library would need the CUDA Toolkit. Both sides are of one build, so C++ objects cross, errors as
// values: with CONVGRAD_PORTABLE each has GCC's libraries to itself, and exceptions do not pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/block_sum.hpp"
#include "engine/device_kernel.hpp"

namespace convgrad::cuda {

// It rises with each change of the types below; changes of Plan show in its size.
inline constexpr int kModuleVersion = 8;

struct Module {
  int version = kModuleVersion;
  std::size_t plan_bytes = sizeof(Plan);
  CudaInfo (*info)() = nullptr;                         // cuda_info()
  Feasible<std::int64_t> (*free_bytes)(int) = nullptr;  // of a device, which it starts
  // make_device_sum(), and what a DeviceSum does.
  Feasible<std::unique_ptr<DeviceSum>> (*make_sum)(const Plan&) = nullptr;
  Feasible<bool> (*add)(DeviceSum&, const Block&, std::int64_t) = nullptr;
  Feasible<bool> (*round_to_result)(DeviceSum&, void*) = nullptr;
  Feasible<double*> (*finish)(DeviceSum&, std::size_t) = nullptr;
  Feasible<double> (*time_replay)(DeviceSum&) = nullptr;
  Feasible<Buffer> (*pinned)(std::int64_t, const char*, int) = nullptr;  // pinned_buffer()
  std::string (*cudnn_missing)() = nullptr;                              // why_no_cudnn()
};

// The module has one symbol: extern "C" const Module* convgrad_cuda_module().
inline constexpr const char* kModuleSymbol = "convgrad_cuda_module";

}  // namespace convgrad::cuda
