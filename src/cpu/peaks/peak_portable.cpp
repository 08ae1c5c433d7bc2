// peak_portable.cpp - the loops of peaks.cpp for any processor: a multiplication and an addition.
namespace convgrad {
namespace {
constexpr int kVectorBytes = 16;
}  // namespace
}  // namespace convgrad
#define CONVGRAD_PEAK_SET kPeakPortable
#define CONVGRAD_PEAK_NAME "portable"
#include "cpu/peaks/peak_isa.inc"
