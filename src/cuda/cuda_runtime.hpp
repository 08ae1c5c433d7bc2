// cuda_runtime.hpp - the Runtime of launch.hpp and device_adder.hpp on a CUDA device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "cuda/kernels/bulk.hpp"

namespace convgrad {
struct WgradProblem;  // .cu files need no more of it
}

namespace convgrad::cuda {

// CUDA keeps an error until it is asked for it, and would have the next kernel that starts fail.
// Behind these it is not kept. check() throws an Error(runtime) that names the call and has the
// driver's text.
bool succeeded(cudaError_t status);
void check(cudaError_t status, std::string_view what);

// Makes a device the calling thread's current one, while it lives. A failure is not reported here:
// the next call fails with it. The device before is restored, as the thread may be a caller's.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;  // -1: unknown, or the same
};

// Launches Body for the tasks first, first + 1, ..., count of them, whose blocks are clusters of so
// many, one behind the other. The .cu files compile it.
template <class Body>
void launch_tasks(const typename Body::Params& params, std::int64_t first, std::int64_t count,
                  int cluster, cudaStream_t stream);

// One stream copies, one runs kernels, so that a block is copied while kernels work on the one
// before; events order the two. Memory is freed by the destructor. All but the constructor and the
// destructor expect current() of the calling thread to be alive.
class CudaRuntime {
 public:
  // spare_bytes of device memory are for the workspaces of libraries.
  CudaRuntime(int device, std::int64_t spare_bytes);
  ~CudaRuntime();
  CudaRuntime(CudaRuntime&&) noexcept;

  CurrentDevice current() const;
  void* allocate(std::int64_t bytes);
  // Throws Error(unavailable) where the driver knows no such copies.
  BulkTensor bulk_tensor(const BulkMap& map) const;
  void begin_upload(std::int64_t buffer);
  void upload(void* to, const void* from, std::int64_t bytes);
  void end_upload();
  void end_compute(std::int64_t buffer);
  void download(void* to, const void* from, std::int64_t bytes);
  // Computes the filter gradient of whole images by cuDNN, in the problem's dtype.
  void cudnn(const WgradProblem& problem, std::int64_t images, bool deterministic, const void* x,
             const void* dy, void* dw);
  void copy(void* to, const void* from, std::int64_t bytes);
  // Returns the seconds of what start() starts, by the device's clock. It is recorded as a graph
  // once, so that starting kernels does not count where they are short; where it cannot be
  // recorded, as a library may do what no graph holds, it is started anew each time.
  double time(const std::function<void()>& start);
  cudaStream_t compute_stream() const;
  int shared_bytes() const;  // of a thread block, at most
  bool copies_in_bulk() const;

  template <class Body>
  void launch(const typename Body::Params& params, std::int64_t tasks, int cluster = 1) {
    for (std::int64_t first = 0; first < tasks; first += kMaxBlocks) {
      const std::int64_t rest = tasks - first;
      launch_tasks<Body>(params, first, rest < kMaxBlocks ? rest : kMaxBlocks, cluster,
                         compute_stream());
    }
  }

 private:
  // A grid's x has at most so many; y and z end at 65535 and are not used.
  static constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 30;

  void record(const std::function<void()>& start);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convgrad::cuda
