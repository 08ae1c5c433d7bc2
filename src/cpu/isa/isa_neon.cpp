// isa_neon.cpp - packers and register tiles for NEON, which every aarch64 processor has. It
// multiplies and adds in one step, as AVX2 does: the sums are AVX2's, bit for bit.
#include <arm_neon.h>

#include "cpu/isa/isa_functions.hpp"

namespace convgrad {
namespace {
struct Neon {
  static constexpr int kVectorBytes = 16;
  // 12 x 2 sums, two vectors of dy and a few values of x on their way, of 32 registers. As many
  // sums also keep 4 units with a latency of 4 cycles busy.
  static constexpr int kMaxRows = 12, kWideRows = 0;
  // 24 sums and up to 4 vectors of dy leave 4 registers for x.
  static constexpr int kStreamVectors = 4;
  static constexpr int kMaxSums = 24;
  static constexpr int kGroupSums = 0;  // 4 lanes have too few output channels to pick from
  static constexpr double kPeak = 5e9;
  static constexpr bool kHasMasks = false, kConvertsFloat16 = true;

  typedef std::uint16_t Bits16s __attribute__((vector_size(kVectorBytes / 2)));
  static uint32x4_t widened(Bits16s bits) { return vmovl_u16((uint16x4_t)bits); }
  static float32x4_t from_float16(Bits16s bits) { return vcvt_f32_f16((float16x4_t)bits); }
};
}  // namespace

constinit const IsaSet kNeonIsa = isa_functions<Neon>("neon");

}  // namespace convgrad
