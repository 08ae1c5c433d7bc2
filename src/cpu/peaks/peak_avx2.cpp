// peak_avx2.cpp - the loops of peaks.cpp for AVX2 and FMA.
#include "cpu/peaks/peak_loops.hpp"

namespace convgrad {
namespace {
struct Avx2 {
  static constexpr int kVectorBytes = 32;
};
}  // namespace

constinit const PeakIsa kPeakAvx2 = peak_loops<Avx2>("avx2");

}  // namespace convgrad
