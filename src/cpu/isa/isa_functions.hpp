// isa_functions.hpp - makes the functions of one instruction set for outer_product and streaming.
#pragma once

#include "cpu/isa/isa_multiply.hpp"
#include "cpu/isa/isa_pack.hpp"
#include "cpu/isa/isa_peak.hpp"
#include "cpu/isa/isa_stream.hpp"

namespace convgrad {

// Works in integers, so that the loop becomes vectors: the compiler must not reorder sums of
// floats. An early end would keep it from doing so, too.
template <typename Set, typename Bits, typename Element>
bool all_finite(const Element* values, long count) {
  constexpr Bits kExponent = sizeof(Bits) == 8 ? Bits(0x7ff0000000000000ul) : Bits(0x7f800000u);
  Bits any = 0;
  for (long i = 0; i < count; ++i) {
    any |= (load<Bits>(values + i) & kExponent) == kExponent ? 1 : 0;
  }
  return any == 0;
}

// A call through a pointer takes nothing beside what a register tile or a row of packing does, and
// lets drivers be compiled once, for any processor.
template <typename Set, typename Bits, typename Element>
constexpr IsaTable<Element> table_of() {
  constexpr int kLanes = VectorOf<Set, Element>::kLanes;
  IsaTable<Element> table = {
      {Set::kMaxRows, 2 * kLanes, Set::kWideRows, pack<Set, Element>,
       all_finite<Set, Bits, Element>, nullptr, multiply_rows<Set, Set::kMaxRows, Element>,
       multiply_chains<Set, Element>},
      {kLanes, Set::kStreamVectors, Set::kMaxSums, stream_for<Set, Element, Element>, nullptr, 0, 0,
       nullptr, spread<Set, Element>}};
  // The others have null, and small groups go through panels.
  if constexpr (kPermutes && Set::kGroupSums > 0) {
    table.streaming.group_sums = Set::kGroupSums;
    table.streaming.wide_outputs = Set::kWideOutputs;
    table.streaming.stream_group = group_for<Set, Element>;
  }
  if constexpr (sizeof(Element) == sizeof(float)) {
    table.streaming.stream_bfloat16 = stream_for<Set, Element, BFloat16>;
  }
  return table;
}

template <typename Set>
constexpr IsaSet isa_functions(const char* name) {
  return {name, table_of<Set, std::uint32_t, float>(), table_of<Set, std::uint64_t, double>(),
          Set::kPeak};
}

}  // namespace convgrad
