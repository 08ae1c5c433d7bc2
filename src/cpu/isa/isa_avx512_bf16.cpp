// isa_avx512_bf16.cpp - packers and the register tile for AVX512-BF16, whose vdpbf16ps adds the
// products of a pair of bfloat16 to a float. It reads subnormal numbers as zeros and flushes
// subnormal results, so its callers look at the range of the data first.
#include <immintrin.h>

#include "cpu/isa/isa.hpp"

namespace convgrad {
namespace {

constexpr int kVectorBytes = 64;
constexpr int kMaxM = 14;

#include "cpu/isa/isa_load.inc"
#include "cpu/isa/isa_multiply.inc"
#include "cpu/isa/isa_pack.inc"
#include "cpu/isa/isa_survey.inc"

void pack_pairs(const PackSource& source, long pixels, long channels, const PanelShape& shape,
                BrainPair* panel) {
  pack_as<BrainBits>(source, pixels, channels, shape, panel);
}

bool finite_pairs(const BrainPair* values, long count) {
  Bits32 any = 0;
  for (long i = 0; i < count; ++i) {
    const Bits32 bits = values[i].bits;
    any |= (bits & 0x7f80u) == 0x7f80u || (bits & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
  }
  return any == 0;
}

}  // namespace

extern const OuterProductIsa<BrainPair> kAvx512Bf16Isa = {
    kMaxM,     2 * VectorOf<float>::kLanes,    pack_pairs, finite_pairs,
    survey<7>, multiply_rows<kMaxM, BrainPair>};

}  // namespace convgrad
