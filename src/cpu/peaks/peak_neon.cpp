// peak_neon.cpp - the loops of peaks.cpp for NEON.
#include "cpu/peaks/peak_loops.hpp"

namespace convgrad {
namespace {
struct Neon {
  static constexpr int kVectorBytes = 16;
};
}  // namespace

constinit const PeakIsa kPeakNeon = peak_loops<Neon>("neon");

}  // namespace convgrad
