// cuda_runtime.cpp - see cuda_runtime.hpp.
#include "cuda/cuda_runtime.hpp"

#include <array>
#include <optional>
#include <vector>

#include "convgrad/error.hpp"
#include "convgrad/plan.hpp"
#include "cuda/cudnn.hpp"

namespace convgrad::cuda {

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw Error(ErrorKind::runtime, cat("CUDA: ", what, " failed: ", cudaGetErrorName(status), ", ",
                                      cudaGetErrorString(status), "; try --backend cpu"));
}

CurrentDevice::CurrentDevice(int device) {
  int before = -1;
  if (cudaGetDevice(&before) != cudaSuccess || before != device) {
    if (cudaSetDevice(device) == cudaSuccess) before_ = before;
  }
  cudaGetLastError();
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0 && cudaSetDevice(before_) != cudaSuccess) cudaGetLastError();
}

struct CudaRuntime::State {
  int device = 0;
  cudaStream_t copies = nullptr, kernels = nullptr;
  std::array<cudaEvent_t, 2> uploaded{}, computed{};
  std::array<cudaEvent_t, 2> timer{};
  std::vector<void*> memory;
  std::optional<Cudnn> library;

  // Whatever exists, also after a constructor that failed half-way.
  ~State() {
    const CurrentDevice current(device);
    for (const cudaStream_t stream : {copies, kernels}) {
      if (stream != nullptr) cudaStreamSynchronize(stream);
    }
    for (void* pointer : memory) cudaFree(pointer);
    library.reset();
    for (const auto& events : {uploaded, computed, timer}) {
      for (const cudaEvent_t event : events) {
        if (event != nullptr) cudaEventDestroy(event);
      }
    }
    for (const cudaStream_t stream : {copies, kernels}) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
    cudaGetLastError();
  }
};

CudaRuntime::CudaRuntime(int device) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.device = device;
  const CurrentDevice current(device);
  check(cudaSetDevice(device), cat("taking device ", device));
  check(cudaStreamCreateWithFlags(&s.copies, cudaStreamNonBlocking), "creating a stream");
  check(cudaStreamCreateWithFlags(&s.kernels, cudaStreamNonBlocking), "creating a stream");
  for (auto* events : {&s.uploaded, &s.computed}) {
    for (cudaEvent_t& event : *events) {
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
    }
  }
}

CudaRuntime::~CudaRuntime() = default;
CudaRuntime::CudaRuntime(CudaRuntime&&) noexcept = default;

CurrentDevice CudaRuntime::current() const { return CurrentDevice(state_->device); }

void* CudaRuntime::allocate(std::int64_t bytes) {
  void* pointer = nullptr;
  const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
  if (cudaMalloc(&pointer, size) != cudaSuccess) {
    cudaGetLastError();  // it is told here
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw Error(ErrorKind::runtime, cat("out of memory on device ", state_->device, ": ",
                                        format_bytes(static_cast<double>(bytes)), " wanted, ",
                                        format_bytes(static_cast<double>(free)), " of ",
                                        format_bytes(static_cast<double>(total)),
                                        " free; lower --memory-limit, or use --backend cpu"));
  }
  state_->memory.push_back(pointer);
  return pointer;
}

void CudaRuntime::zero(void* memory, std::int64_t bytes) {
  check(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), state_->kernels),
        "clearing partial sums");
}

void CudaRuntime::begin_upload(std::int64_t half) {
  check(cudaStreamWaitEvent(state_->copies, state_->computed[static_cast<std::size_t>(half)], 0),
        "waiting for kernels");
}

void CudaRuntime::upload(void* to, const void* from, std::int64_t bytes) {
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                        state_->copies),
        "copying a block to the device");
}

void CudaRuntime::end_upload(std::int64_t half) {
  const cudaEvent_t event = state_->uploaded[static_cast<std::size_t>(half)];
  check(cudaEventRecord(event, state_->copies), "recording an event");
  check(cudaStreamWaitEvent(state_->kernels, event, 0), "waiting for a copy");
  check(cudaEventSynchronize(event), "copying a block to the device");
}

void CudaRuntime::end_compute(std::int64_t half) {
  check(cudaEventRecord(state_->computed[static_cast<std::size_t>(half)], state_->kernels),
        "recording an event");
}

void CudaRuntime::download(void* to, const void* from, std::int64_t bytes) {
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost,
                        state_->kernels),
        "copying the sums from the device");
  check(cudaStreamSynchronize(state_->kernels), "computing on the device");
}

void CudaRuntime::cudnn(const WgradProblem& problem, std::int64_t images, const void* x,
                        const void* dy, void* dw) {
  if (!state_->library) state_->library.emplace();
  const auto allocate = [](void* runtime, std::int64_t bytes) {
    return static_cast<CudaRuntime*>(runtime)->allocate(bytes);
  };
  state_->library->filter_gradient(problem, images, x, dy, dw, state_->kernels, allocate, this);
}

void CudaRuntime::start_timer() {
  for (cudaEvent_t& event : state_->timer) {
    if (event == nullptr) check(cudaEventCreate(&event), "creating an event");
  }
  check(cudaEventRecord(state_->timer[0], state_->kernels), "recording an event");
}

double CudaRuntime::stop_timer() {
  check(cudaEventRecord(state_->timer[1], state_->kernels), "recording an event");
  check(cudaEventSynchronize(state_->timer[1]), "computing on the device");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, state_->timer[0], state_->timer[1]), "reading a timer");
  return static_cast<double>(milliseconds) * 1e-3;
}

cudaStream_t CudaRuntime::compute_stream() const { return state_->kernels; }

}  // namespace convgrad::cuda
