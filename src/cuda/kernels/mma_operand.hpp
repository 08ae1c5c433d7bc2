// mma_operand.hpp - the dtypes of mma_gemm.hpp: what is in shared memory, and how it becomes the
// fragments of matrix instructions.
#pragma once

#include "cuda/kernels/mma.hpp"

namespace convgrad::cuda {

// How elements in shared memory become fragments. kTerms of them stand for one element. kDepth is
// the pixels of a stage: enough instructions between two barriers, few enough that several stages
// fit shared memory. kPad is added to its rows where lanes read single elements: lanes that differ
// in k must meet other banks than lanes that differ in the channel. There are 32 banks of 4 bytes.
template <typename Scalar>
struct Mma16Operand {  // float16 and bfloat16 by ldmatrix, which a swizzle serves (mma_gemm.hpp)
  using Element = Scalar;
  using Op = Mma16<Scalar>;
  using Acc = float;
  static constexpr int kDepth = 32, kTerms = 1, kPad = 0;
  static constexpr bool kByMatrix = true, kSplit = false;
};
struct MmaF64Operand {
  using Element = double;
  using Op = MmaF64;
  using Acc = double;
  // Four values of k, 8 banks (32 bytes) apart, by four channels in each half of a warp.
  static constexpr int kDepth = 16, kTerms = 1, kPad = 4;
  static constexpr bool kByMatrix = false, kSplit = false;
  CONVGRAD_HD static void set(MmaF64::A (&fragment)[1], int, double value) {
    fragment[0].value = value;
  }
};
struct MmaTf32Operand {
  using Element = float;
  using Op = MmaTf32;
  using Acc = float;
  // Four values of k, 8 banks apart, by eight channels.
  static constexpr int kDepth = 16, kTerms = 1, kPad = 8;
  static constexpr bool kByMatrix = false, kSplit = false;
  template <class Fragment>
  CONVGRAD_HD static void set(Fragment (&fragment)[1], int e, float value) {
    fragment[0].word[e] = tf32_nearest(value);
  }
};
// float32 as three bfloat16 terms. Of the nine products of two values the six largest are added;
// what is left out is at most 2^-24 of the product. Tensor cores cut sums where additions round
// them, a little with every instruction: so six of them begin at zero, and are added to the sums by
// float32 additions (docs/cuda.md, "Sums").
struct MmaSplitOperand {
  using Element = float;
  using Op = Mma16<BFloat16>;
  using Acc = float;
  // Four values of k, every other one, so 2 * 4 banks apart, by eight channels.
  static constexpr int kDepth = 16, kTerms = 3, kPad = 4;
  static constexpr bool kByMatrix = false, kSplit = true;
  template <class Fragment>
  CONVGRAD_HD static void set(Fragment (&fragment)[3], int e, float value) {
    std::uint16_t terms[3];
    split_bf16(value, terms);
    CONVGRAD_UNROLL
    for (int t = 0; t < 3; ++t) {
      const std::uint32_t word = terms[t];
      std::uint32_t& to = fragment[t].word[e / 2];
      to = e % 2 == 0 ? word : to | word << 16;
    }
  }
};

// The range of the values that have been split, as bits: of float32, smaller bits are smaller
// magnitudes. Every thread keeps that of the values it split since the chunk began.
struct SplitRange {
  std::uint32_t least_x, least_dy;  // the smallest magnitudes but 0, less one; 2^32 - 1 if none
  std::uint32_t most;               // the largest magnitude of both

  CONVGRAD_HD void clear() {
    least_x = least_dy = 0xffffffffu;
    most = 0;
  }
  // Zero becomes the largest number: it has no exponent to lose.
  CONVGRAD_HD void note(float value, std::uint32_t& lowest) {
    const std::uint32_t bits = float_bits(value) & 0x7fffffffu;
    lowest = least(lowest, bits - 1);
    most = bits > most ? bits : most;
  }
  // Whether three terms might not be exact: 24 bits below the smallest values, and below their
  // products, must not underflow, and the largest must not overflow when it is rounded. The third
  // term's last bit is 2^-24 of the value: 2^-102 is the smallest whose 24 bits are normal numbers
  // (2^-126), and biased exponents have 127 added.
  CONVGRAD_HD bool exceeded() const {
    constexpr std::uint32_t kLowest = 127 - 102, kLargest = 0x7f000000u;
    const std::uint32_t x = least_x >> 23, dy = least_dy >> 23;
    return most >= kLargest || x < kLowest || dy < kLowest || x + dy < kLowest + 127;
  }
};

}  // namespace convgrad::cuda
