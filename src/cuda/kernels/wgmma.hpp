// wgmma.hpp - the matrix instructions of compute capability 9.0: four warps multiply matrices in
// shared memory (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
//
// Both operands are stored with k outside ("MN-major"), as channels are contiguous in x and dy and
// k is the pixel: rows of 64 elements along m (or n), one row for each k, swizzled as bulk.hpp
// says. Eight rows are a block of 1024 bytes, and blocks follow each other. Elements 64 to 127
// along n are in another such panel.
#pragma once

#include "cuda/kernels/bulk.hpp"

namespace convgrad::cuda {

inline constexpr int kWarpgroup = 4 * kWarp;  // threads
inline constexpr int kPanel = kRowBytes / 2;  // elements of a row

// Returns the descriptor of an operand (PTX ISA, "Matrix-descriptor format") that starts at this
// address of shared memory, a multiple of 1024; its next panel is panel_bytes behind it. Offsets
// are counted in 16 bytes: of panels in bits 16 to 29, of blocks in bits 32 to 45; 1 in bits 62 and
// 63 is the 128-byte swizzle.
CONVGRAD_HD constexpr std::uint64_t operand_at(std::uint32_t address, int panel_bytes) {
  return static_cast<std::uint64_t>((address & 0x3ffffu) >> 4) |
         static_cast<std::uint64_t>(panel_bytes >> 4) << 16 |
         static_cast<std::uint64_t>(kSwizzleBytes >> 4) << 32 | std::uint64_t{1} << 62;
}

// Returns the operand so many bytes behind another: the address is in the lower bits, and never
// beyond them, as shared memory ends before 2^18.
CONVGRAD_HD constexpr std::uint64_t operand_after(std::uint64_t operand, std::uint32_t bytes) {
  return (operand & 0xffffffff00000000u) | (static_cast<std::uint32_t>(operand) + (bytes >> 4));
}

// Is m64n128k16 for 16-bit elements, C in float32: 64 elements a thread. Each warp has 16 rows, of
// which its lanes have what they have of m16n8k16 (mma.hpp), 16 times side by side.
template <typename Scalar>
struct Wgmma16 {
  static constexpr int kM = 64, kN = 128, kK = 16, kElementsC = 64;
  using C = float[kElementsC];

  CONVGRAD_HD static void c_place(int thread, int e, int& row, int& column) {
    row = thread / kWarp * 16 + thread % kWarp / 4 + e / 2 % 2 * 8;
    column = e / 4 * 8 + thread % 4 * 2 + e % 2;
  }
  CONVGRAD_HD static double value(std::uint16_t bits) { return convert<float>(Scalar{bits}); }

  // Begins c += A * B, or c = A * B where `fresh`. c's registers belong to the instruction until it
  // has been waited for, which the compiler does not know.
  CONVGRAD_HD static void begin(C& c, std::uint64_t a, std::uint64_t b, bool fresh);
  // Is an empty instruction that reads and writes c: the compiler moves no use of c across it.
  CONVGRAD_HD static void fence_sums([[maybe_unused]] C& c) {
#if defined(__CUDACC__)
    CONVGRAD_UNROLL
    for (int e = 0; e < kElementsC; ++e) asm volatile("" : "+f"(c[e])::"memory");
#endif
  }
};

#if defined(__CUDACC__)

#define CONVGRAD_WGMMA_4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define CONVGRAD_WGMMA_16(i) \
  CONVGRAD_WGMMA_4(i), CONVGRAD_WGMMA_4(i + 4), CONVGRAD_WGMMA_4(i + 8), CONVGRAD_WGMMA_4(i + 12)
// scale-d (p) is 0 or 1, scales of A and B are 1; so are both "transposes", which means k outside.
#define CONVGRAD_WGMMA_BEGIN(TYPE)                                                                \
  asm volatile(                                                                                   \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE                                \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                  \
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                          \
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                          \
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"                         \
      " %64, %65, p, 1, 1, 1, 1;\n}"                                                              \
      : CONVGRAD_WGMMA_16(0), CONVGRAD_WGMMA_16(16), CONVGRAD_WGMMA_16(32), CONVGRAD_WGMMA_16(48) \
      : "l"(a), "l"(b), "r"(fresh ? 0 : 1))

template <>
CONVGRAD_HD void Wgmma16<Float16>::begin(C& c, std::uint64_t a, std::uint64_t b, bool fresh) {
  CONVGRAD_WGMMA_BEGIN("f16");
}
template <>
CONVGRAD_HD void Wgmma16<BFloat16>::begin(C& c, std::uint64_t a, std::uint64_t b, bool fresh) {
  CONVGRAD_WGMMA_BEGIN("bf16");
}

#undef CONVGRAD_WGMMA_BEGIN
#undef CONVGRAD_WGMMA_16
#undef CONVGRAD_WGMMA_4
#endif

}  // namespace convgrad::cuda
