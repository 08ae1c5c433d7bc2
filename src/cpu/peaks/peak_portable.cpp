// peak_portable.cpp - the loops of peaks.cpp for any processor: a multiplication and an addition.
#include "cpu/peaks/peak_loops.hpp"

namespace convgrad {
namespace {
struct Portable {
  static constexpr int kVectorBytes = 16;
};
}  // namespace

constinit const PeakIsa kPeakPortable = peak_loops<Portable>("portable");

}  // namespace convgrad
