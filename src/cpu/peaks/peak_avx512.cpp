// peak_avx512.cpp - the loops of peaks.cpp for AVX-512F.
namespace convgrad {
namespace {
constexpr int kVectorBytes = 64;
}  // namespace
}  // namespace convgrad
#define CONVGRAD_PEAK_SET kPeakAvx512
#define CONVGRAD_PEAK_NAME "avx512"
#include "cpu/peaks/peak_isa.inc"
