// amx_vectors_avx512.cpp - packs for AMX with AVX-512, which every processor with AMX has.
#include "cpu/amx/amx_vectors.hpp"
#include "cpu/isa/avx512.hpp"

namespace convgrad {
namespace {

// GCC 12 converts __m256 in halves where it is told by __builtin_convertvector, and takes what
// intrinsics without a mask leave undefined for a mistake. Stores with a mask take longer, also
// with one that takes all.
template <bool Whole>
void add_half(__m256 half, __mmask8 columns, double* out, bool store) {
  const __m512d before = _mm512_maskz_loadu_pd(store ? 0 : columns, out);
  const __m512d sum = before + _mm512_maskz_cvtps_pd(0xff, half);
  if constexpr (Whole) {
    _mm512_storeu_pd(out, sum);
  } else {
    _mm512_mask_storeu_pd(out, columns, sum);
  }
}
template <bool Whole>
void add_row(__m512 row, __mmask16 columns, double* out, bool store) {
  const __m256 low = _mm512_maskz_extractf32x8_ps(0xff, row, 0),
               high = _mm512_maskz_extractf32x8_ps(0xff, row, 1);
  add_half<Whole>(low, static_cast<__mmask8>(columns), out, store);
  add_half<Whole>(high, static_cast<__mmask8>(columns >> 8), out + 8, store);
}

// Loads columns 0 to 3 of rows 0, 4, 8 and 12.
[[gnu::always_inline]] inline __m512 every_fourth_row(const float* sums) {
  __m512 rows = _mm512_castps128_ps512(_mm_load_ps(sums));
  rows = _mm512_mask_broadcast_f32x4(rows, 0x00f0, _mm_load_ps(sums + 4 * kAmxChannels));
  rows = _mm512_mask_broadcast_f32x4(rows, 0x0f00, _mm_load_ps(sums + 8 * kAmxChannels));
  return _mm512_mask_broadcast_f32x4(rows, 0xf000, _mm_load_ps(sums + 12 * kAmxChannels));
}
__m512d low_pairs(__m512 a, __m512 b) {
  return _mm512_castps_pd(_mm512_maskz_unpacklo_ps(0xffff, a, b));
}
__m512d high_pairs(__m512 a, __m512 b) {
  return _mm512_castps_pd(_mm512_maskz_unpackhi_ps(0xffff, a, b));
}

// Makes rows of columns 0 to 3 of 16 rows. Loads put the quarters of the vectors into their places,
// which leaves two shuffles for each, half of what a transposition of registers takes.
[[gnu::always_inline]] inline void columns_as_rows(const float* sums, __m512 (&row)[4]) {
  const __m512 r0 = every_fourth_row(sums), r1 = every_fourth_row(sums + kAmxChannels),
               r2 = every_fourth_row(sums + 2 * kAmxChannels),
               r3 = every_fourth_row(sums + 3 * kAmxChannels);
  const __m512d a = low_pairs(r0, r1), b = high_pairs(r0, r1), c = low_pairs(r2, r3),
                d = high_pairs(r2, r3);
  row[0] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(0xff, a, c));
  row[1] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(0xff, a, c));
  row[2] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(0xff, b, d));
  row[3] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(0xff, b, d));
}

struct Avx512Amx : Avx512 {
  static constexpr bool kAddsSquares = true;

  static void add_square(const float* sums, bool turned, long c_count, long k_count, double* out,
                         long out_row, bool store) {
    if (c_count == kAmxChannels && k_count == kAmxChannels) {
      add_rows<true>(sums, turned, kAmxChannels, 0xffff, out, out_row, store);
    } else {
      add_rows<false>(sums, turned, c_count, static_cast<__mmask16>((1u << k_count) - 1), out,
                      out_row, store);
    }
  }

 private:
  template <bool Whole>
  [[gnu::always_inline]] static void add_rows(const float* sums, bool turned, long count,
                                              __mmask16 columns, double* out, long out_row,
                                              bool store) {
#pragma GCC unroll 4
    for (long c = 0; c < count; c += 4) {
      __m512 row[4];
      if (turned) {
        for (long i = 0; i < 4; ++i) row[i] = _mm512_load_ps(sums + (c + i) * kAmxChannels);
      } else {
        columns_as_rows(sums + c, row);
      }
#pragma GCC unroll 4
      for (long i = 0; i < 4; ++i) {
        if (Whole || c + i < count) add_row<Whole>(row[i], columns, out + (c + i) * out_row, store);
      }
    }
  }
};

}  // namespace

constinit const AmxVectors kAvx512AmxVectors = amx_vectors<Avx512Amx>();

}  // namespace convgrad
