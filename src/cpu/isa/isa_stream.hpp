// isa_stream.hpp - the register tile of streaming, and the spreading of x for it.
//
// Without a sum over channels, every product needs a value of x of its own: a multiply-add has x as
// an operand in memory, and two loads a cycle are the limit, as two multiply-adds are. Loads of dy
// can be saved, which all taps in registers share, and the second pass over x and dy that each
// further set of taps would take. So as many taps as there are registers are summed at once.
#pragma once

#include "cpu/isa/isa_pack.hpp"

namespace convgrad {

// Spreading by a table of channels is a load for each lane, so it is avoided where it can be: lanes
// of one vector that read from as many neighbouring channels are permuted in a register.
template <typename Set, typename Acc>
struct Permutation {
  using V = typename VectorOf<Set, Acc>::Type;
  using Index = decltype(V{} < V{});
  static constexpr long kLanes = VectorOf<Set, Acc>::kLanes;
  bool fits = true;
  long vectors;
  long first[Set::kStreamVectors];
  Index index[Set::kStreamVectors];

  Permutation(const int* channel, int count) : vectors(count / kLanes) {
    for (long v = 0; v < vectors && fits; ++v) {
      const int* from = channel + v * kLanes;
      first[v] = from[0];
      fits = from[kLanes - 1] - from[0] < kLanes;
      for (long j = 0; j < kLanes; ++j) index[v][j] = static_cast<int>(from[j] - from[0]);
    }
  }
};

// Lane j of a panel `width` wide reads channel[j]; zeros behind the last of them.
template <typename Set, typename Scalar, typename Acc>
void spread_as(const PackSource& s, long pixels, const int* channel, int count, int width,
               Acc* panel) {
  const Reader<Set, Scalar, Acc> from(s);
  long i = 0;
  if constexpr (kPermutes) {
    if (s.channel_stride == 1 && count == width) {
      const Permutation<Set, Acc> lanes(channel, count);
      // A vector may run into the next pixels, but not out of the last one.
      const long end = (pixels - 1) * s.pixel_stride + channel[count - 1] + 1 - lanes.kLanes -
                       lanes.first[lanes.vectors - 1];
      for (; lanes.fits && i < pixels && i * s.pixel_stride <= end; ++i) {
        for (long v = 0; v < lanes.vectors; ++v) {
          const auto values = from.full(i * s.pixel_stride + lanes.first[v]);
          store(panel + i * width + v * lanes.kLanes, __builtin_shuffle(values, lanes.index[v]));
        }
      }
    }
  }
  for (; i < pixels; ++i) {
    for (int j = count; j < width; ++j) panel[i * width + j] = Acc{};
    for (int j = 0; j < count; ++j) {
      panel[i * width + j] = from.one(i * s.pixel_stride + channel[j] * s.channel_stride);
    }
  }
}

template <typename Set, typename Acc>
void spread(const PackSource& source, long pixels, const int* channel, int count, int width,
            Acc* panel) {
  with_scalar_of<Acc>(source.dtype, [&](auto scalar) {
    spread_as<Set, decltype(scalar)>(source, pixels, channel, count, width, panel);
  });
}

// The loops are unrolled, as what is in a register has no index.
template <int Rows, int Taps, int Count, typename Use>
[[gnu::always_inline]] static inline void for_each_sum(const Use& use) {
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int s = 0; s < Taps; ++s) {
#pragma GCC unroll 8
      for (int j = 0; j < Count; ++j) use(r, s, j);
    }
  }
}

