// mma_gemm.cu - cuda_mma, cuda_wgmma, their like, and what they copy, for devices.
#include "cuda/add_gradient.hpp"
#include "cuda/launch_tasks.cuh"
#include "cuda/mma_gemm.hpp"
#include "cuda/pack.hpp"
#include "cuda/wgmma_gemm.hpp"

using namespace convgrad::cuda;

CONVGRAD_LAUNCH(Mma16Wide<F16>);
CONVGRAD_LAUNCH(Mma16Wide<Bf16>);
CONVGRAD_LAUNCH(Mma16Narrow<F16>);
CONVGRAD_LAUNCH(Mma16Narrow<Bf16>);
CONVGRAD_LAUNCH(MmaSplitGemm);
CONVGRAD_LAUNCH(MmaTf32Gemm);
CONVGRAD_LAUNCH(MmaF64Gemm);
CONVGRAD_LAUNCH(WgmmaGemm<F16>);
CONVGRAD_LAUNCH(WgmmaGemm<Bf16>);
CONVGRAD_LAUNCH(AddGradient<F16>);
CONVGRAD_LAUNCH(AddGradient<Bf16>);
CONVGRAD_LAUNCH(AddGradient<float>);
CONVGRAD_LAUNCH(AddGradient<double>);
CONVGRAD_LAUNCH(Pack<std::uint16_t>);
CONVGRAD_LAUNCH(Pack<std::uint32_t>);
CONVGRAD_LAUNCH(Pack<std::uint64_t>);
