// outer_product_avx512.cpp - the register tile for AVX-512F.
namespace convgrad {
namespace {
constexpr int kVectorBytes = 64;
constexpr int kMaxM = 14;
constexpr int kStreamVectors = 4;
constexpr int kMaxTaps = 6;
}  // namespace
}  // namespace convgrad
#define CONVGRAD_OUTER_PRODUCT_SET kOuterProductAvx512
#include "cpu/outer_product_isa.inc"
