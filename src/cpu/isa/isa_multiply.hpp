// isa_multiply.hpp - the register tile of outer_product. M values of x, broadcast one by one, meet
// NV vectors of dy, for one pixel after the other. Half a vector may follow: a processor that
// computes vectors of 64 bytes in two steps saves one.
//
// Each sum waits for the one of the pixel before, 4 cycles, and two can be computed in a cycle, so
// at least 8 sums keep both units busy. More of them save loads, M + NV for M * NV multiply-adds.
// NV = 3 is for an odd number of vectors, of which the last would have too few sums.
#pragma once

#include "cpu/isa/isa_load.hpp"

namespace convgrad {

template <typename Element>
struct SumOf {
  using Type = Element;
};
template <>
struct SumOf<BFloat16Pair> {
  using Type = float;
};

static inline float broadcastable(float value) { return value; }
static inline double broadcastable(double value) { return value; }
static inline std::uint32_t broadcastable(BFloat16Pair value) { return value.bits; }

// sum += x * dy, where both hold one value or a pair in each lane.
template <typename Set, typename Element, typename Sum, typename V>
static inline Sum multiply_add(Sum sum, V x, V dy) {
  if constexpr (__is_same(Element, BFloat16Pair)) {
    return Set::add_products_of_pairs(sum, x, dy);
  } else {
    return sum + x * dy;
  }
}

static inline void round_to_bfloat16(const float* sums, int count, std::uint16_t* out) {
  for (int j = 0; j < count; ++j) {
    const std::uint32_t bits = load<std::uint32_t>(sums + j), sign = bits >> 16 & 0x8000u;
    const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const bool is_nan = bits << 1 > 0xff000000u;
    out[j] = static_cast<std::uint16_t>(is_nan ? sign | 0x7fc0u : rounded);
  }
}

template <typename Acc>
static inline long cell_bytes(Cells what) {
  return what == Cells::bfloat16s ? 2 : what == Cells::results ? sizeof(Acc) : sizeof(double);
}

// Adds or stores sums from column j on, so many at a time; returns the column behind them.
template <long Count, bool Adds, typename Acc>
static inline int put_doubles(const Acc* sums, int j, int columns, double* out) {
  using Sums = typename SizedVector<Acc, Count * sizeof(Acc)>::Type;
  using Doubles = typename SizedVector<double, Count * sizeof(double)>::Type;
  for (; j + Count <= columns; j += Count) {
    Doubles values = __builtin_convertvector(load<Sums>(sums + j), Doubles);
    if constexpr (Adds) values += load<Doubles>(out + j);
    store(out + j, values);
  }
  return j;
}
template <typename Set, bool Adds, typename Acc>
static inline void put_rows(const Acc* sums, int rows, int width, int columns, double* out,
                            long row) {
  constexpr long kLanes = Set::kVectorBytes / sizeof(double);
  for (int i = 0; i < rows; ++i, sums += width, out += row) {
    int j = put_doubles<kLanes, Adds>(sums, 0, columns, out);
    j = put_doubles<kLanes / 2, Adds>(sums, j, columns, out);
    put_doubles<1, Adds>(sums, j, columns, out);
  }
}

// Puts the sums of a register tile, sums[i * width + j], where they belong. They begin at 0 and so
// are never -0. It is no part of its callers, whose registers are for the products.
template <typename Set, typename Acc>
[[gnu::noinline]] void put_sums(const Acc* sums, int rows, int width, int columns, void* cells,
                                long row, Cells what, bool turned) {
  Acc turned_round[kMostTileCells];
  if (turned) {
    for (int j = 0; j < columns; ++j) {
      for (int i = 0; i < rows; ++i) turned_round[j * rows + i] = sums[i * width + j];
    }
    sums = turned_round;
    width = rows;
    rows = columns;
    columns = width;
  }
  auto* const doubles = static_cast<double*>(cells);
  if (what == Cells::added_to) return put_rows<Set, true>(sums, rows, width, columns, doubles, row);
  if (what == Cells::stored) return put_rows<Set, false>(sums, rows, width, columns, doubles, row);
  for (int i = 0; i < rows; ++i, sums += width) {
    const long first = i * row;
    if constexpr (sizeof(Acc) == sizeof(float)) {
      if (what == Cells::bfloat16s) {
        round_to_bfloat16(sums, columns, static_cast<std::uint16_t*>(cells) + first);
        continue;
      }
    }
    for (int j = 0; j < columns; ++j) static_cast<Acc*>(cells)[first + j] = sums[j];
  }
}

template <typename Set, int M, int NV, bool HasHalf, typename Element, int FilterRows = 1>
void multiply_tile(int columns, const ProductView<Element>& view, const PanelRun* runs,
                   long run_count, void* cells, long row) {
  using V = typename VectorOf<Set, Element>::Type;
  using Half = typename VectorOf<Set, Element>::Half;
  using Acc = typename SumOf<Element>::Type;
  constexpr long kLanes = VectorOf<Set, Element>::kLanes;
  const long a_pixel = view.a_pixel, b_pixel = view.b_pixel;
  // Cells were last visited a chunk ago, if ever. (Turned rows, of few outputs, are not far apart.)
  const long bytes = cell_bytes<Acc>(view.cells);
  for (int i = 0; i < M && !view.turned; ++i) {
    const char* const line = static_cast<const char*>(cells) + i * row * bytes;
    for (long at = 0; at < columns * bytes; at += 64) __builtin_prefetch(line + at, 1);
  }
  typename VectorOf<Set, Acc>::Type sum[M][NV + 1];  // one more, as there is no array of none
  typename VectorOf<Set, Acc>::Half half_sum[M];
#pragma GCC unroll 32
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < NV; ++v) sum[i][v] = typename VectorOf<Set, Acc>::Type{};
    half_sum[i] = typename VectorOf<Set, Acc>::Half{};
  }
  for (long run = 0; run < run_count; ++run) {
    const Element* pa = view.a + runs[run].a;
    const Element* pb = view.b + runs[run].b;
    const char* fetch = runs[run].prefetch;
    const long fetch_step = runs[run].prefetch_step, a_row = runs[run].a_row;
#pragma GCC unroll 4
    for (long p = runs[run].pixels - view.trim; p > 0; --p) {
      V d[NV + 1];
#pragma GCC unroll 3
      for (int v = 0; v < NV; ++v) d[v] = load<V>(pb + v * kLanes);
      Half d_half;
      if constexpr (HasHalf) d_half = load<Half>(pb + NV * kLanes);
#pragma GCC unroll 3
      for (int f = 0; f < FilterRows; ++f) {
        const Element* const at = f == 0 ? pa : opaque(pa + f * a_row);
#pragma GCC unroll 16
        for (int c = 0; c < M / FilterRows; ++c) {
          const int i = f * (M / FilterRows) + c;
          const V broadcast = broadcastable(at[c]) - V{};  // minus 0 keeps -0, plus 0 does not
#pragma GCC unroll 3
          for (int v = 0; v < NV; ++v) {
            sum[i][v] = multiply_add<Set, Element>(sum[i][v], broadcast, d[v]);
          }
          if constexpr (HasHalf) {
            // A float is an operand in memory. For pairs that is no faster than a register.
            Half low = broadcastable(at[c]) - Half{};
            if constexpr (__is_same(Element, BFloat16Pair)) {
              __builtin_memcpy(&low, &broadcast, sizeof low);
            }
            half_sum[i] = multiply_add<Set, Element>(half_sum[i], low, d_half);
          }
        }
      }
      // Fetches always, without a branch: where nothing is to be fetched, the same line again.
      __builtin_prefetch(fetch, 0, 2);
      if constexpr (FilterRows > 1) __builtin_prefetch(fetch + 64, 0, 2);
      fetch += fetch_step;
      pa += a_pixel;
      pb += b_pixel;
    }
  }
  constexpr int kColumns = NV * kLanes + (HasHalf ? kLanes / 2 : 0);
  alignas(Set::kVectorBytes) Acc sums[M][kColumns];
