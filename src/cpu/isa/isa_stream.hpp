// isa_stream.hpp - the register tile of streaming, and spreading x for it.
//
// Without a sum over channels, every product needs a value of x of its own: a multiply-add has x as
// an operand in memory, and two loads a cycle are the limit, as two multiply-adds are. What is
// saved is dy, which all taps in registers share, and the second pass over x and dy that each
// further set of taps would take. So as many taps as there are registers are summed at once.
#pragma once

#include "cpu/isa/isa_pack.hpp"

namespace convgrad {

// Spreading by a table of channels is a load for each lane, so it is avoided where it can be: lanes
// of one vector that read from as many neighbouring channels are permuted in a register. They
// begin at the vector's first channel, or so that they end at the last one of all.
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
    const long most = channel[count - 1] + 1 - kLanes;
    for (long v = 0; v < vectors && fits; ++v) {
      const int* from = channel + v * kLanes;
      first[v] = from[0] < most ? from[0] : most;
      fits = first[v] >= 0 && from[kLanes - 1] - first[v] < kLanes;
      for (long j = 0; j < kLanes; ++j) index[v][j] = static_cast<int>(from[j] - first[v]);
    }
  }
};

// Lane j of a panel `width` wide reads channel[j]; zeros behind the last of them.
template <typename Set, typename Scalar, typename Acc>
void spread_as(const PackSource& s, long pixels, const int* channel, int count, int width,
               Acc* panel) {
  const Scalar* source = static_cast<const Scalar*>(s.data);
  if constexpr (kPermutes && sizeof(Scalar) == sizeof(Acc)) {
    if (s.channel_stride == 1 && count == width) {
      const Permutation<Set, Acc> lanes(channel, count);
      if (lanes.fits) {
        for (long i = 0; i < pixels; ++i) {
          for (long v = 0; v < lanes.vectors; ++v) {
            const auto values = load<typename VectorOf<Set, Acc>::Type>(
                source + i * s.pixel_stride + lanes.first[v]);
            store(panel + i * width + v * lanes.kLanes, __builtin_shuffle(values, lanes.index[v]));
          }
        }
        return;
      }
    }
  }
  for (long i = 0; i < pixels; ++i) {
    for (int j = count; j < width; ++j) panel[i * width + j] = Acc{};
    for (int j = 0; j < count; ++j) {
      panel[i * width + j] = convert(source[i * s.pixel_stride + channel[j] * s.channel_stride]);
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

// Keeps the compiler from computing every address ahead of the loop, which takes more registers
// than there are.
template <typename Element>
static inline const Element* opaque(const Element* at) {
  __asm__("" : "+r"(at));
  return at;
}

// Unrolled, as what is in a register has no index.
template <int Rows, int Taps, int Count, typename Use>
[[gnu::always_inline]] static inline void for_each_sum(const Use& use) {
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 8
    for (int s = 0; s < Taps; ++s) {
#pragma GCC unroll 4
      for (int j = 0; j < Count; ++j) use(r, s, j);
    }
  }
}

// Sums begin with what is in memory and end there, so that any number of calls, for a few rows
// each, add to them. What stream_tile() and stream_group_tile() share: Count vectors of sums for
// each of Rows x Taps. They meet Count vectors of x that are XStep apart (0: the same one) and of
// dy, which load_dy(pixel, d) fills in.
template <typename Set, int Rows, int Taps, int Count, long XStep, typename Element,
          typename LoadDy>
[[gnu::always_inline]] inline void add_runs(const StreamView<Element>& view, const PanelRun* runs,
                                            long run_count, Element* sums, const LoadDy& load_dy) {
  using V = typename VectorOf<Set, Element>::Type;
  constexpr long kLanes = VectorOf<Set, Element>::kLanes;
  const long x_row = view.x_row, x_tap = view.x_tap, x_pixel = view.x_pixel;
  const long dy_pixel = view.dy_pixel, lines = view.prefetch_lines;
  V sum[Rows][Taps][Count];
  for_each_sum<Rows, Taps, Count>([&](int r, int s, int j) __attribute__((always_inline)) {
    sum[r][s][j] = load<V>(sums + r * view.sum_row + s * view.sum_tap + j * kLanes);
  });
  for (long run = 0; run < run_count; ++run) {
    const Element* px = view.x + runs[run].a;
    const Element* pdy = view.dy + runs[run].b;
    const char* fetch = runs[run].prefetch;
    const char* fetch_end = runs[run].prefetch_end;
    for (long p = runs[run].pixels; p > 0; --p) {
      V d[Count];
      load_dy(pdy, d);
      const Element* row = px;
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        const Element* at = row;
#pragma GCC unroll 8
        for (int s = 0; s < Taps; ++s) {
#pragma GCC unroll 4
          for (int j = 0; j < Count; ++j) sum[r][s][j] += load<V>(at + j * XStep) * d[j];
          if (s + 1 < Taps) at = opaque(at + x_tap);
        }
        if (r + 1 < Rows) row = opaque(row + x_row);
      }
      // A few lines for each pixel: the loads of all of them at once would keep those of x waiting.
      if (fetch < fetch_end) {
        for (long line = 0; line < lines; ++line, fetch += 64) __builtin_prefetch(fetch, 0, 2);
      }
      px += x_pixel;
      pdy += dy_pixel;
    }
  }
  for_each_sum<Rows, Taps, Count>([&](int r, int s, int j) __attribute__((always_inline)) {
    store(sums + r * view.sum_row + s * view.sum_tap + j * kLanes, sum[r][s][j]);
  });
}

template <typename Set, int Rows, int Taps, int NV, typename Element>
void stream_tile(const StreamView<Element>& view, const PanelRun* runs, long run_count,
                 Element* sums) {
  using V = typename VectorOf<Set, Element>::Type;
  constexpr long kLanes = VectorOf<Set, Element>::kLanes;
  const auto load_dy = [](const Element* pixel, V(&d)[NV]) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) d[v] = load<V>(pixel + v * kLanes);
  };
  add_runs<Set, Rows, Taps, NV, kLanes>(view, runs, run_count, sums, load_dy);
}

