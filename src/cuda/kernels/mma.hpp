// mma.hpp - the matrix instructions of tensor cores: what they compute, and which lane of a warp
// holds which element (PTX ISA, "Matrix multiply-accumulate operation using mma instruction").
//
// Each Op multiplies A (kM x kK) by B (kK x kN) and adds to C. a_place(lane, e, row, k) says where
// element e of a lane's fragment of A lies, and likewise for B and C; a_value(fragment, e) is its
// value. Tests compute products from these alone; devices use multiply().
#pragma once

#include "cuda/kernels/host_device.hpp"

namespace convgrad::cuda {

inline constexpr int kWarp = 32;

// Fragments of registers, two 16-bit elements in each.
template <int kCount>
struct Words {
  std::uint32_t word[kCount];
};
template <typename Value, int kCount>
struct Values {
  Value value[kCount];
};

// m16n8k16 for 16-bit elements, C in float32.
template <typename Scalar>
struct Mma16 {
  static constexpr int kM = 16, kN = 8, kK = 16;
  static constexpr int kElementsA = 8, kElementsB = 4, kElementsC = 4;
  using A = Words<4>;
  using B = Words<2>;
  using C = Values<float, 4>;

  CONVGRAD_HD static void a_place(int lane, int e, int& row, int& k) {
    row = lane / 4 + e / 2 % 2 * 8;
    k = lane % 4 * 2 + e % 2 + e / 4 * 8;
  }
  CONVGRAD_HD static void b_place(int lane, int e, int& k, int& column) {
    k = lane % 4 * 2 + e % 2 + e / 2 * 8;
    column = lane / 4;
  }
  CONVGRAD_HD static void c_place(int lane, int e, int& row, int& column) {
    row = lane / 4 + e / 2 * 8;
    column = lane % 4 * 2 + e % 2;
  }
  static double value(std::uint32_t word, int half) {
    return convert<float>(Scalar{static_cast<std::uint16_t>(word >> (16 * half))});
  }
  static double a_value(const A& a, int e) { return value(a.word[e / 2], e % 2); }
  static double b_value(const B& b, int e) { return value(b.word[e / 2], e % 2); }

  CONVGRAD_HD static void multiply(C& c, const A& a, const B& b);
};

// m16n8k8 for float32 of which the upper 19 bits are read, C in float32.
struct MmaTf32 {
  static constexpr int kM = 16, kN = 8, kK = 8;
  static constexpr int kElementsA = 4, kElementsB = 2, kElementsC = 4;
  using A = Words<4>;
  using B = Words<2>;
  using C = Values<float, 4>;

  CONVGRAD_HD static void a_place(int lane, int e, int& row, int& k) {
    row = lane / 4 + e % 2 * 8;
    k = lane % 4 + e / 2 * 4;
  }
  CONVGRAD_HD static void b_place(int lane, int e, int& k, int& column) {
    k = lane % 4 + e * 4;
    column = lane / 4;
  }
  CONVGRAD_HD static void c_place(int lane, int e, int& row, int& column) {
    row = lane / 4 + e / 2 * 8;
    column = lane % 4 * 2 + e % 2;
  }
  static double a_value(const A& a, int e) { return bits_float(a.word[e] & 0xffffe000u); }
  static double b_value(const B& b, int e) { return bits_float(b.word[e] & 0xffffe000u); }

  CONVGRAD_HD static void multiply(C& c, const A& a, const B& b);
};

// m8n8k4 for float64.
struct MmaF64 {
  static constexpr int kM = 8, kN = 8, kK = 4;
  static constexpr int kElementsA = 1, kElementsB = 1, kElementsC = 2;
  using A = Values<double, 1>;
  using B = Values<double, 1>;
  using C = Values<double, 2>;

  CONVGRAD_HD static void a_place(int lane, int, int& row, int& k) {
    row = lane / 4;
    k = lane % 4;
  }
  CONVGRAD_HD static void b_place(int lane, int, int& k, int& column) {
    k = lane % 4;
    column = lane / 4;
  }
  CONVGRAD_HD static void c_place(int lane, int e, int& row, int& column) {
    row = lane / 4;
    column = lane % 4 * 2 + e;
  }
  static double a_value(const A& a, int) { return a.value[0]; }
  static double b_value(const B& b, int) { return b.value[0]; }

  CONVGRAD_HD static void multiply(C& c, const A& a, const B& b);
};

// value rounded to bfloat16, ties to even; finite values only.
CONVGRAD_HD std::uint16_t bf16_nearest(float value) {
  const std::uint32_t bits = float_bits(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
// value = the sum of three bfloat16, exactly, where none of them underflows: each has 8 bits, and
// what is left after a rounding has the sign's bit more.
CONVGRAD_HD void split_bf16(float value, std::uint16_t terms[3]) {
  CONVGRAD_UNROLL
  for (int i = 0; i < 3; ++i) {
    terms[i] = bf16_nearest(value);
    value -= bits_float(static_cast<std::uint32_t>(terms[i]) << 16);
  }
}
// value rounded to the 10 stored bits of TF32, ties away from zero, as cvt.rna.tf32 does.
CONVGRAD_HD std::uint32_t tf32_nearest(float value) {
  const std::uint32_t bits = float_bits(value);
  return is_finite(value) ? (bits + 0x1000u) & 0xffffe000u : bits;
}

#if defined(__CUDACC__)
// On a device that has them; code for others is compiled, never run.
template <>
CONVGRAD_HD void Mma16<Float16>::multiply([[maybe_unused]] C& c, [[maybe_unused]] const A& a,
                                          [[maybe_unused]] const B& b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c.value[0]), "+f"(c.value[1]), "+f"(c.value[2]), "+f"(c.value[3])
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]),
        "r"(b.word[1]));
#endif
}
template <>
CONVGRAD_HD void Mma16<BFloat16>::multiply([[maybe_unused]] C& c, [[maybe_unused]] const A& a,
                                           [[maybe_unused]] const B& b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c.value[0]), "+f"(c.value[1]), "+f"(c.value[2]), "+f"(c.value[3])
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]),
        "r"(b.word[1]));
#endif
}
CONVGRAD_HD void MmaTf32::multiply([[maybe_unused]] C& c, [[maybe_unused]] const A& a,
                                   [[maybe_unused]] const B& b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c.value[0]), "+f"(c.value[1]), "+f"(c.value[2]), "+f"(c.value[3])
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]),
        "r"(b.word[1]));
#endif
}
CONVGRAD_HD void MmaF64::multiply([[maybe_unused]] C& c, [[maybe_unused]] const A& a,
                                  [[maybe_unused]] const B& b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
               : "+d"(c.value[0]), "+d"(c.value[1])
               : "d"(a.value[0]), "d"(b.value[0]));
#endif
}
#endif

}  // namespace convgrad::cuda
