// streaming.cu - compiles cuda_streaming for devices. It is a source of its own, compiled beside
// the others, as its unrolled loops take the longest.
#include "cuda/kernels/launch_tasks.cuh"
#include "cuda/kernels/streaming.hpp"

using namespace convgrad;
using namespace convgrad::cuda;

#define CONVGRAD_LAUNCH_SCALARS(...)                 \
  CONVGRAD_LAUNCH(Streaming<Float16, __VA_ARGS__>);  \
  CONVGRAD_LAUNCH(Streaming<BFloat16, __VA_ARGS__>); \
  CONVGRAD_LAUNCH(Streaming<float, __VA_ARGS__>);    \
  CONVGRAD_LAUNCH(Streaming<double, __VA_ARGS__>)

CONVGRAD_LAUNCH_SCALARS(3, 3, 1);
CONVGRAD_LAUNCH_SCALARS(5, 5, 1);
CONVGRAD_LAUNCH_SCALARS(7, 7, 1);
CONVGRAD_LAUNCH_SCALARS(3, 3, 4);
