// device.cpp - device.hpp, and block_adder.hpp's functions, by the module that has CUDA.
#include "convgrad/device.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "convgrad/error.hpp"
#include "cuda/module.hpp"

namespace convgrad {
namespace {

struct Loaded {
  const cuda::Module* module = nullptr;
  std::string why_none;  // a clause, without a module
};

#ifdef CONVGRAD_CUDA_MODULE

// Where the program of the build or of an installation has it; then where the library was to be
// installed, for programs of others. CONVGRAD_MODULES names another folder, before all.
std::vector<std::filesystem::path> folders() {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<std::filesystem::path> result = {program, program / CONVGRAD_MODULES_FROM_PROGRAM,
                                               CONVGRAD_MODULES_FOLDER};
  if (const char* named = std::getenv("CONVGRAD_MODULES")) result.insert(result.begin(), named);
  return result;
}

Loaded load() {
  Loaded loaded;
  loaded.why_none = CONVGRAD_CUDA_MODULE " is not installed with this convgrad";
  std::error_code ignored;
  for (const std::filesystem::path& folder : folders()) {
    const std::filesystem::path path = folder / CONVGRAD_CUDA_MODULE;
    if (!std::filesystem::exists(path, ignored)) continue;
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      loaded.why_none = cat("it cannot be loaded: ", one_line(dlerror()));
      continue;
    }
    using Entry = const cuda::Module* (*)();
    const auto entry = reinterpret_cast<Entry>(dlsym(library, cuda::kModuleSymbol));
    const cuda::Module expected;
    if (entry != nullptr && entry()->version == expected.version &&
        entry()->plan_bytes == expected.plan_bytes) {
      return {entry(), ""};
    }
    loaded.why_none = cat(one_line(path.string()), " is of another build");
  }
  return loaded;
}

#else

Loaded load() { return {nullptr, "this convgrad was built without the CUDA Toolkit"}; }

#endif

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

Error unavailable(const std::string& what) { return Error(ErrorKind::unavailable, what); }

const cuda::Module& module() {
  if (loaded().module != nullptr) return *loaded().module;
  throw unavailable(cat("--backend cuda: ", loaded().why_none, "; use --backend cpu"));
}

}  // namespace

CudaInfo cuda_info() {
  if (loaded().module != nullptr) return loaded().module->info();
  CudaInfo info;
  info.why_none = loaded().why_none;
  return info;
}

Device cuda_device(int number) {
  const CudaInfo info = cuda_info();
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

std::unique_ptr<BlockAdder> make_device_adder(const Plan& plan) {
  return module().make_adder(plan);
}

Buffer pinned_buffer(std::int64_t bytes, const char* what, int device) {
  return module().pinned(bytes, what, device);
}

std::string why_no_cudnn() {
  return loaded().module != nullptr ? loaded().module->cudnn_missing() : loaded().why_none;
}

}  // namespace convgrad
