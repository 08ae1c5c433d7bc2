// device.cpp - device.hpp through the CUDA runtime, linked statically.
#include "convgrad/device.hpp"

#include <cuda_runtime_api.h>

namespace convgrad {

CudaInfo cuda_info() {
  CudaInfo info;
  info.built = true;
  info.toolkit_version = CUDART_VERSION;
  if (cudaDriverGetVersion(&info.driver_version) != cudaSuccess) info.driver_version = 0;
  if (info.driver_version == 0) {
    info.why_none = "no CUDA device: no NVIDIA driver is loaded";
    return info;
  }
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    info.why_none = std::string("no CUDA device: ") + cudaGetErrorString(status);
    return info;
  }
  for (int number = 0; number < count; ++number) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, number) != cudaSuccess) continue;
    info.devices.push_back({number, properties.name, properties.major, properties.minor,
                            static_cast<std::int64_t>(properties.totalGlobalMem)});
  }
  if (info.devices.empty()) info.why_none = "no CUDA device";
  return info;
}

}  // namespace convgrad
