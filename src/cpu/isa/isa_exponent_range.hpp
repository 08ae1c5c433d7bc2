// isa_exponent_range.hpp - the least and the greatest exponent of 16-bit values: the function
// behind ExponentRangeFunction (exponent_range.hpp). In vectors, since it reads all of x and dy
// once more, before anything else has brought them into a cache.
#pragma once

#include "cpu/isa/isa_load.hpp"

namespace convgrad {

template <typename Set>
struct MagnitudeRange {
  using Vector = typename VectorOf<Set, std::uint16_t>::Type;
  static constexpr long kLanes = VectorOf<Set, std::uint16_t>::kLanes;
  // least is of magnitudes less one: 0, which must not count, becomes the greatest number.
  Vector least = Vector{} - 1, most = {};

  void add(const std::uint16_t* values, long count) {
    for (long i = 0; i + kLanes <= count; i += kLanes) {
      const Vector magnitude = load<Vector>(values + i) & 0x7fff;
      const Vector less = magnitude - 1;
      least = less < least ? less : least;
      most = magnitude > most ? magnitude : most;
    }
  }
};

// bfloat16 has 7 bits behind its exponent, float16 has 10. Only at the end is the exponent taken
// from the magnitude: they rise together.
template <typename Set, int FractionBits>
void exponent_range(const void* values, long count, long pieces, long stride, unsigned* least,
                    unsigned* most) {
  using Bits = std::uint16_t;
  Bits smallest = 0xffff, largest = 0;  // the smallest less one
  const auto add = [&](Bits less, Bits magnitude) {
    smallest = less < smallest ? less : smallest;
    largest = magnitude > largest ? magnitude : largest;
  };
  MagnitudeRange<Set> all;
  const char* piece = static_cast<const char*>(values);
  for (long p = 0; p < pieces; ++p, piece += stride) {
    const Bits* bits = reinterpret_cast<const Bits*>(piece);
    all.add(bits, count);
    // What fills no vector: all of a piece where channels are few.
    for (long i = count / all.kLanes * all.kLanes; i < count; ++i) {
      const Bits magnitude = bits[i] & 0x7fffu;
      add(static_cast<Bits>(magnitude - 1), magnitude);
    }
  }
  for (long i = 0; i < all.kLanes; ++i) add(all.least[i], all.most[i]);
  const unsigned low = smallest == 0xffff ? *least : (smallest + 1u) >> FractionBits;
  const unsigned high = largest >> FractionBits;
  *least = low < *least ? low : *least;
  *most = high > *most ? high : *most;
}

}  // namespace convgrad
