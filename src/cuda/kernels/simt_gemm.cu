// simt_gemm.cu - compiles cuda_simt_gemm and the tree of slices for devices.
#include "cuda/kernels/launch_tasks.cuh"
#include "cuda/kernels/reduce.hpp"
#include "cuda/kernels/simt_gemm.hpp"

using namespace convgrad;
using namespace convgrad::cuda;

CONVGRAD_LAUNCH(SimtGemmWide<Float16>);
CONVGRAD_LAUNCH(SimtGemmWide<BFloat16>);
CONVGRAD_LAUNCH(SimtGemmWide<float>);
CONVGRAD_LAUNCH(SimtGemmWide<double>);
CONVGRAD_LAUNCH(SimtGemmNarrow<Float16>);
CONVGRAD_LAUNCH(SimtGemmNarrow<BFloat16>);
CONVGRAD_LAUNCH(SimtGemmNarrow<float>);
CONVGRAD_LAUNCH(SimtGemmNarrow<double>);
CONVGRAD_LAUNCH(ReduceSlices<float>);
CONVGRAD_LAUNCH(ReduceSlices<double>);
