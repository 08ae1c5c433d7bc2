// isa_portable.cpp - packers and register tiles for SSE2, which every x86-64 processor has (and
// any vector unit elsewhere).
namespace convgrad {
namespace {
constexpr int kVectorBytes = 16;
constexpr int kMaxM = 6;
constexpr int kStreamVectors = 2;
constexpr int kMaxSums = 12;  // in registers, of streaming
}  // namespace
}  // namespace convgrad
#define CONVGRAD_ISA_SET kPortableIsa
#include "cpu/isa/isa_kernels.inc"
