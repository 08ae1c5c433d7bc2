// isa_exponent_range.hpp - finds the least and the greatest exponent of values. It uses vectors,
// since it reads all of x and dy once more, before anything else has brought them into a cache.
#pragma once

#include "cpu/isa/isa.hpp"
#include "cpu/isa/isa_load.hpp"

namespace convgrad {

template <typename Set, typename Bits, typename V = typename VectorOf<Set, Bits>::Type>
struct MagnitudeRange {
  static constexpr long kLanes = sizeof(V) / sizeof(Bits);
  static constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  // least is of magnitudes less one: 0, which must not count, becomes the greatest number.
  V least = V{} - 1, most = {};

  void add(V values) {
    const V magnitude = values & kMagnitude;
    const V less = magnitude - 1;
    least = less < least ? less : least;
    most = magnitude > most ? magnitude : most;
  }

  // Only here is the exponent taken from the magnitude: they rise together.
  template <int FractionBits>
  void extend(ExponentRange& range) const {
    constexpr Bits kNone = static_cast<Bits>(~Bits{0});
    Bits smallest = kNone, largest = 0;
    for (long i = 0; i < kLanes; ++i) {
      smallest = least[i] < smallest ? least[i] : smallest;
      largest = most[i] > largest ? most[i] : largest;
    }
    const unsigned low = smallest == kNone ? range.least : (smallest + 1u) >> FractionBits;
    const unsigned high = largest >> FractionBits;
    range.least = low < range.least ? low : range.least;
    range.most = high > range.most ? high : range.most;
  }
};

// bfloat16 has 7 bits behind its exponent, float16 has 10, float32 23.
template <typename Set, typename Bits, int FractionBits>
void exponent_range(const void* values, long count, long pieces, long stride,
                    ExponentRange& range) {
  MagnitudeRange<Set, Bits> all;
  const char* piece = static_cast<const char*>(values);
  for (long p = 0; p < pieces; ++p, piece += stride) {
    const Bits* bits = reinterpret_cast<const Bits*>(piece);
    long i = 0;
    for (; i + all.kLanes <= count; i += all.kLanes) {
      all.add(load<decltype(all.most)>(bits + i));
    }
    // The rest fills no vector; where channels are few it is all of a piece. Values count twice
    // without harm. Through memory each piece would wait for what was just stored.
    constexpr long kInLane = 4 / sizeof(Bits);  // of 32 bits
    using V = decltype(all.most);
    if (i == count) continue;
    if (count >= all.kLanes) {
      all.add(load<V>(bits + count - all.kLanes));
      continue;
    }
    if constexpr (Set::kHasMasks) {
      if (count >= kInLane) {
        all.add((V)Set::first(reinterpret_cast<const float*>(bits), count / kInLane));
        all.add((V)Set::first(reinterpret_cast<const float*>(bits + count - kInLane), 1));
        continue;
      }
    }
    V rest = {};
    for (long j = 0; j < count; ++j) rest[j] = bits[j];
    all.add(rest);
  }
  // A copy, whose lanes are taken one by one: GCC would keep the other in memory all the time.
  const MagnitudeRange<Set, Bits> found = all;
  found.template extend<FractionBits>(range);
}

}  // namespace convgrad
