// outer_product_portable.cpp - the register tile for SSE2, which every x86-64 processor has (and
// any vector unit elsewhere).
namespace convgrad {
namespace {
constexpr int kVectorBytes = 16;
constexpr int kMaxM = 6;
constexpr int kStreamVectors = 2;
constexpr int kMaxTaps = 5;
}  // namespace
}  // namespace convgrad
#define CONVGRAD_OUTER_PRODUCT_SET kOuterProductPortable
#include "cpu/outer_product_isa.inc"
