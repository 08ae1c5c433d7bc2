// outer_product_avx2.cpp - the register tile for AVX2 and FMA.
namespace convgrad {
namespace {
constexpr int kVectorBytes = 32;
constexpr int kMaxM = 6;
constexpr int kStreamVectors = 2;
constexpr int kMaxTaps = 5;
}  // namespace
}  // namespace convgrad
#define CONVGRAD_OUTER_PRODUCT_SET kOuterProductAvx2
#include "cpu/outer_product_isa.inc"