// Loads the vectors of bfloat16 that are side by side at `at` as vectors of floats, pairs of them:
// even lanes and odd lanes. A load of twice as many lanes and two shifts take the place of two
// loads, and no value is packed.
template <typename Set, int Count, typename V>
[[gnu::always_inline]] static inline void load_pairs(const BFloat16* at, V (&values)[Count]) {
  using Bits = typename VectorOf<Set, std::uint32_t>::Type;
#pragma GCC unroll 8
  for (int j = 0; j < Count; j += 2) {
    Bits bits = load<Bits>(at + j * VectorOf<Set, float>::kLanes);
    // Else operations that may read memory, as those of NEON cannot, would load it twice.
#ifndef __aarch64__
    __asm__("" : "+v"(bits));
#endif
    values[j] = (V)(bits << 16);
    values[j + 1] = (V)(bits & 0xffff0000u);
  }
}

// Holds Count vectors of sums for each of Rows x Taps, in registers over all runs, for
// stream_tile() and stream_group_tile(). They meet Count vectors of x that are XStep apart (0: the
// same one) and of dy, which load_dy(pixel, d) fills in. Sums begin and end in memory.
template <typename Set, int Rows, int Taps, int Count, long XStep, typename Element,
          typename Stored = Element>
struct RegisterSums {
  using V = typename VectorOf<Set, Element>::Type;
  static constexpr long kLanes = VectorOf<Set, Element>::kLanes;
  V sum[Rows][Taps][Count];

  const char *fetch_x, *fetch_dy;

