// peak_avx512_bf16.cpp - vdpbf16ps: 32 bfloat16 products added to 16 floats, by intrinsics, since
// GCC's vector types have no such product.
#include <immintrin.h>

#include "cpu/peaks/peak_isa.hpp"

namespace convgrad {
namespace {

constexpr int kChains = 16;  // that do not wait for each other, of 32 registers

float multiply_add(long rounds) {
  const __m512bh ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));  // 1.0
  __m512 chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = _mm512_set1_ps(static_cast<float>(i));
  for (long round = 0; round < rounds; ++round) {
    for (int i = 0; i < kChains; ++i) chain[i] = _mm512_dpbf16_ps(chain[i], ones, ones);
  }
  __m512 sum = _mm512_setzero_ps();
  for (int i = 0; i < kChains; ++i) sum = _mm512_add_ps(sum, chain[i]);
  return _mm512_cvtss_f32(sum);
}

}  // namespace

const PeakBf16 kPeakAvx512Bf16 = {2.0 * kChains * 32, multiply_add};

}  // namespace convgrad
