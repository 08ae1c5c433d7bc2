// cuda_module.cpp - makes convgrad_cuda.so, module.hpp by the statically linked CUDA runtime.
#include <cuda_runtime_api.h>

#include <new>

#include "cuda/cuda_runtime.hpp"
#include "cuda/cudnn.hpp"
#include "cuda/device_adder.hpp"
#include "cuda/module.hpp"

namespace convgrad::cuda {
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

CudaInfo info() {
  CudaInfo info;
  info.built = true;
  info.toolkit_version = CUDART_VERSION;
  info.architectures = CONVGRAD_CUDA_ARCHITECTURES;
  if (!succeeded(cudaDriverGetVersion(&info.driver_version))) info.driver_version = 0;
  if (info.driver_version == 0) {
    info.why_none = "no CUDA device: no NVIDIA driver is loaded";
    return info;
  }
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (!succeeded(status)) {
    info.why_none = why_no_device(status, info.driver_version);
    return info;
  }
  for (int number = 0; number < count; ++number) {
    cudaDeviceProp properties;
    if (!succeeded(cudaGetDeviceProperties(&properties, number))) continue;
    info.devices.push_back({number, properties.name, properties.major, properties.minor,
                            static_cast<std::int64_t>(properties.totalGlobalMem),
                            properties.multiProcessorCount, 0,
                            info.architectures.find("90a") != std::string::npos});
  }
  if (info.devices.empty()) info.why_none = "no CUDA device";
  return info;
}

// Returns what f returns, or the error that it throws.
template <typename Function>
auto caught(Function&& f) -> Feasible<decltype(f())> {
  try {
    return f();
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::runtime, "out of memory");
  }
}

Feasible<std::int64_t> free_bytes(int device) {
  return caught([&] {
    const CurrentDevice current(device);
    std::size_t free = 0, total = 0;
    check(cudaSetDevice(device), cat("taking device ", device));
    check(cudaMemGetInfo(&free, &total), cat("starting device ", device));
    return static_cast<std::int64_t>(free);
  });
}

Feasible<std::unique_ptr<DeviceSum>> make_sum(const Plan& plan) {
  return caught([&]() -> std::unique_ptr<DeviceSum> {
    const DeviceMemory& need = plan.cuda()->memory;
    return std::make_unique<DeviceAdder<CudaRuntime>>(
        plan, CudaRuntime(plan.cuda()->device.number, need.limit - need.total()));
  });
}

Feasible<bool> add(DeviceSum& sum, const Block& block, std::int64_t index) {
  return caught([&] {
    sum.add(block, index);
    return true;
  });
}

// Another function of a DeviceSum.
template <auto kFunction, typename... Arguments>
auto call(DeviceSum& sum, Arguments... arguments) {
  return caught([&] { return (sum.*kFunction)(arguments...); });
}

Feasible<Buffer> pinned(std::int64_t bytes, const char* what, int device) {
  return caught([&] {
    const CurrentDevice current(device);  // of this thread, which may be the one that reads ahead
    void* memory = nullptr;
    // Ordinary memory works too: the driver copies through its own, and the calling thread waits.
    if (!succeeded(cudaMallocHost(&memory, static_cast<std::size_t>(bytes)))) {
      return Buffer(bytes, what);
    }
    return Buffer::adopt(static_cast<std::byte*>(memory), bytes,
                         [](std::byte* from_cuda) { cudaFreeHost(from_cuda); });
  });
}

}  // namespace
}  // namespace convgrad::cuda

extern "C" [[gnu::visibility("default")]] const convgrad::cuda::Module* convgrad_cuda_module();

const convgrad::cuda::Module* convgrad_cuda_module() {
  using namespace convgrad::cuda;
  static const Module module{.info = info,
                             .free_bytes = free_bytes,
                             .make_sum = make_sum,
                             .add = add,
                             .round_to_result = call<&convgrad::DeviceSum::round_to_result>,
                             .finish = call<&convgrad::DeviceSum::finish>,
                             .time_replay = call<&convgrad::DeviceSum::time_replay>,
                             .pinned = pinned,
                             .cudnn_missing = cudnn_missing};
  return &module;
}
