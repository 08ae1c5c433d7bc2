// gemm.cu - compiles implicit GEMMs for devices, what copies for kernels, and the tree of slices.
#include "cuda/kernels/add_gradient.hpp"
#include "cuda/kernels/gemm.hpp"
#include "cuda/kernels/launch_tasks.cuh"
#include "cuda/kernels/pack.hpp"
#include "cuda/kernels/reduce.hpp"

using namespace convgrad;
using namespace convgrad::cuda;

#define CONVGRAD_LAUNCH_DTYPES(BODY) \
  CONVGRAD_LAUNCH(BODY<Float16>);    \
  CONVGRAD_LAUNCH(BODY<BFloat16>);   \
  CONVGRAD_LAUNCH(BODY<float>);      \
  CONVGRAD_LAUNCH(BODY<double>)

CONVGRAD_LAUNCH(Mma16Wide<Float16>);
CONVGRAD_LAUNCH(Mma16Wide<BFloat16>);
CONVGRAD_LAUNCH(Mma16Narrow<Float16>);
CONVGRAD_LAUNCH(Mma16Narrow<BFloat16>);
CONVGRAD_LAUNCH(MmaF64Gemm);
CONVGRAD_LAUNCH_DTYPES(SimtWide);
CONVGRAD_LAUNCH_DTYPES(SimtNarrow);
CONVGRAD_LAUNCH_DTYPES(AddGradient);
CONVGRAD_LAUNCH(FoldColumns<std::uint16_t>);
CONVGRAD_LAUNCH(FoldColumns<std::uint32_t, 3>);
CONVGRAD_LAUNCH(Pack<std::uint16_t>);
CONVGRAD_LAUNCH(Pack<std::uint32_t>);
CONVGRAD_LAUNCH(Pack<std::uint64_t>);
CONVGRAD_LAUNCH(Pack<std::uint32_t, 3>);
CONVGRAD_LAUNCH(ReduceSlices<DenseSums<float>, 1>);
CONVGRAD_LAUNCH(ReduceSlices<DenseSums<float>, 8>);
CONVGRAD_LAUNCH(ReduceSlices<DenseSums<float>, 8, 1>);
CONVGRAD_LAUNCH(ReduceSlices<DenseSums<double>, 1>);
CONVGRAD_LAUNCH(ReduceSlices<DenseSums<double>, 8>);
CONVGRAD_LAUNCH(ReduceSlices<DenseSums<double>, 8, 1>);
