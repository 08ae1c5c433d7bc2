// kernels.hpp - the kernels of the table, but for those of AMX (outer_product_amx.hpp). Those that
// are named after an instruction set are compiled for its processors only.
#pragma once

#include "engine/kernel.hpp"

namespace convgrad {

// Sums of outer products from packed panels, for dense layers and groups.
extern const Kernel kOuterProductBf16Kernel;
extern const Kernel kOuterProductAvx512Kernel;
extern const Kernel kOuterProductAvx2Kernel;
extern const Kernel kOuterProductNeonKernel;
extern const Kernel kOuterProductKernel;

// Depthwise and small groups: neighbouring taps and many lanes in registers.
extern const Kernel kStreamingAvx512Kernel;
extern const Kernel kStreamingAvx2Kernel;
extern const Kernel kStreamingNeonKernel;
extern const Kernel kStreamingKernel;

extern const Kernel kIm2colGemmKernel;  // OpenBLAS
extern const Kernel kDirectKernel;      // the definition with its loops reordered

}  // namespace convgrad
