// mma.hpp - the matrix instructions of tensor cores, and Fma in their place: what they compute, and
// which lane of a warp holds which element (PTX ISA, "Matrix multiply-accumulate operation using
// mma instruction").
//
// Each Op multiplies A (kM x kK) by B (kK x kN) and adds to C. a_place(lane, e, row, k) says where
// element e of a lane's fragment of A is, and likewise for B and C; a_value(fragment, e) is its
// value. Tests compute products from these alone; devices use multiply(). The formulas are those of
// the manual's figures ("Matrix Fragments for mma.m16n8k16" and so on): groupID is lane / 4,
// threadID_in_group is lane % 4.
//
// In all of them k is the number of a pixel, so that a fragment of A is a part of x and one of B a
// part of dy, both as [channel][pixel]: the transposes of what shared memory holds.
#pragma once

#include "cuda/kernels/host_device.hpp"

namespace convgrad::cuda {

// Fragments are registers with two 16-bit elements in each.
template <int kCount>
struct Words {
  std::uint32_t word[kCount];
};

// Fragments of other elements.
template <typename Acc, int kCount>
struct Values {
  Acc value[kCount];
};

// Both are m16n8k16. C is the same in all shapes: two neighbouring columns of row groupID, and of
// the row 8 below it where there are 16.
struct MmaSums {
  static constexpr bool kOfTensorCores = true;
  static constexpr int kM = 16, kN = 8, kK = 16;
  static constexpr int kElementsA = 8, kElementsB = 4, kElementsC = 4;
  CONVGRAD_HD static void c_place(int lane, int e, int& row, int& column) {
    row = lane / 4 + e / 2 * 8;
    column = lane % 4 * 2 + e % 2;
  }
};

// Is m16n8k16 for 16-bit elements, C in float32: products of 16-bit values are exact in it.
template <typename Scalar>
struct Mma16 : MmaSums {
  using A = Words<4>;
  using B = Words<2>;
  using C = float[kElementsC];

  CONVGRAD_HD static void a_place(int lane, int e, int& row, int& k) {
    row = lane / 4 + e / 2 % 2 * 8;
    k = lane % 4 * 2 + e % 2 + e / 4 * 8;
  }
  CONVGRAD_HD static void b_place(int lane, int e, int& k, int& column) {
    k = lane % 4 * 2 + e % 2 + e / 2 * 8;
    column = lane / 4;
  }
  CONVGRAD_HD static double value(std::uint32_t word, int half) {
    return convert<float>(Scalar{static_cast<std::uint16_t>(word >> (16 * half))});
  }
  CONVGRAD_HD static double a_value(const A& a, int e) { return value(a.word[e / 2], e % 2); }
  CONVGRAD_HD static double b_value(const B& b, int e) { return value(b.word[e / 2], e % 2); }

  CONVGRAD_HD static void multiply(C& c, const A& a, const B& b);
};

// Is m16n8k16 for float64, which compute capability 9.0 has. Before it there is m8n8k4 alone; its
// fragments are parts of these, so eight of them take its place. Either adds the products one by
// one with a fused multiply-add each, k upwards (Xie et al., MMA-Sim, arXiv:2511.10909, measured
// that; the PTX manual says only that each is as exact as fma), so the bits are the same.
struct MmaF64 : MmaSums {
  using A = Values<double, kElementsA>;
  using B = Values<double, kElementsB>;
  using C = double[kElementsC];

  CONVGRAD_HD static void a_place(int lane, int e, int& row, int& k) {
    row = lane / 4 + e % 2 * 8;
    k = lane % 4 + e / 2 * 4;
  }
  CONVGRAD_HD static void b_place(int lane, int e, int& k, int& column) {
    k = lane % 4 + e * 4;
    column = lane / 4;
  }
  CONVGRAD_HD static double a_value(const A& a, int e) { return a.value[e]; }
  CONVGRAD_HD static double b_value(const B& b, int e) { return b.value[e]; }

  CONVGRAD_HD static void multiply(C& c, const A& a, const B& b);
};

// Is no matrix instruction: a thread multiplies four values of A by four of B, of one k, and lanes
// are 8 by 4. It shares nothing with other lanes.
template <typename Acc>
struct Fma {
  static constexpr bool kOfTensorCores = false;
  static constexpr int kM = 32, kN = 16, kK = 1;
  static constexpr int kElementsA = 4, kElementsB = 4, kElementsC = 16;
  using A = Values<Acc, kElementsA>;
  using B = A;
  using C = Acc[kElementsC];

  CONVGRAD_HD static void a_place(int lane, int e, int& row, int& k) {
    row = lane % 8 * 4 + e;
    k = 0;
  }
  CONVGRAD_HD static void b_place(int lane, int e, int& k, int& column) {
    k = 0;
    column = lane / 8 * 4 + e;
  }
  CONVGRAD_HD static void c_place(int lane, int e, int& row, int& column) {
    row = lane % 8 * 4 + e / 4;
    column = lane / 8 * 4 + e % 4;
  }
  CONVGRAD_HD static void multiply(C& c, const A& a, const B& b) {
    CONVGRAD_UNROLL
    for (int e = 0; e < kElementsC; ++e) c[e] += a.value[e / 4] * b.value[e % 4];
  }
};

#if defined(__CUDACC__)
#define CONVGRAD_MMA(INSTRUCTION)                                                                \
  asm volatile(INSTRUCTION " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"              \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                  \
               : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), \
                 "r"(b.word[1]))

template <>
CONVGRAD_HD void Mma16<Float16>::multiply(C& c, const A& a, const B& b) {
  CONVGRAD_MMA("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32");
}
template <>
CONVGRAD_HD void Mma16<BFloat16>::multiply(C& c, const A& a, const B& b) {
  CONVGRAD_MMA("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
}
CONVGRAD_HD void MmaF64::multiply(C& c, const A& a, const B& b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, "
      "{%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, {%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a.value[0]), "d"(a.value[1]), "d"(a.value[2]), "d"(a.value[3]), "d"(a.value[4]),
        "d"(a.value[5]), "d"(a.value[6]), "d"(a.value[7]), "d"(b.value[0]), "d"(b.value[1]),
        "d"(b.value[2]), "d"(b.value[3]));
#else
  CONVGRAD_UNROLL
  for (int e = 0; e < kElementsA; ++e) {  // rows 0 to 7 and 8 to 15 of four values of k
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(c[e % 2 * 2]), "+d"(c[e % 2 * 2 + 1])
                 : "d"(a.value[e]), "d"(b.value[e / 2]));
  }
#endif
}
#endif

}  // namespace convgrad::cuda
