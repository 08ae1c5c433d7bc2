// wgmma.hpp - the matrix instructions of compute capability 9.0: four warps multiply matrices in
// shared memory (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
//
// Both operands are stored with k outside ("MN-major"), as channels are contiguous in x and dy and
// k is the pixel: rows of 64 or 32 elements along m (or n), one row for each k, swizzled as
// bulk.hpp says. Eight rows are a block, and blocks follow each other. What is beyond a row's
// elements along n is in another such panel. Panels may overlap, and begin at any row: swizzles are
// functions of the address in shared memory, for copies and products alike (seen on an H100).
#pragma once

#include "cuda/kernels/bulk.hpp"
#include "cuda/kernels/terms.hpp"

namespace convgrad::cuda {

inline constexpr int kWarpgroup = 4 * kWarp;  // threads
// Of a cluster, which every device takes (CUDA C++ Programming Guide, "Thread Block Clusters").
inline constexpr std::int64_t kMostBlocks = 8;

// Returns the descriptor of an operand (PTX ISA, "Matrix-descriptor format") whose first row is at
// this address of shared memory; its next panel is panel_bytes behind it. Offsets count 16 bytes:
// of panels in bits 16 to 29, of blocks from 32; bits 62 and 63 are 1 for 128-byte swizzles, or 2.
CONVGRAD_HD constexpr std::uint64_t operand_at(std::uint32_t address, int row_bytes,
                                               int panel_bytes) {
  return static_cast<std::uint64_t>((address & 0x3ffffu) >> 4) |
         static_cast<std::uint64_t>(panel_bytes >> 4) << 16 |
         static_cast<std::uint64_t>(8 * row_bytes >> 4) << 32 |
         std::uint64_t{row_bytes == kRowBytes ? 1u : 2u} << 62;
}

// Returns the operand so many bytes behind another: the address is in the lower bits, and never
// beyond them, as shared memory ends before 2^18.
CONVGRAD_HD constexpr std::uint64_t operand_after(std::uint64_t operand, std::uint32_t bytes) {
  return (operand & 0xffffffff00000000u) | (static_cast<std::uint32_t>(operand) + (bytes >> 4));
}

// What c is before products are added: the sums so far, or nothing. Registers that others than
// products zeroed would keep products from overlapping (ptxas, C7510).
enum class Onto : std::uint8_t { sums, nothing };

// Calls f(a, b, adds) for the instructions of kSteps steps of k, whose operands are a_bytes and
// b_bytes apart, and those of other terms term_bytes: of products kFirst to kEnd - 1 (terms.hpp).
template <int kSteps, Onto kOnto, int kFirst, int kEnd, class F>
CONVGRAD_HD void each_instruction(std::uint64_t a, std::uint32_t a_bytes, std::uint64_t b,
                                  std::uint32_t b_bytes, std::uint32_t term_bytes, F&& f) {
  CONVGRAD_UNROLL
  for (int product = kFirst; product < kEnd; ++product) {
    CONVGRAD_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      f(operand_after(a, dy_term(product) * term_bytes + i * a_bytes),
        operand_after(b, x_term(product) * term_bytes + i * b_bytes),
        kOnto == Onto::sums || product > kFirst || i > 0);
    }
  }
}

// Is m64nNk16 for 16-bit elements, C in float32: N / 2 elements a thread. Each warp has 16 rows, of
// which its lanes have what they have of m16n8k16 (mma.hpp), N / 8 times side by side.
template <typename Scalar, int kColumns>
struct Wgmma16 {
  static constexpr int kM = 64, kN = kColumns, kK = 16, kElementsC = kN / 2;
  using C = float[kElementsC];

  CONVGRAD_HD static void c_place(int thread, int e, int& row, int& column) {
    row = thread / kWarp * 16 + thread % kWarp / 4 + e / 2 % 2 * 8;
    column = e / 4 * 8 + thread % 4 * 2 + e % 2;
  }
  CONVGRAD_HD static double value(std::uint16_t bits) { return convert<float>(Scalar{bits}); }

  // Begins c += A * B, or c = A * B. c's registers belong to the instruction until it has been
  // waited for, which the compiler does not know.
  CONVGRAD_HD static void begin(C& c, std::uint64_t a, std::uint64_t b, bool adds);
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
#define CONVGRAD_WGMMA_32(i) CONVGRAD_WGMMA_16(i), CONVGRAD_WGMMA_16(i + 16)
#define CONVGRAD_WGMMA_48(i) CONVGRAD_WGMMA_32(i), CONVGRAD_WGMMA_16(i + 32)
#define CONVGRAD_WGMMA_64(i) CONVGRAD_WGMMA_32(i), CONVGRAD_WGMMA_32(i + 32)
#define CONVGRAD_WGMMA_96(i) CONVGRAD_WGMMA_64(i), CONVGRAD_WGMMA_32(i + 64)
#define CONVGRAD_NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define CONVGRAD_NAMES_32 \
  CONVGRAD_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define CONVGRAD_NAMES_48 \
  CONVGRAD_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define CONVGRAD_NAMES_64 \
  CONVGRAD_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define CONVGRAD_NAMES_96                                            \
  CONVGRAD_NAMES_64                                                  \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79" \
  ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
// The scales of A and B are 1; so are both "transposes", which means k outside. A, B and ADDS are
// the numbers behind those of the sums.
#define CONVGRAD_WGMMA(SCALAR, TYPE, N, SUMS, A, B, ADDS)                                         \
  template <>                                                                                     \
  CONVGRAD_HD void Wgmma16<SCALAR, N>::begin(C& c, std::uint64_t a, std::uint64_t b, bool adds) { \
    asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %" #ADDS                                       \
                 ", 0;\n"                                                                         \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                  \
                 " {" CONVGRAD_NAMES_##SUMS "}, %" #A ", %" #B ", p, 1, 1, 1, 1;\n}"              \
                 : CONVGRAD_WGMMA_##SUMS(0)                                                       \
                 : "l"(a), "l"(b), "r"(adds ? 1 : 0));                                            \
  }
#define CONVGRAD_WGMMA_BOTH(...)              \
  CONVGRAD_WGMMA(Float16, "f16", __VA_ARGS__) \
  CONVGRAD_WGMMA(BFloat16, "bf16", __VA_ARGS__)
CONVGRAD_WGMMA_BOTH(32, 16, 16, 17, 18)
CONVGRAD_WGMMA_BOTH(64, 32, 32, 33, 34)
CONVGRAD_WGMMA_BOTH(96, 48, 48, 49, 50)
CONVGRAD_WGMMA_BOTH(128, 64, 64, 65, 66)
CONVGRAD_WGMMA_BOTH(192, 96, 96, 97, 98)
#endif

}  // namespace convgrad::cuda
