// outer_product_amx.hpp - sums of outer products in the tile registers, for dense layers: built
// for x86-64 alone.
#pragma once

#include <span>

#include "convgrad/kernel.hpp"

namespace convgrad {

extern const Kernel kOuterProductAmxKernel;        // AMX-BF16, 16-bit data
extern const Kernel kOuterProductAmxBf16x3Kernel;  // AMX-BF16, float32
extern const Kernel kOuterProductAmxFp16Kernel;    // AMX-FP16, float16 alone

// The same with the tile instructions emulated, for tests on processors without them: slow, and not
// among kernels(). Packing with AVX-512, and in portable C++.
extern const Kernel kEmulatedAmxKernel;
extern const Kernel kPortableEmulatedAmxKernel;
extern const Kernel kEmulatedAmxFp16Kernel;
// All three, or none.
#ifdef __x86_64__
std::span<const Kernel* const> emulated_amx_kernels();
#else
inline std::span<const Kernel* const> emulated_amx_kernels() { return {}; }
#endif

}  // namespace convgrad
