// device.cpp - device.hpp through the CUDA runtime, linked statically.
#include "convgrad/device.hpp"

#include <cuda_runtime_api.h>

#include "convgrad/error.hpp"

namespace convgrad {
namespace {

std::string version_of(int number) { return cat(number / 1000, ".", number % 1000 / 10); }

std::string why_no_device(cudaError_t status, int driver_version) {
  if (status == cudaErrorInsufficientDriver) {
    return cat("no CUDA device: the driver serves CUDA ", version_of(driver_version),
               ", and this convgrad was built with ", version_of(CUDART_VERSION));
  }
  if (status == cudaErrorNoDevice) {
    return "no CUDA device: the driver sees none (CUDA_VISIBLE_DEVICES may hide some)";
  }
  return cat("no CUDA device: ", cudaGetErrorString(status));
}

}  // namespace

CudaInfo cuda_info() {
  CudaInfo info;
  info.built = true;
  info.toolkit_version = CUDART_VERSION;
  info.architectures = CONVGRAD_CUDA_ARCHITECTURES;
  if (cudaDriverGetVersion(&info.driver_version) != cudaSuccess) info.driver_version = 0;
  if (info.driver_version == 0) {
    info.why_none = "no CUDA device: no NVIDIA driver is loaded";
    return info;
  }
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    info.why_none = why_no_device(status, info.driver_version);
    return info;
  }
  for (int number = 0; number < count; ++number) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, number) != cudaSuccess) continue;
    info.devices.push_back({number, properties.name, properties.major, properties.minor,
                            static_cast<std::int64_t>(properties.totalGlobalMem),
                            properties.multiProcessorCount});
  }
  if (info.devices.empty()) info.why_none = "no CUDA device";
  return info;
}

Device cuda_device(int number) {
  const CudaInfo info = cuda_info();
  const auto unavailable = [](const std::string& what) {
    return Error(ErrorKind::unavailable, what);
  };
  if (info.devices.empty()) {
    throw unavailable(cat("--backend cuda: ", info.why_none, "; use --backend cpu"));
  }
  for (const Device& device : info.devices) {
    if (device.number != number) continue;
    if (device.major * 10 + device.minor < 75) {
      throw unavailable(cat("--device ", number, ": ", device.name, " has compute capability ",
                            device.major, ".", device.minor,
                            ", expected 7.5 or newer; use --backend cpu"));
    }
    return device;
  }
  throw unavailable(cat("--device ", number, ": there ",
                        info.devices.size() == 1
                            ? cat("is 1 CUDA device, number 0")
                            : cat("are ", info.devices.size(), " CUDA devices, numbers 0 to ",
                                  info.devices.size() - 1)));
}

}  // namespace convgrad
