// isa_avx2.cpp - packers and register tiles for AVX2, FMA and F16C.
#include <immintrin.h>

#include "cpu/isa/isa_functions.hpp"

namespace convgrad {
namespace {
struct Avx2 {
  static constexpr int kVectorBytes = 32;
  // 6 x 2 sums: with two vectors of dy and a broadcast x, 15 of 16 registers; 4 x 3 sums take all
  // of them. 12 sums are more than the 8 that two units with a latency of 4 cycles keep busy.
  static constexpr int kMaxRows = 6, kWideRows = 4;
  static constexpr int kStreamVectors = 2;
  static constexpr int kMaxSums = 12;
  // Lanes picked from two vectors of dy take three instructions and a mask for each output.
  static constexpr int kGroupSums = 12;
  [[maybe_unused]] static constexpr int kWideOutputs = 1;
  static constexpr double kPeak = 5e9;
  static constexpr bool kHasMasks = false, kConvertsFloat16 = true;

  typedef std::uint16_t Bits16s __attribute__((vector_size(kVectorBytes / 2)));
  static __m256i widened(Bits16s bits) { return _mm256_cvtepu16_epi32((__m128i)bits); }
  static __m256 from_float16(Bits16s bits) { return _mm256_cvtph_ps((__m128i)bits); }
};
}  // namespace

constinit const IsaSet kAvx2Isa = isa_functions<Avx2>("avx2");

}  // namespace convgrad
