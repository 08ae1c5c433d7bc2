// isa_table.hpp - the functions of one instruction set for outer_product and streaming.
#pragma once

#include "cpu/isa/isa_multiply.hpp"
#include "cpu/isa/isa_pack.hpp"
#include "cpu/isa/isa_stream.hpp"

namespace convgrad {

// In integers, so that the loop becomes vectors without reordering floating-point operations.
template <typename Set, typename Bits, typename Element>
bool all_finite(const Element* values, long count) {
  constexpr Bits kExponent = sizeof(Bits) == 8 ? Bits(0x7ff0000000000000ul) : Bits(0x7f800000u);
  Bits any = 0;
  for (long i = 0; i < count; ++i) {
    any |= (load<Bits>(values + i) & kExponent) == kExponent ? 1 : 0;
  }
  return any == 0;
}

template <typename Set, typename Bits, typename Element>
constexpr OuterProductIsa<Element> outer_product_table() {
  return {Set::kMaxRows,
          2 * VectorOf<Set, Element>::kLanes,
          pack<Set, Element>,
          all_finite<Set, Bits, Element>,
          nullptr,
          multiply_rows<Set, Set::kMaxRows, Element>};
}

template <typename Set, typename Element>
constexpr StreamingIsa<Element> streaming_table() {
  StreamingIsa<Element> table = {VectorOf<Set, Element>::kLanes,
                                 Set::kStreamVectors,
                                 Set::kMaxSums,
                                 stream_for<Set, Element>,
                                 0,
                                 nullptr,
                                 spread<Set, Element>};
  if constexpr (kPermutes && Set::kGroupSums > 0) {
    table.group_sums = Set::kGroupSums;
    table.stream_group = group_for<Set, Element>;
  }
  return table;
}

template <typename Set>
constexpr IsaSet isa_table() {
  return {outer_product_table<Set, std::uint32_t, float>(),
          outer_product_table<Set, std::uint64_t, double>(), streaming_table<Set, float>(),
          streaming_table<Set, double>()};
}

}  // namespace convgrad
