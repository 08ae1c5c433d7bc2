// emulated_amx.hpp - declares the kernels of AMX with plain C++ in the place of its tile
// instructions, so that all around them is tested on processors without AMX. They are slow.
#pragma once

#include <span>

#include "cpu/amx/amx_isa.hpp"
#include "engine/kernel.hpp"

namespace convgrad::testing {

extern const AmxTiles kEmulatedAmxTiles;
extern const AmxTiles kEmulatedAmxFp16Tiles;
extern const AmxVectors kPortableAmxVectors;  // packing on any processor

// They pack with AVX-512, and in portable C++.
extern const Kernel kEmulatedAmxKernel;
extern const Kernel kPortableEmulatedAmxKernel;
extern const Kernel kEmulatedAmxFp16Kernel;
// Returns all three, or none.
#ifdef __x86_64__
std::span<const Kernel* const> emulated_amx_kernels();
#else
inline std::span<const Kernel* const> emulated_amx_kernels() { return {}; }
#endif

}  // namespace convgrad::testing