  // Where only some taps see x, each is asked for. The answers are the same for all pixels of a
  // run, and the runs in each image, which a processor foresees. A loop for each set of taps would
  // take four times as long to compile.
  template <bool All, typename LoadDy>
  [[gnu::always_inline]] void add_run(const StreamView<Stored>& view, const StreamRun& run,
                                      const LoadDy& load_dy) {
    const long x_row = view.x_row, x_tap = view.x_tap, x_pixel = view.x_pixel;
    const long dy_pixel = view.dy_pixel;
    const Stored* px = view.x + run.x;
    const Stored* pdy = view.dy + run.dy;
    unsigned rows = run.rows, taps = run.taps;
    for (int p = run.pixels; p > 0; --p) {
      if (!All) __asm__("" : "+r"(rows), "+r"(taps));  // else loops for some sets of taps appear
      V d[Count];
      load_dy(pdy, d);
      const Stored* row = px;
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        if (!All && (rows >> r & 1) == 0) continue;
        const Stored* at = row;
#pragma GCC unroll 8
        for (int s = 0; s < Taps; ++s) {
          if (!All && (taps >> s & 1) == 0) continue;
          if constexpr (sizeof(Stored) == sizeof(Element)) {
#pragma GCC unroll 8
            for (int j = 0; j < Count; ++j) sum[r][s][j] += load<V>(at + j * XStep) * d[j];
          } else {
            V x[Count];
            load_pairs<Set>(at, x);
#pragma GCC unroll 8
            for (int j = 0; j < Count; ++j) sum[r][s][j] += x[j] * d[j];
          }
          if (s + 1 < Taps) at = opaque(at + x_tap);
        }
        if (r + 1 < Rows) row = opaque(row + x_row);
      }
      fetch(view);
      px += x_pixel;
      pdy += dy_pixel;
    }
  }

  // The last three pixels of dy are in registers, the last one first. A pixel of x and those below
  // it meet them with the taps First to Last, of which tap 0 meets a new pixel of dy.
  template <int First, int Last, typename LoadDy>
  [[gnu::always_inline]] void roll(const StreamView<Stored>& view, const Stored*& px,
                                   const Stored*& pdy, V (&d)[3][Count], const LoadDy& load_dy) {
#pragma GCC unroll 8
    for (int j = 0; j < Count; ++j) {
      if constexpr (Last == 2) d[2][j] = d[1][j];
      if constexpr (First < 2 && Last > 0) d[1][j] = d[0][j];
    }
    if constexpr (First == 0) {
      load_dy(pdy, d[0]);
      pdy += view.dy_pixel;
      fetch(view);
    }
    const Stored* row = px;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      V x[Count];
      load_pairs<Set>(row, x);
#pragma GCC unroll 8
      for (int s = First; s <= Last; ++s) {
#pragma GCC unroll 8
        for (int j = 0; j < Count; ++j) sum[r][s][j] += x[j] * d[s][j];
      }
      if (r + 1 < Rows) row = opaque(row + view.x_row);
    }
    px += view.x_pixel;
  }

  // Adds a run of at least two pixels that see x with all taps, where neighbouring taps see
  // neighbouring pixels: x is widened once for the taps of a row, in the order of add_run().
  template <typename LoadDy>
  [[gnu::always_inline]] void add_rolling(const StreamView<Stored>& view, const StreamRun& run,
                                          const LoadDy& load_dy) {
    const Stored *px = view.x + run.x, *pdy = view.dy + run.dy;
    V d[3][Count];
    roll<0, 0>(view, px, pdy, d, load_dy);
    roll<0, 1>(view, px, pdy, d, load_dy);
    for (int p = run.pixels - 2; p > 0; --p) roll<0, 2>(view, px, pdy, d, load_dy);
    roll<1, 2>(view, px, pdy, d, load_dy);
    roll<2, 2>(view, px, pdy, d, load_dy);
  }

  // Lines are fetched with each pixel: all of them at once would keep the loads of x waiting.
  [[gnu::always_inline]] void fetch(const StreamView<Stored>& view) {
    for (long i = view.fetch_x_lines; i > 0; --i, fetch_x += 64) __builtin_prefetch(fetch_x, 0, 2);
    for (long i = view.fetch_dy_lines; i > 0; --i, fetch_dy += 64) {
      __builtin_prefetch(fetch_dy, 0, 2);
    }
  }

  template <typename LoadDy>
  [[gnu::always_inline]] void add(const StreamView<Stored>& view, const StreamRun* runs,
                                  long run_count, Element* sums, const LoadDy& load_dy) {
    for_each_sum<Rows, Taps, Count>([&](int r, int s, int j) __attribute__((always_inline)) {
      sum[r][s][j] = load<V>(sums + r * view.sum_row + s * view.sum_tap + j * kLanes);
    });
    fetch_x = view.fetch_x;
    fetch_dy = view.fetch_dy;
    for (long i = 0; i < run_count; ++i) {
      const bool all = runs[i].rows == (1 << Rows) - 1 && runs[i].taps == (1 << Taps) - 1;
      if constexpr (sizeof(Stored) < sizeof(Element) && Taps == 3 && Count == 2) {  // no more fit
        if (all && runs[i].pixels > 1 && view.x_tap == view.x_pixel) {
          add_rolling(view, runs[i], load_dy);
          continue;
        }
      }
      if (all) {
        add_run<true>(view, runs[i], load_dy);
      } else {
        add_run<false>(view, runs[i], load_dy);
      }
    }
    for_each_sum<Rows, Taps, Count>([&](int r, int s, int j) __attribute__((always_inline)) {
      store(sums + r * view.sum_row + s * view.sum_tap + j * kLanes, sum[r][s][j]);
    });
  }
};

template <typename Set, int Rows, int Taps, int NV, typename Element, typename Stored>
void stream_tile(const StreamView<Stored>& view, const StreamRun* runs, long run_count,
                 Element* sums) {
  using V = typename VectorOf<Set, Element>::Type;
  constexpr long kLanes = VectorOf<Set, Element>::kLanes;
  const auto load_dy = [](const Stored* pixel, V(&d)[NV]) {
    if constexpr (sizeof(Stored) == sizeof(Element)) {
#pragma GCC unroll 8
      for (int v = 0; v < NV; ++v) d[v] = load<V>(pixel + v * kLanes);
    } else {
      load_pairs<Set>(pixel, d);
    }
  };
  RegisterSums<Set, Rows, Taps, NV, kLanes, Element, Stored>().add(view, runs, run_count, sums,
                                                                   load_dy);
}

