// wgmma_taps.cu - compiles cuda_wgmma and cuda_wgmma_bf16x3 for devices, for the target 90a alone.
#include "cuda/kernels/launch_tasks.cuh"
#include "cuda/kernels/reduce.hpp"
#include "cuda/kernels/wgmma_taps.hpp"

using namespace convgrad;
using namespace convgrad::cuda;

#define CONVGRAD_LAUNCH_SUMS(NUMBER, ...)                                              \
  CONVGRAD_LAUNCH(ReduceSlices<TapsSums<WgmmaTaps<Float16, __VA_ARGS__>, NUMBER>, 1>); \
  CONVGRAD_LAUNCH(ReduceSlices<TapsSums<WgmmaTaps<Float16, __VA_ARGS__>, NUMBER>, 8>)
#define CONVGRAD_LAUNCH_TAPS(...)                    \
  CONVGRAD_LAUNCH(WgmmaTaps<Float16, __VA_ARGS__>);  \
  CONVGRAD_LAUNCH(WgmmaTaps<BFloat16, __VA_ARGS__>); \
  CONVGRAD_LAUNCH_SUMS(float, __VA_ARGS__);          \
  CONVGRAD_LAUNCH_SUMS(double, __VA_ARGS__)

CONVGRAD_LAUNCH_TAPS(64, 3, 3);
CONVGRAD_LAUNCH_TAPS(32, 3, 3);
CONVGRAD_LAUNCH_TAPS(64, 2, 2);
CONVGRAD_LAUNCH_TAPS(32, 4, 2);
CONVGRAD_LAUNCH(WgmmaTaps<Bf16x3, 32, 3, 3>);
CONVGRAD_LAUNCH(WgmmaTaps<Bf16x3, 64, 2, 2>);
CONVGRAD_LAUNCH(WgmmaTaps<Bf16x3, 32, 4, 2>);
