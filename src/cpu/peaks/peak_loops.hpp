// peak_loops.hpp - multiply-adds and reads, written with GCC's vector types. Each peak_*.cpp makes
// a table of them, compiled with the flags of its instruction set; Set is local to the source, and
// with it all functions (isa_load.hpp says why).
#pragma once

#include "cpu/peaks/peak_isa.hpp"

namespace convgrad {

// Chains that do not wait for each other: 2 units with a latency of 4 need 8, and 12 fit in the 16
// registers of AVX2. Processors with NEON have up to 4 such units, and 32 registers.
#ifdef __aarch64__
inline constexpr int kPeakChains = 24;
#else
inline constexpr int kPeakChains = 12;
#endif

template <typename Set, typename Scalar>
Scalar multiply_add(long rounds, Scalar factor, Scalar term) {
  typedef Scalar Vector __attribute__((vector_size(Set::kVectorBytes)));
  const Vector factors = Vector{} + factor, terms = Vector{} + term;
  Vector chain[kPeakChains];
  // Different, or the compiler computes one for all.
  for (int i = 0; i < kPeakChains; ++i) chain[i] = Vector{} + static_cast<Scalar>(i);
  for (long round = 0; round < rounds; ++round) {
    for (int i = 0; i < kPeakChains; ++i) chain[i] = chain[i] * factors + terms;
  }
  Vector sum = {};
  for (int i = 0; i < kPeakChains; ++i) sum += chain[i];
  Scalar total = 0;
  for (unsigned j = 0; j < sizeof(Vector) / sizeof(Scalar); ++j) total += sum[j];
  return total;
}

template <typename Set>
struct WordsOf {  // a typedef in read_words() itself GCC 12 takes for a single word
  typedef unsigned long Type __attribute__((vector_size(Set::kVectorBytes), may_alias));
};

// Sums that do not wait for each other, and are needed: reads whose result nobody sees are left
// out.
template <typename Set>
unsigned long read_words(const void* data, long bytes) {
  using Words = typename WordsOf<Set>::Type;
  constexpr int kUnrolled = 8;
  const Words* words = static_cast<const Words*>(data);
  const long count = bytes / Set::kVectorBytes;
  Words sums[kUnrolled] = {};
  for (long i = 0; i + kUnrolled <= count; i += kUnrolled) {
    for (int j = 0; j < kUnrolled; ++j) sums[j] += words[i + j];
  }
  unsigned long total = 0;
  for (int j = 0; j < kUnrolled; ++j) {
    for (unsigned lane = 0; lane < Set::kVectorBytes / sizeof(unsigned long); ++lane) {
      total += sums[j][lane];
    }
  }
  return total;
}

template <typename Set>
constexpr PeakIsa peak_loops(const char* name) {
  const double round_bytes = 2.0 * kPeakChains * Set::kVectorBytes;  // multiplied, and added
  return {name,
          round_bytes / 4,
          round_bytes / 8,
          multiply_add<Set, float>,
          multiply_add<Set, double>,
          read_words<Set>};
}

}  // namespace convgrad
