// launch_tasks.cuh - makes a Body (block.hpp) a kernel, for the .cu files, which name their bodies.
#pragma once

#include "cuda/cuda_runtime.hpp"
#include "cuda/kernels/block.hpp"

namespace convgrad::cuda {

// __grid_constant__: parameters are read from constant memory, and not copied for each thread;
// descriptors of bulk copies must be there (CUDA C++ Programming Guide, "Tensor Memory Access"). A
// multiprocessor must have registers for kLeastBlocks: the compiler's own choice, which 0 leaves to
// it, spills some to reach more blocks than shared memory lets in. 1024: bulk.hpp.
template <class Body>
__global__ void __launch_bounds__(Body::kThreads, Body::kLeastBlocks)
    body_kernel(const __grid_constant__ typename Body::Params params, std::int64_t first) {
  extern __shared__ __align__(1024) unsigned char memory[];
  DeviceBlock<Body> block(*reinterpret_cast<typename Body::Shared*>(memory));
  Body::run(block, params, first + blockIdx.x);
}

// Shared memory is as large as Body::Shared, or as large as the Body says of what it uses of that.
template <class Body>
auto shared_bytes(const typename Body::Params& params, int)
    -> decltype(Body::shared_bytes(params)) {
  return Body::shared_bytes(params);
}
template <class Body>
int shared_bytes(const typename Body::Params&, long) {
  return static_cast<int>(sizeof(typename Body::Shared));
}

template <class Body>
void launch_tasks(const typename Body::Params& params, std::int64_t first, std::int64_t count,
                  int cluster, cudaStream_t stream) {
  const int bytes = shared_bytes<Body>(params, 0);
  // More than 48 KiB is given on request (CUDA C++ Programming Guide, "Shared Memory" of compute
  // capability 8.x and 9.0), by each device: another may be the current one than before.
  if (bytes > 48 * 1024) {
    check(
        cudaFuncSetAttribute(body_kernel<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "asking for shared memory");
  }
  cudaLaunchAttribute clusters{};
  clusters.id = cudaLaunchAttributeClusterDimension;
  clusters.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  const cudaLaunchConfig_t config{static_cast<unsigned>(count),
                                  Body::kThreads,
                                  static_cast<std::size_t>(bytes),
                                  stream,
                                  &clusters,
                                  cluster > 1 ? 1u : 0u};
  check(cudaLaunchKernelEx(&config, body_kernel<Body>, params, first), "starting a kernel");
}

}  // namespace convgrad::cuda

// Instantiates a body here, so that cuda_runtime.hpp's users need no nvcc.
#define CONVGRAD_LAUNCH(...)                               \
  template void convgrad::cuda::launch_tasks<__VA_ARGS__>( \
      const __VA_ARGS__::Params&, std::int64_t, std::int64_t, int, cudaStream_t)