template <typename Set, int Rows, int Taps, int NV, typename Element>
constexpr StreamFunction<Element> stream_function() {
  if constexpr (Rows * Taps * NV <= Set::kMaxSums) {
    return stream_tile<Set, Rows, Taps, NV, Element>;
  } else {
    return nullptr;
  }
}

// The table is [vectors][rows][taps]; index I counts through it.
template <typename Set, typename Element, long... I>
StreamFunction<Element> stream_at(int index, Indices<I...>) {
  static constexpr StreamFunction<Element> kFunctions[] = {
      stream_function<Set, I / kMostTaps % kMostTaps + 1, I % kMostTaps + 1,
                      I / kMostTaps / kMostTaps + 1, Element>()...};
  return kFunctions[index];
}

// One function for each shape, as the sums must be in registers. Those that were left out for want
// of them are never asked for: see StreamingIsa::sums.
template <typename Set, typename Element>
StreamFunction<Element> stream_for(int rows, int taps, int vectors) {
  constexpr long kFunctions = long{Set::kStreamVectors} * kMostTaps * kMostTaps;
  return stream_at<Set, Element>(((vectors - 1) * kMostTaps + rows - 1) * kMostTaps + taps - 1,
                                 typename UpTo<kFunctions>::Type{});
}

// Groups of a few channels: a lane is an input channel, and the output channels of its group are
// picked from one or two vectors of dy in registers. Spreading x into panels instead took 45 % of
// the time (docs/measurements/performance.md).
template <typename Set, int Rows, int Taps, int Outputs, bool Wide, typename Element>
void stream_group_tile(const StreamView<Element>& view, const int* pick, const PanelRun* runs,
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
#pragma GCC unroll 4
    for (int j = 0; j < Outputs; ++j) {
      d[j] = Wide ? __builtin_shuffle(low, high, index[j]) : __builtin_shuffle(low, index[j]);
    }
  };
  add_runs<Set, Rows, Taps, Outputs, 0>(view, runs, run_count, sums, pick_dy);
}

template <typename Set, int Rows, int Taps, int Outputs, bool Wide, typename Element>
constexpr GroupFunction<Element> group_function() {
  if constexpr (Rows * Taps * Outputs <= Set::kGroupSums) {
    return stream_group_tile<Set, Rows, Taps, Outputs, Wide, Element>;
  } else {
    return nullptr;
  }
}

// The table is [outputs][rows][taps].
template <typename Set, typename Element, bool Wide, long... I>
GroupFunction<Element> group_at(int index, Indices<I...>) {
  static constexpr GroupFunction<Element> kFunctions[] = {
      group_function<Set, I / kMostTaps % kMostGroupRows + 1, I % kMostTaps + 1,
                     I / kMostTaps / kMostGroupRows + 1, Wide, Element>()...};
  return kFunctions[index];
}

template <typename Set, typename Element>
GroupFunction<Element> group_for(int rows, int taps, int outputs, bool wide) {
  const int index = ((outputs - 1) * kMostGroupRows + rows - 1) * kMostTaps + taps - 1;
  constexpr typename UpTo<kMostGroupOutputs * kMostGroupRows * kMostTaps>::Type all{};
  return wide ? group_at<Set, Element, true>(index, all)
              : group_at<Set, Element, false>(index, all);
}

}  // namespace convgrad
