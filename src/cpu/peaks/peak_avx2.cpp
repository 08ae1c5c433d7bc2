// peak_avx2.cpp - the loops of peaks.cpp for AVX2 and FMA.
namespace convgrad {
namespace {
constexpr int kVectorBytes = 32;
}  // namespace
}  // namespace convgrad
#define CONVGRAD_PEAK_SET kPeakAvx2
#define CONVGRAD_PEAK_NAME "avx2"
#include "cpu/peaks/peak_isa.inc"
