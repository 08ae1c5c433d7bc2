// isa_exponent_range.hpp - the least and the greatest exponent of values: the function behind
// ExponentRangeFunction (exponent_range.hpp). In vectors, since it reads all of x and dy
// once more, before anything else has brought them into a cache.
#pragma once

#include "cpu/isa/isa_load.hpp"

namespace convgrad {

template <typename Set, typename Bits>
struct MagnitudeRange {
  using Vector = typename VectorOf<Set, Bits>::Type;
  static constexpr long kLanes = VectorOf<Set, Bits>::kLanes;
  static constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  // least is of magnitudes less one: 0, which must not count, becomes the greatest number.
  Vector least = Vector{} - 1, most = {};

  void add(const Bits* values, long count) {
    for (long i = 0; i + kLanes <= count; i += kLanes) {
      const Vector magnitude = load<Vector>(values + i) & kMagnitude;
      const Vector less = magnitude - 1;
      least = less < least ? less : least;
      most = magnitude > most ? magnitude : most;
    }
  }
};

// bfloat16 has 7 bits behind its exponent, float16 has 10, float32 23. Only at the end is the
// exponent taken from the magnitude: they rise together.
template <typename Set, typename Bits, int FractionBits>
void exponent_range(const void* values, long count, long pieces, long stride, unsigned* least,
                    unsigned* most) {
  constexpr Bits kNone = static_cast<Bits>(~Bits{0});
  Bits smallest = kNone, largest = 0;  // the smallest less one
  const auto add = [&](Bits less, Bits magnitude) {
    smallest = less < smallest ? less : smallest;
    largest = magnitude > largest ? magnitude : largest;
  };
  MagnitudeRange<Set, Bits> all;
  const char* piece = static_cast<const char*>(values);
  for (long p = 0; p < pieces; ++p, piece += stride) {
    const Bits* bits = reinterpret_cast<const Bits*>(piece);
    all.add(bits, count);
    // What fills no vector: all of a piece where channels are few.
    for (long i = count / all.kLanes * all.kLanes; i < count; ++i) {
      const Bits magnitude = bits[i] & all.kMagnitude;
      add(static_cast<Bits>(magnitude - 1), magnitude);
    }
  }
  for (long i = 0; i < all.kLanes; ++i) add(all.least[i], all.most[i]);
  const unsigned low = smallest == kNone ? *least : (smallest + 1u) >> FractionBits;
  const unsigned high = largest >> FractionBits;
  *least = low < *least ? low : *least;
  *most = high > *most ? high : *most;
}

}  // namespace convgrad
