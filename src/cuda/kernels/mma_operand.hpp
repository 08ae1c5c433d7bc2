// mma_operand.hpp - the dtypes of mma_gemm.hpp: what is in shared memory, and how it becomes the
// fragments of matrix instructions.
#pragma once

#include "cuda/kernels/mma.hpp"

namespace convgrad::cuda {

// kM x kN are the sums of a warp. kDepth is the pixels of a stage: enough instructions between two
// barriers, few enough that several stages fit shared memory. kPad is added to rows of shared
// memory where lanes read single elements: lanes that differ in k must meet other banks than lanes
// that differ in the channel. There are 32 banks of 4 bytes.

// float16 and bfloat16 by ldmatrix, which a swizzle serves (mma_tile.hpp). For 16 pixels a warp
// reads kM + kN channels of shared memory, 32 bytes each, and multiplies for kM * kN / 64 cycles of
// a multiprocessor that reads 128 bytes in each: 64 x 32 takes 24 cycles of reading for 32 of
// multiplying, 32 x 32 would take 16 for 16. The 64 sums and their pairs are 192 registers of 255.
template <typename Scalar>
struct Mma16Operand {
  using Element = Scalar;
  using Op = Mma16<Scalar>;
  using Acc = float;
  static constexpr int kM = 64, kN = 32, kDepth = 32, kPad = 0;
  static constexpr bool kByMatrix = true;
};
struct MmaF64Operand {
  using Element = double;
  using Op = MmaF64;
  using Acc = double;
  // Four values of k, 8 banks (32 bytes) apart, by four channels in each half of a warp.
  static constexpr int kM = 32, kN = 32, kDepth = 16, kPad = 4;
  static constexpr bool kByMatrix = false;
  template <class Fragment>
  CONVGRAD_HD static void set(Fragment& fragment, int e, double value) {
    fragment.value[e] = value;
  }
};
struct MmaTf32Operand {
  using Element = float;
  using Op = MmaTf32;
  using Acc = float;
  // Four values of k, 8 banks apart, by eight channels.
  static constexpr int kM = 32, kN = 32, kDepth = 16, kPad = 8;
  static constexpr bool kByMatrix = false;
  template <class Fragment>
  CONVGRAD_HD static void set(Fragment& fragment, int e, float value) {
    fragment.word[e] = tf32_nearest(value);
  }
};

}  // namespace convgrad::cuda
