// sum.hpp - keeps the running sums of a partial gradient, and those of a thread's part of a tile.
//
// float32 sums end after a chunk, so that their error is bounded by as many roundings as it has
// pixels (docs/numerics.md). They are added to a pair of floats without error: TwoSum (Knuth
// 1969) gives the rounding error of each addition, and `low` collects them (Ogita, Rump, Oishi:
// Accurate sum and dot product, 2005, Sum2). A pair has 48 bits where a float64 has 53; it takes
// six float32 additions instead of one of float64, of which devices that are not for data centres
// have units for one in 64 (CUDA C++ Programming Guide, "Arithmetic Instructions").
#pragma once

#include "cuda/kernels/host_device.hpp"

namespace convgrad::cuda {

template <typename Acc>
struct Sum;

template <>
struct alignas(8) Sum<float> {
  float high, low;

  CONVGRAD_HD void add(float value) {
    // No contraction can break this: it has no products.
    const float sum = high + value;
    const float part = sum - high;
    low += (high - (sum - part)) + (value - part);
    high = sum;
  }
  // Where high is infinite or NaN, low is NaN (inf - inf) and must not be added.
  CONVGRAD_HD double value() const {
    return static_cast<double>(high) + static_cast<double>(is_finite(high) ? low : 0.0f);
  }
};

template <>
struct Sum<double> {
  double total;

  CONVGRAD_HD void add(double value) { total += value; }
  CONVGRAD_HD double value() const { return total; }
};
static_assert(sizeof(Sum<float>) == 8 && sizeof(Sum<double>) == 8);  // reduce.hpp writes float64

// A thread's part of a tile of dw is kFragments fragments of kElements sums, each fragment the
// accumulator of one matrix instruction, or one row of a thread's sums. Products are added to
// `chunk`, and once a chunk that is added to `total`. Both stay in registers for all chunks of a
// slice: the pairs of 128 x 128 elements take more than the shared memory of most devices.
template <typename Acc, int kFragments, int kElements, int kTotals = kFragments* kElements>
struct TileSums {
  Acc chunk[kFragments][kElements];
  Sum<Acc> total[kTotals];

  // Calls f(fragment, element) for each sum.
  template <class F>
  CONVGRAD_HD static void each(F&& f) {
    CONVGRAD_UNROLL
    for (int i = 0; i < kFragments; ++i) {
      CONVGRAD_UNROLL
      for (int e = 0; e < kElements; ++e) f(i, e);
    }
  }
  CONVGRAD_HD void clear() {
    each([&](int i, int e) { chunk[i][e] = 0; });
  }
  // Zero times a sum is 0 or NaN, one instruction each, in four chains, none of which waits.
  CONVGRAD_HD bool all_finite() const {
    Acc zero[4] = {};
    each([&](int i, int e) { zero[e % 4] += chunk[i][e] * 0; });
    return is_finite((zero[0] + zero[1]) + (zero[2] + zero[3]));
  }
  CONVGRAD_HD void end_chunk() {
    static_assert(kTotals == kFragments * kElements);
    each([&](int i, int e) { total[i * kElements + e].add(chunk[i][e]); });
    clear();
  }
  // Loads totals from where earlier blocks left them, or 0 in the slice's first block. address(i)
  // is that of total number i, nullptr outside of dw.
  template <class Address>
  CONVGRAD_HD void load(bool first, Address&& address) {
    CONVGRAD_UNROLL
    for (int i = 0; i < kTotals; ++i) total[i] = Sum<Acc>{};
    if (first) return;
    CONVGRAD_UNROLL
    for (int i = 0; i < kTotals; ++i) {
      const Sum<Acc>* from = address(i);
      if (from != nullptr) total[i] = *from;
    }
  }
  // A fragment's elements 2i and 2i + 1 are neighbours in a row, and are stored at once where its
  // length lets them: one by one all take a third of a small tile's time.
  template <class Address>
  CONVGRAD_HD void store(Address&& address) const {
    struct alignas(16) Two {
      Sum<Acc> sum[2];
    };
    constexpr int kStep = kTotals == kFragments * kElements ? 2 : 1;
    CONVGRAD_UNROLL
    for (int i = 0; i < kTotals; i += kStep) {
      Sum<Acc>* const to = address(i);
      if constexpr (kStep == 2) {
        Sum<Acc>* const next = address(i + 1);
        if (next != nullptr && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
          *reinterpret_cast<Two*>(to) = {total[i], total[i + 1]};
          continue;
        }
        if (next != nullptr) *next = total[i + 1];
      }
      if (to != nullptr) *to = total[i];
    }
  }
};

}  // namespace convgrad::cuda
