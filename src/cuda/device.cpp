// device.cpp - calls the module that has CUDA for device_kernel.hpp and block_sum.hpp.
#include <dlfcn.h>

#include "base/load_module.hpp"
#include "convgrad/error.hpp"
#include "cuda/module.hpp"
#include "engine/device_kernel.hpp"

namespace convgrad {
namespace {

#ifdef CONVGRAD_HAS_CUDA
// Structs are passed as they are in memory: a module of another build would misread them.
bool is_ours(const void* offers) {
  const auto* const found = static_cast<const cuda::Module*>(offers);
  const cuda::Module expected;
  return found->version == expected.version && found->plan_bytes == expected.plan_bytes;
}

LoadedModule load() {
  return load_module("convgrad_cuda.so", cuda::kModuleSymbol, RTLD_NOW | RTLD_LOCAL, is_ours);
}
#else
LoadedModule load() { return {nullptr, "this convgrad was built without the CUDA Toolkit"}; }
#endif

// It is loaded once: what CUDA says of devices does not change while a program runs.
const LoadedModule& loaded() {
  static const LoadedModule once = load();
  return once;
}
const cuda::Module* module_if_any() { return static_cast<const cuda::Module*>(loaded().offers); }

template <typename... Parts>
Error unavailable(const Parts&... parts) {
  return Error(ErrorKind::unavailable, parts...);
}

const cuda::Module& module() {
  if (module_if_any() != nullptr) return *module_if_any();
  throw unavailable("--backend cuda: ", loaded().why_none, Hint("use --backend cpu"));
}

// Throws here what the module returns.
class LoadedSum final : public DeviceSum {
 public:
  explicit LoadedSum(const Plan& plan) : sum_(module().make_sum(plan).or_throw()) {}
  void add(const Block& block, std::int64_t index, const Progress& = {}) override {
    module().add(*sum_, block, index).or_throw();
  }
  bool round_to_result(void* result) override {
    return module().round_to_result(*sum_, result).or_throw();
  }
  double* finish(std::size_t node) override { return module().finish(*sum_, node).or_throw(); }
  double time_replay() override { return module().time_replay(*sum_).or_throw(); }

 private:
  std::unique_ptr<DeviceSum> sum_;
};

}  // namespace

CudaInfo cuda_info() {
  if (module_if_any() != nullptr) return module().info();
  CudaInfo info;
  info.why_none = loaded().why_none;
  return info;
}

Feasible<Device> find_cuda_device(int number) {
  CudaInfo info = cuda_info();
  if (info.devices.empty()) {
    return unavailable("--backend cuda: ", info.why_none, Hint("use --backend cpu"));
  }
  for (Device& device : info.devices) {
    if (device.number != number) continue;
    if (device.major * 10 + device.minor < 75) {
      return unavailable("--device ", number, ": ", device.name, " has compute capability ",
                         device.major, ".", device.minor, ", expected 7.5 or newer",
                         Hint("use --backend cpu"));
    }
    // A device that others hold alone, or whose memory is full, is there but not available.
    const Feasible<std::int64_t> free = module().free_bytes(number);
    if (!free) return unavailable("--device ", number, ": ", free.why_not());
    device.free_bytes = *free;
    return device;
  }
  return unavailable("--device ", number, ": the numbers of CUDA devices are 0 to ",
                     info.devices.size() - 1);
}

Device cuda_device(int number) { return find_cuda_device(number).or_throw(); }

std::unique_ptr<DeviceSum> make_device_sum(const Plan& plan) {
  return std::make_unique<LoadedSum>(plan);
}

Buffer pinned_buffer(std::int64_t bytes, const char* what, int device) {
  return module().pinned(bytes, what, device).or_throw();
}

std::string why_no_cudnn() {
  return module_if_any() != nullptr ? module().cudnn_missing() : loaded().why_none;
}

}  // namespace convgrad
