// isa_load.hpp - loads vectors of a file's values, converted to the element type of a panel.
//
// The headers isa_*.hpp are templates over a struct that names an instruction set, `Set` below, and
// are written with GCC's vector types: a library of portable vectors has no place for AMX's tiles,
// nor for vectors whose size is not known to the compiler. A source for one instruction set is
// compiled with its flags. If the linker took a function from it for one of the same name in
// another source, the program would end with an illegal instruction on older processors. Therefore
// - Set is in each source a struct of its unnamed namespace, so that all that is instantiated for
//   it is local to the source; functions that do not depend on Set are `static`;
// - nothing is included but intrinsics, <cstdint>, <cstddef> and plain structs: a function of a
//   standard header may be emitted anywhere.
//
// A Set has
// - kVectorBytes: the size of a vector;
// - kMaxRows of outer_product's tile with two vectors, kWideRows with three (0: there is none);
// - kStreamVectors: vectors side by side in streaming, at most; kMaxSums: vectors of sums in
//   registers there; kGroupSums: the same where lanes of dy are picked, 0 if they are not;
//   kWideOutputs: outputs that are picked from two vectors of dy at a time;
// - kPeak: vector multiply-adds a second, by which kernels estimate their time;
// - kHasMasks: Set::first and first_bits16 load a part of a vector;
// - kConvertsFloat16: Set::from_float16 and widened convert half a vector of 16-bit values.
#pragma once

#include <cstdint>

#include "cpu/isa/isa.hpp"