template <typename Set, int Rows, int Taps, int NV, typename Element, typename Stored>
constexpr StreamFunction<Element, Stored> stream_function() {
  if constexpr (Rows * Taps * NV <= Set::kMaxSums) {
    return stream_tile<Set, Rows, Taps, NV, Element, Stored>;
  } else {
    return nullptr;
  }
}

// Each shape has a function, as the sums must be in registers. Shapes with too many sums have none,
// and are never asked for (StreamingIsa::sums). The table is [vectors][rows][taps], or [pairs of
// vectors][rows][taps]; I counts through it.
template <typename Set, typename Element, typename Stored>
StreamFunction<Element, Stored> stream_for(int rows, int taps, int vectors) {
  constexpr long kVectors = sizeof(Element) / sizeof(Stored);
  const auto find = [&]<long... I>(Indices<I...>) {
    static constexpr StreamFunction<Element, Stored> kFunctions[] = {
        stream_function<Set, I / kMostTaps % kMostTaps + 1, I % kMostTaps + 1,
                        (I / kMostTaps / kMostTaps + 1) * kVectors, Element, Stored>()...};
    return kFunctions[((vectors - 1) * kMostTaps + rows - 1) * kMostTaps + taps - 1];
  };
  return find(typename UpTo<long{Set::kStreamVectors} * kMostTaps * kMostTaps>::Type{});
}

// In groups of a few channels a lane is an input channel, and the output channels of its group are
// picked from one or two vectors of dy in registers. Spreading x into panels instead took 45 % of
// the time (docs/measurements/performance.md).
template <typename Set, int Rows, int Taps, int Outputs, bool Wide, typename Element>
void stream_group_tile(const StreamView<Element>& view, const int* pick, const StreamRun* runs,
                       long run_count, Element* sums) {
  using V = typename VectorOf<Set, Element>::Type;
  using Index = decltype(V{} < V{});
  constexpr long kLanes = VectorOf<Set, Element>::kLanes;
  Index index[Outputs];  // in registers over all runs
  for (int j = 0; j < Outputs; ++j) {
    for (long l = 0; l < kLanes; ++l) index[j][l] = pick[j * kLanes + l];
  }
  const auto pick_dy = [&index](const Element* pixel, V(&d)[Outputs]) {
    const V low = load<V>(pixel), high = load<V>(Wide ? pixel + kLanes : pixel);
#pragma GCC unroll 8
    for (int j = 0; j < Outputs; ++j) {
      d[j] = Wide ? __builtin_shuffle(low, high, index[j]) : __builtin_shuffle(low, index[j]);
    }
  };
  RegisterSums<Set, Rows, Taps, Outputs, 0, Element>().add(view, runs, run_count, sums, pick_dy);
}

template <typename Set, int Rows, int Taps, int Outputs, bool Wide, typename Element>
constexpr GroupFunction<Element> group_function() {
  if constexpr (Rows * Taps * Outputs <= Set::kGroupSums &&
                (!Wide || Outputs <= Set::kWideOutputs)) {
    return stream_group_tile<Set, Rows, Taps, Outputs, Wide, Element>;
  } else {
    return nullptr;
  }
}

// The table is [wide][outputs][rows][taps].
template <typename Set, typename Element>
GroupFunction<Element> group_for(int rows, int taps, int outputs, bool wide) {
  constexpr int kHalf = kMostGroupOutputs * kMostGroupRows * kMostTaps;
  const auto find = [&]<long... I>(Indices<I...>) {
    static constexpr GroupFunction<Element> kFunctions[] = {
        group_function<Set, I / kMostTaps % kMostGroupRows + 1, I % kMostTaps + 1,
                       I % kHalf / kMostTaps / kMostGroupRows + 1, (I >= kHalf), Element>()...};
    return kFunctions[(wide ? kHalf : 0) + ((outputs - 1) * kMostGroupRows + rows - 1) * kMostTaps +
                      taps - 1];
  };
  return find(typename UpTo<2 * kHalf>::Type{});
}

}  // namespace convgrad
