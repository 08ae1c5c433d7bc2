// isa_multiply.hpp - the register tile of outer_product. M values of x, broadcast one by one, meet
// NV vectors of dy, for one pixel after the other. Half a vector may follow: a processor that
// computes vectors of 64 bytes in two steps saves one.
//
// Each sum waits for the one of the pixel before, 4 cycles with AVX-512 and AVX2, and two can be
// computed in a cycle, so at least 8 sums are needed to keep both units busy. More of them save
// loads: a pixel takes M + NV of them for M * NV multiply-adds, from panels in the first and second
// cache. The largest tile that fits the registers therefore wins, and NV = 2 leaves M free.
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

// Is no part of its callers, whose registers are for the products.
template <typename Set>
[[gnu::noinline]] void round_to_bfloat16(const float* sums, int count, std::uint16_t* out) {
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

// The sums of `columns` columns go through memory, where a row of them is converted a few at a
// time: it is too short for what a compiler makes of a loop of any length. They begin at 0 and so
// are never -0.
template <typename Set, int M, int NV, bool HasHalf, typename Acc>
[[gnu::always_inline]] static inline void add_sums(
    const typename VectorOf<Set, Acc>::Type (&sum)[M][NV + 1],
    const typename VectorOf<Set, Acc>::Half (&half)[M], int columns, void* cells, long cells_row,
    Cells what) {
  constexpr long kLanes = VectorOf<Set, Acc>::kLanes;
  constexpr long kColumns = NV * kLanes + (HasHalf ? kLanes / 2 : 0);
  constexpr int kStep = Set::kVectorBytes == 16 ? 2 : 4;
  using Sums = typename SizedVector<Acc, kStep * sizeof(Acc)>::Type;
  using Doubles = typename SizedVector<double, kStep * sizeof(double)>::Type;
  alignas(Set::kVectorBytes) Acc row[kColumns];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) store(row + v * kLanes, sum[i][v]);
    if constexpr (HasHalf) store(row + NV * kLanes, half[i]);
    if constexpr (sizeof(Acc) == sizeof(float)) {
      if (what == Cells::bfloat16s) {
        round_to_bfloat16<Set>(row, columns, static_cast<std::uint16_t*>(cells) + i * cells_row);
        continue;
      }
    }
    if (what == Cells::results) {
      Acc* const out = static_cast<Acc*>(cells) + i * cells_row;
      for (int j = 0; j < columns; ++j) out[j] = row[j];
      continue;
    }
    double* const out = static_cast<double*>(cells) + i * cells_row;
    const bool adds = what == Cells::added_to;
    if (adds && columns == kColumns) {  // known to the compiler: no loop for a rest
      for (int j = 0; j < kColumns; ++j) out[j] += static_cast<double>(row[j]);
      continue;
    }
    int j = 0;
    for (; j + kStep <= columns; j += kStep) {
      Doubles sums = __builtin_convertvector(load<Sums>(row + j), Doubles);
      if (adds) sums += load<Doubles>(out + j);
      store(out + j, sums);
    }
    for (; j < columns; ++j) out[j] = (adds ? out[j] : 0) + static_cast<double>(row[j]);
  }
}

template <typename Set, int M, int NV, bool HasHalf, typename Element>
void multiply_tile(int columns, const ProductView<Element>& view, const PanelRun* runs,
                   long run_count, void* cells, long row) {
  using V = typename VectorOf<Set, Element>::Type;
  using Half = typename VectorOf<Set, Element>::Half;
  using Acc = typename SumOf<Element>::Type;
  constexpr long kLanes = VectorOf<Set, Element>::kLanes;
  const long a_pixel = view.a_pixel, b_pixel = view.b_pixel;
  // The cells were last visited a chunk ago, if ever: they come while the sums are computed.
  const long bytes = cell_bytes<Acc>(view.cells);
  for (int i = 0; i < M; ++i) {
    const char* const line = static_cast<const char*>(cells) + i * row * bytes;
    for (long at = 0; at < columns * bytes; at += 64) __builtin_prefetch(line + at, 1);
  }
  typename VectorOf<Set, Acc>::Type sum[M][NV + 1];  // one more, as there is no array of none
  typename VectorOf<Set, Acc>::Half half_sum[M];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < NV; ++v) sum[i][v] = typename VectorOf<Set, Acc>::Type{};
    half_sum[i] = typename VectorOf<Set, Acc>::Half{};
  }
  for (long run = 0; run < run_count; ++run) {
    const Element* pa = view.a + runs[run].a;
    const Element* pb = view.b + runs[run].b;
    const char* fetch = runs[run].prefetch;
    const long fetch_step = fetch != runs[run].prefetch_end ? 64 : 0;
#pragma GCC unroll 4
    for (long p = runs[run].pixels - view.trim; p > 0; --p) {
      V d[NV + 1];
#pragma GCC unroll 2
      for (int v = 0; v < NV; ++v) d[v] = load<V>(pb + v * kLanes);
      Half d_half;
      if constexpr (HasHalf) d_half = load<Half>(pb + NV * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < M; ++i) {
        const V broadcast = broadcastable(pa[i]) - V{};  // minus 0 keeps -0, plus 0 does not
#pragma GCC unroll 2
        for (int v = 0; v < NV; ++v) {
          sum[i][v] = multiply_add<Set, Element>(sum[i][v], broadcast, d[v]);
        }
        if constexpr (HasHalf) {
          // A float is an operand in memory. For pairs that is no faster than a register.
          Half low = broadcastable(pa[i]) - Half{};
          if constexpr (__is_same(Element, BFloat16Pair)) {
            __builtin_memcpy(&low, &broadcast, sizeof low);
          }
          half_sum[i] = multiply_add<Set, Element>(half_sum[i], low, d_half);
        }
      }
      // Fetches always, without a branch: where nothing is to be fetched, the same line again.
      __builtin_prefetch(fetch, 0, 2);
      fetch += fetch_step;
      pa += a_pixel;
      pb += b_pixel;
    }
  }
  add_sums<Set, M, NV, HasHalf, Acc>(sum, half_sum, columns, cells, row, view.cells);
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
  if constexpr (Set::kVectorBytes == 64) {
    if (columns <= kLanes / 2) {
      return multiply_tile<Set, M, 0, true>(columns, view, runs, run_count, cells, row);
    }
    if (columns > kLanes && columns <= kLanes + kLanes / 2) {
      return multiply_tile<Set, M, 1, true>(columns, view, runs, run_count, cells, row);
    }
  }
  if (columns <= kLanes) {
    multiply_tile<Set, M, 1, false>(columns, view, runs, run_count, cells, row);
  } else {
    multiply_tile<Set, M, 2, false>(columns, view, runs, run_count, cells, row);
  }
}

}  // namespace convgrad
