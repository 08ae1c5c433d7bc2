// blas.hpp - the two GEMM calls that kernels make, with 64-bit sizes checked on the way in.
#pragma once

#include <cstdint>

namespace convgrad {

// GEMM sees a row-major matrix so: op(data) with leading dimension ld.
template <typename Acc>
struct GemmOperand {
  const Acc* data = nullptr;
  std::int64_t ld = 0;
  bool transposed = false;
};

// c[m][n] = sum over i < depth of a(m, i) * b(i, n), on one thread; an Error without OpenBLAS.
void gemm(std::int64_t m, std::int64_t n, std::int64_t depth, GemmOperand<float> a,
          GemmOperand<float> b, float* c);
void gemm(std::int64_t m, std::int64_t n, std::int64_t depth, GemmOperand<double> a,
          GemmOperand<double> b, double* c);

// Tells whether OpenBLAS, built with 32-bit sizes, can take a leading dimension.
bool fits_blas(std::int64_t ld);

}  // namespace convgrad
