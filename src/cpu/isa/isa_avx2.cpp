// isa_avx2.cpp - packers and register tiles for AVX2 and FMA.
namespace convgrad {
namespace {
constexpr int kVectorBytes = 32;
constexpr int kMaxM = 6;
constexpr int kStreamVectors = 2;
constexpr int kMaxSums = 12;  // in registers, of streaming
}  // namespace
}  // namespace convgrad
#define CONVGRAD_ISA_SET kAvx2Isa
#include "cpu/isa/isa_kernels.inc"
