// avx512.hpp - does with AVX-512 what GCC's vector types cannot say. Only sources that are compiled
// with its flags may include it; isa_load.hpp has the rules for them.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace convgrad {

struct Avx512 {
  static constexpr int kVectorBytes = 64;
  // 14 x 2 sums, the two vectors of dy that they share and a broadcast x leave one of 32 registers.
  static constexpr int kMaxRows = 14, kWideRows = 0;
  static constexpr int kStreamVectors = 4;
  // Streaming has 28 sums, and dy in up to 4 registers; x is an operand in memory.
  static constexpr int kMaxSums = 28;
  // With groups up to 4 vectors of picked lanes and their indices are in registers, too.
  static constexpr int kGroupSums = 24, kWideOutputs = 4;
  static constexpr double kPeak = 3.5e9;
  static constexpr bool kHasMasks = true, kConvertsFloat16 = true;

  typedef std::uint16_t Bits16s __attribute__((vector_size(kVectorBytes / 2)));

  // Loads the first count values and zeros; what is behind is not read, and may be no memory.
  [[gnu::always_inline]] static __m512 first(const float* from, long count) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask(count)), from);
  }
  [[gnu::always_inline]] static __m512d first(const double* from, long count) {
    return _mm512_maskz_loadu_pd(static_cast<__mmask8>(mask(count)), from);
  }
  [[gnu::always_inline]] static Bits16s first_bits16(const void* from, long count) {
    return (Bits16s)_mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask(count)), from);
  }

  // Widens in one instruction; GCC 12 converts vectors of integers by halves.
  [[gnu::always_inline]] static __m512i widened(Bits16s bits) {
    return _mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)bits);
  }
  // The mask takes all: GCC 12 warns of the undefined operand of the intrinsic without.
  [[gnu::always_inline]] static __m512 from_float16(Bits16s bits) {
    return _mm512_maskz_cvtph_ps(0xffff, (__m256i)bits);
  }

 private:
  static constexpr std::uint32_t mask(long count) { return (1u << count) - 1; }
};

}  // namespace convgrad
