// isa_portable.cpp - packers and register tiles for SSE2, which every x86-64 processor has (and
// any vector unit elsewhere).
#include "cpu/isa/isa_functions.hpp"

namespace convgrad {
namespace {
struct Portable {
  static constexpr int kVectorBytes = 16;
  // 6 x 2 sums: with two vectors of dy and a broadcast x, 15 of 16 registers.
  static constexpr int kMaxRows = 6, kWideRows = 0;
  static constexpr int kStreamVectors = 2;
  static constexpr int kMaxSums = 12;
  static constexpr int kGroupSums = 0;  // lanes cannot be permuted at will
  static constexpr double kPeak = 3e9;
  static constexpr bool kHasMasks = false, kConvertsFloat16 = false;
};
}  // namespace

constinit const IsaSet kPortableIsa = isa_functions<Portable>("portable");

}  // namespace convgrad
