// vectors.cpp - packs for AMX on any processor.
#pragma GCC diagnostic ignored "-Wpsabi"  // no vector leaves this file
#include "cpu/amx/amx_vectors.hpp"
#include "support/emulated_amx/emulated_amx.hpp"

namespace convgrad::testing {
namespace {
struct Portable {
  static constexpr int kVectorBytes = 64;
  static constexpr bool kHasMasks = false, kConvertsFloat16 = false, kAddsSquares = false;
};
}  // namespace

constinit const AmxVectors kPortableAmxVectors = amx_vectors<Portable>();

}  // namespace convgrad::testing
