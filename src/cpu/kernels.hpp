// kernels.hpp - the kernels of the table. Those that are named after an instruction set are
// compiled for its processors only.
#pragma once

#include "engine/kernel.hpp"

namespace convgrad {

// These sum outer products from packed panels, for dense layers and groups.
extern const Kernel kOuterProductAmxKernel;        // AMX-BF16, 16-bit data
extern const Kernel kOuterProductAmxBf16x3Kernel;  // AMX-BF16, float32
extern const Kernel kOuterProductAmxFp16Kernel;    // AMX-FP16, float16 alone
extern const Kernel kOuterProductBf16Kernel;
extern const Kernel kOuterProductAvx512Kernel;
extern const Kernel kOuterProductAvx2Kernel;
extern const Kernel kOuterProductNeonKernel;
extern const Kernel kOuterProductKernel;

// These are for depthwise and small groups, with neighbouring taps and many lanes in registers.
extern const Kernel kStreamingAvx512Kernel;
extern const Kernel kStreamingAvx2Kernel;
extern const Kernel kStreamingNeonKernel;
extern const Kernel kStreamingKernel;

extern const Kernel kIm2colGemmKernel;  // OpenBLAS
extern const Kernel kDirectKernel;      // the definition with its loops reordered

}  // namespace convgrad
