// isa_pack.hpp - packs from a file's layout and dtype to panels.
//
// Vectors are stored whole, pixel after pixel: what they write behind a pixel's channels is
// overwritten by the next pixel, and behind the last pixel there is room (PanelShape).
#pragma once

#include "cpu/isa/isa_load.hpp"

namespace convgrad {

// Packs channels that are side by side in the file. A panel's vectors may read beyond its `step`
// channels where that is still inside the tensor; those lanes are never used.
template <typename Set, typename Scalar, typename Element>
void pack_along_channels(const PackSource& s, long pixels, long channels, const PanelShape& shape,
                         Element* panel) {
  const Reader<Set, Scalar, Element> from(s);
  constexpr long kLanes = Reader<Set, Scalar, Element>::kLanes;
  const bool is_copy = s.pixel_stride == channels;
  if (channels == shape.step && (is_copy || channels % kLanes == 0)) {  // in whole vectors
    const long rows = is_copy ? 1 : pixels, count = is_copy ? pixels * channels : channels;
    for (long i = 0, at = 0; i < rows; ++i, at += s.pixel_stride, panel += count) {
      long j = 0;
      for (; j + kLanes <= count; j += kLanes) store(panel + j, from.full(at + j));
      if (j < count) store(panel + j, from.first(at + j, count - j));
    }
    return;
  }
  // Where all of a vector may be read, that is faster than to read its first lanes.
  using V = typename VectorOf<Set, Element>::Type;
  using Index = decltype(V{} < V{});  // as many lanes of integers
  Index index;
  for (int l = 0; l < kLanes; ++l) index[l] = l;
  // A processor foresees pixels that follow each other, but not the next piece of a wide one, of
  // which a tile has a part of the channels (docs/measurements/performance.md).
  constexpr long kAhead = 6, kPieceBytes = 256;
  const long fetched = channels * static_cast<long>(sizeof(Scalar)) < kPieceBytes ? 0 : channels;
  const long step = shape.step, panel_stride = shape.panel_stride;
  const long width = (step + kLanes - 1) / kLanes * kLanes;
  for (long i = 0; i < pixels; ++i) {
    // A vector may run into the next pixels, but not out of the last one.
    const long at = i * s.pixel_stride, readable = (pixels - 1) * s.pixel_stride + channels - at;
    Element* out = panel + i * step;
    for (long j = 0; j < fetched; j += 64 / sizeof(Scalar)) {
      const long next = at + kAhead * s.pixel_stride + j;
      __builtin_prefetch(static_cast<const Scalar*>(s.data) + next);
      if (s.second != nullptr) __builtin_prefetch(static_cast<const Scalar*>(s.second) + next);
    }
    // Nearly all panels come first, those of which nothing has to be cut off.
    const long last = channels - step < readable - width ? channels - step : readable - width;
    long c = 0;
    if (width == kLanes) {
      for (; c <= last; c += step, out += panel_stride) store(out, from.full(at + c));
    } else {
      for (; c <= last; c += step, out += panel_stride) {
        for (long j = 0; j < width; j += kLanes) store(out + j, from.full(at + c + j));
      }
    }
    for (; c < channels; c += step, out += panel_stride) {
      const long end = c + step < channels ? c + step : channels;
      for (long j = c; j < c + step; j += kLanes) {
        const long count = end > j ? end - j : 0;
        const Index kept = index < Index{} + static_cast<int>(count);
        store(out + (j - c), j + kLanes <= readable ? (V)((Index)from.full(at + j) & kept)
                                                    : from.first(at + j, count));
      }
    }
  }
}

// UpTo<Count>::Type is Indices<0, ..., Count - 1>: std::make_integer_sequence is in a header that
// may not be included here.
template <long... I>
struct Indices {};
template <long Count, long... I>
struct UpTo : UpTo<Count - 1, Count - 1, I...> {};
template <long... I>
struct UpTo<0, I...> {
  using Type = Indices<I...>;
};

// Swaps the lanes of two rows that are on the wrong side of the diagonal.
template <long Bit, typename V, long... Lane>
static inline void exchange_bit(V& a, V& b, Indices<Lane...>) {
  constexpr long kCount = sizeof...(Lane);
  const V low = __builtin_shufflevector(a, b, ((Lane & Bit) ? kCount + (Lane ^ Bit) : Lane)...);
  const V high = __builtin_shufflevector(a, b, ((Lane & Bit) ? kCount + Lane : (Lane ^ Bit))...);
  a = low;
  b = high;
}

// rows[i][j] becomes rows[j][i], one bit of the indices at a time, in log2(Count) steps of Count
// shuffles of two registers.
template <long Bit, typename V, long Count>
static inline void transpose_from(V (&rows)[Count]) {
  if constexpr (Bit < Count) {
#pragma GCC unroll 16
    for (long i = 0; i < Count; ++i) {
      if ((i & Bit) == 0) exchange_bit<Bit>(rows[i], rows[i | Bit], typename UpTo<Count>::Type{});
    }
    transpose_from<2 * Bit>(rows);
  }
}

// Packs channels that are apart in the file in squares of lanes x lanes, transposed in registers:
// pixel by pixel, each value would be a load of its own.
template <typename Set, typename Scalar, typename Element>
void pack_along_pixels(const PackSource& s, long pixels, long channels, const PanelShape& shape,
                       Element* panel) {
  const Reader<Set, Scalar, Element> from(s);
  using V = typename VectorOf<Set, Element>::Type;
  constexpr long kLanes = Reader<Set, Scalar, Element>::kLanes;
  for (long c = 0; c < channels; c += shape.step, panel += shape.panel_stride) {
    const long count = c + shape.step < channels ? shape.step : channels - c;
    if (pixels == 1) {  // as beside padding: a square would be for nothing
      for (long j = 0; j < shape.step; ++j) {
        const auto value =
            j < count ? from.one((c + j) * s.channel_stride) : decltype(from.one(0)){};
        __builtin_memcpy(panel + j, &value, sizeof value);
      }
      continue;
    }
    for (long lane = 0; lane < shape.step; lane += kLanes) {
      // Panels of 6 or 14 channels are no multiple of a vector.
      // The last of several squares overlaps the one before: it must not spoil the next pixel.
      const bool overlaps = lane > 0 && lane + kLanes > shape.step;
      const long j = overlaps ? shape.step - kLanes : lane;
      for (long i = 0; i < pixels; i += kLanes) {
        const long left = pixels - i < kLanes ? pixels - i : kLanes;
        V square[kLanes];
#pragma GCC unroll 16
        for (long l = 0; l < kLanes; ++l) {
          const long at = (c + j + l) * s.channel_stride + i * s.pixel_stride;
          square[l] = j + l >= count        ? V{}
                      : s.pixel_stride != 1 ? gather(from, at, s.pixel_stride, left)
                      : left < kLanes       ? from.first(at, left)
                                            : from.full(at);
        }
        transpose_from<1>(square);
        Element* out = panel + i * shape.step + j;
        if (left == kLanes) {
#pragma GCC unroll 16
          for (long l = 0; l < kLanes; ++l) store(out + l * shape.step, square[l]);
        } else {
          for (long l = 0; l < left; ++l) store(out + l * shape.step, square[l]);
        }
      }
    }
  }
}

// Calls use with a value of the type that stores the dtype, of those that become an Element.
template <typename Element, typename Use>
static inline void with_scalar_of(int dtype, const Use& use) {
  if constexpr (__is_same(Element, BFloat16Pair)) {
    use(BFloat16{});
  } else if constexpr (__is_same(Element, double)) {
    use(double{});
  } else if (dtype == 0) {
    use(Float16{});
  } else if (dtype == 1) {
    use(BFloat16{});
  } else {
    use(float{});
  }
}

template <typename Set, typename Element>
void pack(const PackSource& source, long pixels, long channels, const PanelShape& shape,
          Element* panel) {
  with_scalar_of<Element>(source.dtype, [&](auto scalar) {
    using Scalar = decltype(scalar);
    if (source.channel_stride == 1) {
      pack_along_channels<Set, Scalar>(source, pixels, channels, shape, panel);
    } else {
      pack_along_pixels<Set, Scalar>(source, pixels, channels, shape, panel);
    }
  });
}

}  // namespace convgrad