namespace convgrad {

#ifdef __clang__
inline constexpr bool kPermutes = false;  // it has no shuffle with a variable mask
#else
inline constexpr bool kPermutes = true;
#endif

// A lane holds this of an element of a panel.
template <typename Element>
struct LaneOf {
  using Type = Element;
};
template <>
struct LaneOf<BFloat16Pair> {
  using Type = std::uint32_t;
};

// GCC 12 forgets the size of a typedef that is a member of the template that uses it.
template <typename Lane, int Bytes>
struct SizedVector {
  typedef Lane Type __attribute__((vector_size(Bytes)));
};

// Keeps the compiler from computing every address ahead of a loop, for which registers are few.
template <typename Element>
static inline const Element* opaque(const Element* at) {
  __asm__("" : "+r"(at));
  return at;
}

template <typename Set, typename Element>
struct VectorOf {
  using Type = typename SizedVector<typename LaneOf<Element>::Type, Set::kVectorBytes>::Type;
  using Half = typename SizedVector<typename LaneOf<Element>::Type, Set::kVectorBytes / 2>::Type;
  static constexpr long kLanes = Set::kVectorBytes / sizeof(Element);
};

// Widens half a vector of 16 bits, with zeros above them.
template <typename Set, typename Bits16s>
static inline typename VectorOf<Set, std::uint32_t>::Type widened(Bits16s bits) {
  using Bits32s = typename VectorOf<Set, std::uint32_t>::Type;
  if constexpr (Set::kConvertsFloat16) {
    return (Bits32s)Set::widened(bits);
  } else {
    return __builtin_convertvector(bits, Bits32s);
  }
}

template <typename V>
static inline V load(const void* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
template <typename V>
static inline void store(void* to, const V& value) {
  __builtin_memcpy(to, &value, sizeof value);
}

// Converts without a branch, so that loops over it become vectors.
static inline float convert(Float16 v) {
  const std::uint32_t magnitude = v.bits & 0x7fffu,
                      sign = static_cast<std::uint32_t>(v.bits & 0x8000u) << 16;
  const float subnormal = static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24f;
  const std::uint32_t normal =
      (magnitude << 13) + (112u << 23);  // exponents are biased by 112 more
  const std::uint32_t special = 0x7f800000u | ((magnitude & 0x3ffu) << 13);
  const std::uint32_t finite = magnitude < 0x400u ? load<std::uint32_t>(&subnormal) : normal;
  const std::uint32_t bits = sign | (magnitude >= 0x7c00u ? special : finite);
  return load<float>(&bits);
}
static inline float convert(BFloat16 v) {
  const std::uint32_t bits = static_cast<std::uint32_t>(v.bits) << 16;
  return load<float>(&bits);
}
static inline float convert(float v) { return v; }
static inline double convert(double v) { return v; }

// Gathers count values of a Reader `stride` apart, zeros behind them. It goes through memory, which
// is slow: it is for ends of rows, and for pixels that are apart in the file.
template <typename Reader>
static inline typename Reader::V gather(const Reader& from, long at, long stride, long count) {
  alignas(typename Reader::V) typename Reader::Lane lanes[Reader::kLanes] = {};
  for (long j = 0; j < count; ++j) lanes[j] = from.one(at + j * stride);
  return *reinterpret_cast<const typename Reader::V*>(lanes);
}

// Packers read this strided view, one pixel or a pair of them at a time.
template <typename Set, typename Scalar, typename Element>
struct Reader {
  using V = typename VectorOf<Set, Element>::Type;
  using Lane = Element;
  static constexpr long kLanes = VectorOf<Set, Element>::kLanes;
  const Scalar* data;

  explicit Reader(const PackSource& source) : data(static_cast<const Scalar*>(source.data)) {}

  Lane one(long at) const { return convert(data[at]); }

  V full(long at) const {
    if constexpr (sizeof(Scalar) == sizeof(Element)) {
      return load<V>(data + at);
    } else if constexpr (kByLanes) {
      V value;
      for (long j = 0; j < kLanes; ++j) value[j] = one(at + j);
      return value;
    } else {
      return converted(load<Bits16s>(data + at));
    }
  }

  // Loads the first count lanes, zeros behind them.
  V first(long at, long count) const {
    if constexpr (!Set::kHasMasks) {
      return gather(*this, at, 1, count);
    } else if constexpr (sizeof(Scalar) == sizeof(Element)) {
      return (V)Set::first(data + at, count);
    } else {
      return converted(Set::first_bits16(data + at, count));
    }
  }

 private:
  static constexpr bool kIsFloat16 = __is_same(Scalar, Float16);
  static constexpr bool kByLanes = kIsFloat16 && !Set::kConvertsFloat16;
  using Bits16s = typename SizedVector<std::uint16_t, Set::kVectorBytes / 2>::Type;

  static V converted(Bits16s bits) {
    if constexpr (kIsFloat16) {
      return (V)Set::from_float16(bits);
    } else {
      return (V)(widened<Set>(bits) << 16);
    }
  }
};

// vdpbf16ps takes the two values of a lane from two pixels of one channel, which are apart in the
// file where channels are side by side. A pair is a pixel of bfloat16 data and the one that goes
// with it, either of which may be all zeros.
template <typename Set>
struct Reader<Set, BFloat16, BFloat16Pair> {
  using V = typename VectorOf<Set, BFloat16Pair>::Type;
  using Lane = std::uint32_t;
  static constexpr long kLanes = VectorOf<Set, BFloat16Pair>::kLanes;
  const BFloat16* low;
  const BFloat16* high;

  explicit Reader(const PackSource& source)
      : low(static_cast<const BFloat16*>(source.data)),
        high(static_cast<const BFloat16*>(source.second)) {}

  Lane one(long at) const {
    return (low != nullptr ? low[at].bits : 0u) |
           (high != nullptr ? static_cast<std::uint32_t>(high[at].bits) << 16 : 0u);
  }
  V full(long at) const {
    return pairs([at](const BFloat16* from) { return load<Bits16s>(from + at); });
  }
  V first(long at, long count) const {
    return pairs([at, count](const BFloat16* from) { return Set::first_bits16(from + at, count); });
  }

 private:
  using Bits16s = typename SizedVector<std::uint16_t, Set::kVectorBytes / 2>::Type;

  template <typename Load>
  V pairs(const Load& values_of) const {
    V value = {};
    if (low != nullptr) value = widened<Set>((Bits16s)values_of(low));
    if (high != nullptr) value |= widened<Set>((Bits16s)values_of(high)) << 16;
    return value;
  }
};

}  // namespace convgrad
