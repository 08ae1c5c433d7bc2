// gemm.cu - compiles the implicit GEMMs for devices, what copies for them and for cuDNN, and the
// tree of slices.
#include "cuda/kernels/add_gradient.hpp"
#include "cuda/kernels/gemm.hpp"
#include "cuda/kernels/launch_tasks.cuh"
#include "cuda/kernels/pack.hpp"
#include "cuda/kernels/reduce.hpp"

using namespace convgrad;
using namespace convgrad::cuda;

CONVGRAD_LAUNCH(Mma16Wide<Float16>);
CONVGRAD_LAUNCH(Mma16Wide<BFloat16>);
CONVGRAD_LAUNCH(Mma16Narrow<Float16>);
CONVGRAD_LAUNCH(Mma16Narrow<BFloat16>);
CONVGRAD_LAUNCH(MmaF64Gemm);
CONVGRAD_LAUNCH(SimtWide<Float16>);
CONVGRAD_LAUNCH(SimtWide<BFloat16>);
CONVGRAD_LAUNCH(SimtWide<float>);
CONVGRAD_LAUNCH(SimtWide<double>);
CONVGRAD_LAUNCH(SimtNarrow<Float16>);
CONVGRAD_LAUNCH(SimtNarrow<BFloat16>);
CONVGRAD_LAUNCH(SimtNarrow<float>);
CONVGRAD_LAUNCH(SimtNarrow<double>);
CONVGRAD_LAUNCH(AddGradient<Float16>);
CONVGRAD_LAUNCH(AddGradient<BFloat16>);
CONVGRAD_LAUNCH(AddGradient<float>);
CONVGRAD_LAUNCH(AddGradient<double>);
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
