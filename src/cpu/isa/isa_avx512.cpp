// isa_avx512.cpp - packers and register tiles for AVX-512F.
namespace convgrad {
namespace {
constexpr int kVectorBytes = 64;
constexpr int kMaxM = 14;
constexpr int kStreamVectors = 4;
constexpr int kMaxSums = 28;  // in registers, of streaming
}  // namespace
}  // namespace convgrad
#define CONVGRAD_ISA_SET kAvx512Isa
#include "cpu/isa/isa_kernels.inc"
