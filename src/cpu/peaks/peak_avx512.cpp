// peak_avx512.cpp - the loops of peaks.cpp for AVX-512.
#include "cpu/peaks/peak_loops.hpp"

namespace convgrad {
namespace {
struct Avx512 {
  static constexpr int kVectorBytes = 64;
};
}  // namespace

constinit const PeakIsa kPeakAvx512 = peak_loops<Avx512>("avx512");

}  // namespace convgrad