#pragma GCC unroll 32
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < NV; ++v) store(sums[i] + v * kLanes, sum[i][v]);
    if constexpr (HasHalf) store(sums[i] + NV * kLanes, half_sum[i]);
  }
  put_sums<Set, Acc>(sums[0] + view.skipped, M, kColumns, columns - view.skipped, cells, row,
                     view.cells, view.turned);
}

// Each number of rows is a function of its own, as the sums must be in registers.
template <typename Set, int M, typename Element>
void multiply_rows(int rows, int columns, const ProductView<Element>& view, const PanelRun* runs,
                   long run_count, void* cells, long row) {
  if constexpr (M > 1) {
    if (rows < M) {
      return multiply_rows<Set, M - 1>(rows, columns, view, runs, run_count, cells, row);
    }
  }
  constexpr long kLanes = VectorOf<Set, Element>::kLanes;
  if constexpr (3 * M <= 2 * Set::kMaxRows) {
    const bool half = Set::kVectorBytes == 64 && columns <= kLanes / 2;
    const auto all = half ? multiply_tile<Set, 3 * M, 0, true, Element, 3>
                          : multiply_tile<Set, 3 * M, 1, false, Element, 3>;
    if (view.filter_rows == 3) return all(columns, view, runs, run_count, cells, row);
  }
  if constexpr (Set::kVectorBytes == 64) {
    if (columns <= kLanes / 2) {
      return multiply_tile<Set, M, 0, true>(columns, view, runs, run_count, cells, row);
    }
    if (columns > kLanes && columns <= kLanes + kLanes / 2) {
      return multiply_tile<Set, M, 1, true>(columns, view, runs, run_count, cells, row);
    }
  }
  if constexpr (M <= Set::kWideRows) {
    if (columns > 2 * kLanes) {
      return multiply_tile<Set, M, 3, false>(columns, view, runs, run_count, cells, row);
    }
  }
  if (columns <= kLanes) {
    multiply_tile<Set, M, 1, false>(columns, view, runs, run_count, cells, row);
  } else {
    multiply_tile<Set, M, 2, false>(columns, view, runs, run_count, cells, row);
  }
}

}  // namespace convgrad
