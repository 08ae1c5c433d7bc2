// device.hpp - the CUDA devices that the process can see.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convgrad/error.hpp"

namespace convgrad {

struct Device {
  int number = 0;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  std::int64_t memory_bytes = 0;
  int multiprocessors = 0;
  std::int64_t free_bytes = 0;  // when find_cuda_device() took it; 0 in CudaInfo
};

struct CudaInfo {
  bool built = false;         // with the CUDA Toolkit
  int toolkit_version = 0;    // 13000 is 13.0; 0 without
  int driver_version = 0;     // the newest toolkit that the driver serves; 0 without a driver
  std::string architectures;  // compiled for: "75 80 86 89 90a"; "" without CUDA kernels
  std::vector<Device> devices;
  std::string why_none;  // a clause, when devices is empty
};
// Loads the driver, which takes time where there is one: only call it when it is asked for.
CudaInfo cuda_info();

// The device with this number, started, so that its free memory is known; Error(unavailable) if
// there is none that this program can use.
Feasible<Device> find_cuda_device(int number);
// The same; throws if there is none.
Device cuda_device(int number);

}  // namespace convgrad
