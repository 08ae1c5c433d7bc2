// launch_tasks.cuh - a Body (block.hpp) as a kernel; for the .cu files, which name their bodies.
#pragma once

#include "cuda/cuda_runtime.hpp"
#include "cuda/kernels/block.hpp"

namespace convgrad::cuda {

template <class Body>
__global__ void __launch_bounds__(Body::kThreads)
    body_kernel(const __grid_constant__ typename Body::Params params, std::int64_t first) {
  extern __shared__ __align__(1024) unsigned char memory[];
  DeviceBlock<Body> block(*reinterpret_cast<typename Body::Shared*>(memory));
  Body::run(block, params, first + blockIdx.x);
}

template <class Body>
void launch_tasks(const typename Body::Params& params, std::int64_t first, std::int64_t count,
                  cudaStream_t stream) {
  constexpr int kBytes = static_cast<int>(sizeof(typename Body::Shared));
  if constexpr (kBytes > 48 * 1024) {
    check(cudaFuncSetAttribute(body_kernel<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               kBytes),
          "asking for shared memory");
  }
  body_kernel<Body>
      <<<static_cast<unsigned>(count), Body::kThreads, kBytes, stream>>>(params, first);
  check(cudaGetLastError(), "starting a kernel");
}

}  // namespace convgrad::cuda

#define CONVGRAD_LAUNCH(...)                               \
  template void convgrad::cuda::launch_tasks<__VA_ARGS__>( \
      const __VA_ARGS__::Params&, std::int64_t, std::int64_t, cudaStream_t)
