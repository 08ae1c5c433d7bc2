// amx_vectors_portable.cpp - packing for AMX on any processor, to test it there.
#pragma GCC diagnostic ignored "-Wpsabi"  // no vector leaves this file
#include "cpu/amx/amx_vectors.hpp"

namespace convgrad {
namespace {
struct Portable {
  static constexpr int kVectorBytes = 64;
  static constexpr bool kHasMasks = false, kConvertsFloat16 = false, kAddsSquares = false;
};
}  // namespace

constinit const AmxVectors kPortableAmxVectors = amx_vectors<Portable>();

}  // namespace convgrad
