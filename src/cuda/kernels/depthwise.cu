// depthwise.cu - compiles cuda_streaming for devices. It is a source of its own, compiled beside
// the others, as its unrolled loops take the longest.
#include "cuda/kernels/depthwise.hpp"
#include "cuda/kernels/launch_tasks.cuh"

using namespace convgrad;
using namespace convgrad::cuda;

#define CONVGRAD_LAUNCH_TAPS(SCALAR, WIDE)           \
  CONVGRAD_LAUNCH(Depthwise<SCALAR, 3, 3, 1, WIDE>); \
  CONVGRAD_LAUNCH(Depthwise<SCALAR, 5, 5, 1, WIDE>); \
  CONVGRAD_LAUNCH(Depthwise<SCALAR, 7, 7, 1, WIDE>)

CONVGRAD_LAUNCH_TAPS(Float16, 2);
CONVGRAD_LAUNCH_TAPS(BFloat16, 2);
CONVGRAD_LAUNCH_TAPS(Float16, 1);
CONVGRAD_LAUNCH_TAPS(BFloat16, 1);
CONVGRAD_LAUNCH_TAPS(float, 1);
CONVGRAD_LAUNCH_TAPS(double, 1);

CONVGRAD_LAUNCH(Depthwise<Float16, 3, 3, 4, 1>);
CONVGRAD_LAUNCH(Depthwise<BFloat16, 3, 3, 4, 1>);
CONVGRAD_LAUNCH(Depthwise<float, 3, 3, 4, 1>);
CONVGRAD_LAUNCH(Depthwise<double, 3, 3, 4, 1>);
