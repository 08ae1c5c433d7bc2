// outer_product_amx.hpp - sums of outer products in the tile registers, for dense layers: built
// for x86-64 alone.
#pragma once

#include "engine/kernel.hpp"

namespace convgrad {

extern const Kernel kOuterProductAmxKernel;        // AMX-BF16, 16-bit data
extern const Kernel kOuterProductAmxBf16x3Kernel;  // AMX-BF16, float32
extern const Kernel kOuterProductAmxFp16Kernel;    // AMX-FP16, float16 alone

}  // namespace convgrad
