// isa_peak.hpp - a register tile without its loads, which measure_peaks() times.
#pragma once

#include "cpu/isa/isa_multiply.hpp"

namespace convgrad {

// Multiply-adds wait for each other in as many chains as the tile has sums. It returns the sum of
// all lanes, which each product of a round raises by 1 if factor and term are 1.
template <typename Set, typename Element>
double multiply_chains(long rounds, double factor, double term) {
  using Acc = typename SumOf<Element>::Type;
  using V = typename VectorOf<Set, Acc>::Type;
  constexpr int kChains = 2 * Set::kMaxRows;
  const V factors = V{} + static_cast<Acc>(factor), terms = V{} + static_cast<Acc>(term);
  V chain[kChains], sum = {};
  for (int i = 0; i < kChains; ++i) chain[i] = V{} + static_cast<Acc>(i);  // not one for all
  for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 28
    for (int i = 0; i < kChains; ++i) {
      if constexpr (__is_same(Element, BFloat16Pair)) {
        const auto ones = typename VectorOf<Set, Element>::Type{} + 0x3f803f80u;
        chain[i] = Set::add_products_of_pairs(chain[i], ones, ones);
      } else {
        chain[i] = chain[i] * factors + terms;
      }
    }
  }
  for (const V& one : chain) sum += one;
  return static_cast<double>(sum[0]) * VectorOf<Set, Acc>::kLanes;  // which are alike
}

}  // namespace convgrad
