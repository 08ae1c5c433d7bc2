// reduce.hpp - adds the partial gradients of all slices in a fixed binary tree, in one launch.
//
// It adds in float64: the time is that of reading the partials, so many are on their way at a time.
// Nothing is added atomically, as the order, and the bits with it, would vary from run to run.
#pragma once

#include <type_traits>

#include "cuda/kernels/round.hpp"
#include "cuda/kernels/sum.hpp"

namespace convgrad::cuda {

// A form says what partial gradients are made of; another kernel may have its own:
//   using Value;             // elements have this type, 16 bytes have one or several
//   struct Params;           // plain numbers
//   kWholeVectors;           // elements() is a multiple of 16 / sizeof(Value), memory aligned
//   Value nothing();         // its value() is -0, which changes no number that it is added to
//   double value(Value)
//   int64 elements(Params)   // of a slice, one behind the other, those that pad it among them
//   Places(Params, first).at(i)  // where element first + i of a vector, which begins with element
//                                // `first`, is in dw, [tap][c][k]; -1 where it pads
//
// This one is dw itself: pairs of floats, or doubles.
template <typename Acc>
struct DenseSums {
  using Value = Sum<Acc>;
  struct Params {
    std::int64_t dw_count;
  };
  static constexpr bool kWholeVectors = false;

  CONVGRAD_HD static Value nothing() {
    if constexpr (sizeof(Acc) == 4) {
      return {-0.0f, -0.0f};
    } else {
      return {-0.0};
    }
  }
  CONVGRAD_HD static double value(const Value& sum) { return sum.value(); }
  CONVGRAD_HD static std::int64_t elements(const Params& p) { return p.dw_count; }
  struct Places {
    std::int64_t first;
    CONVGRAD_HD Places(const Params&, std::int64_t element) : first(element) {}
    CONVGRAD_HD std::int64_t at(int i) const { return first + i; }
  };
};

// The tree is that of src/engine/partial_tree.hpp: neighbours are added, then neighbours of those,
// the odd one is kept, which is to add -0 to it.
template <int kCount>
CONVGRAD_HD double add_neighbours(double (&sums)[kCount]) {
  CONVGRAD_UNROLL
  for (int apart = 1; apart < kCount; apart *= 2) {
    CONVGRAD_UNROLL
    for (int i = 0; i < kCount; i += 2 * apart) sums[i] += sums[i + apart];
  }
  return sums[0];
}

// Each warp of a block takes a run of slots of the same vectors, or, with one way, all slots of its
// own. A run is a power of two long, so it is a node of the tree; warps' meet in shared memory.
template <class Form, int kWaysOfBlock, int kElements = 16 / int{sizeof(typename Form::Value)}>
struct ReduceSlices {
  static constexpr int kThreads = 256, kWays = kWaysOfBlock, kVector = kElements;
  static constexpr int kLanes = kThreads / kWays;  // vectors of a task
  // A thread loads so many slots of a run at once, for which it has registers: with one way there
  // are few slots, and more threads; floats take half of a pair's.
  static constexpr int kGroup = kWays > 1 ? 8 : 4, kLevels = kWays > 1 ? 7 : 3;
  static constexpr int kAtOnce = kWays > 1 && sizeof(typename Form::Value) == 4 ? 16 : kGroup;
  static constexpr int kLeastBlocks = kWays > 1 ? 2 : 4;
  static constexpr std::int64_t kMostSlots = kWays * kGroup << kLevels;
  static_assert(kWays == 1 || kLanes == kWarp);

  using Value = typename Form::Value;
  struct Params {
    typename Form::Params form;
    const void* partials;     // Value [slot][element]
    std::int64_t slots, run;  // run: slots of a way, a power of two; kWays of them have all
    void* dw;                 // [tap][c][k]
    DType dtype;              // as
  };
  struct Regs {};
  struct Ways {
    double sums[kWays][kLanes * kVector];
  };
  using Shared = std::conditional_t<kWays == 1, Regs, Ways>;

  struct alignas(kVector * sizeof(Value)) Vector {
    Value value[kVector];
  };
  struct Sums {
    double of[kVector];
    CONVGRAD_HD void add_to(const Sums& left) {
      CONVGRAD_UNROLL
      for (int e = 0; e < kVector; ++e) of[e] = left.of[e] + of[e];
    }
  };

  // Adds kCount values from kFirst on, half of them after the other: there are no registers for
  // all of them as float64.
  template <int kFirst, int kCount>
  CONVGRAD_HD static Sums add(const Vector* values) {
    Sums sums;
    if constexpr (kCount == 1) {
      CONVGRAD_UNROLL
      for (int e = 0; e < kVector; ++e) sums.of[e] = Form::value(values[kFirst].value[e]);
    } else {
      const Sums left = add<kFirst, kCount / 2>(values);
      sums = add<kFirst + kCount / 2, kCount / 2>(values);
      sums.add_to(left);
    }
    return sums;
  }
  // Loads and adds kCount slots, of which some may not be there.
  template <int kCount>
  CONVGRAD_HD static Sums add_group(const Params& p, std::int64_t first, const Value* from) {
    const std::int64_t step = Form::elements(p.form);
    const int count = static_cast<int>(least<std::int64_t>(p.slots - first, kCount));
    Vector values[kCount];
    CONVGRAD_UNROLL
    for (int i = 0; i < kCount; ++i) {
      CONVGRAD_UNROLL
      for (int e = 0; e < kVector; ++e) values[i].value[e] = Form::nothing();
      if (i < count) values[i] = *reinterpret_cast<const Vector*>(from + i * step);
    }
    one_by_one();  // all are on their way before the first is waited for
    return add<0, kCount>(values);
  }
  // Groups are added as a binary counter counts: a level has the sum of 2^level groups where that
  // bit of their number is set.
  CONVGRAD_HD static Sums add_run(const Params& p, std::int64_t first, std::int64_t element) {
    const std::int64_t step = Form::elements(p.form);
    const Value* from = static_cast<const Value*>(p.partials) + first * step + element;
    if (p.run == 1) return add_group<1>(p, first, from);
    if (p.run == 2) return add_group<2>(p, first, from);
    if (p.run == 4) return add_group<4>(p, first, from);
    if (kAtOnce >= 8 && p.run == 8) return add_group<8>(p, first, from);
    if (kAtOnce >= 16 && p.run == 16) return add_group<16>(p, first, from);
    Sums level[kLevels], sums;
    const int groups = static_cast<int>(p.run / kGroup);
    int group = 0;
    CONVGRAD_NO_UNROLL
    do {
      sums = add_group<kGroup>(p, first + group * kGroup, from + group * kGroup * step);
      bool carries = true;
      CONVGRAD_UNROLL
      for (int i = 0; i < kLevels; ++i) {
        const bool set = (group >> i & 1) != 0;
        if (carries && set) sums.add_to(level[i]);
        if (carries && !set) level[i] = sums;
        carries = carries && set;
      }
    } while (++group < groups);
    return sums;
  }

  CONVGRAD_HD static void write(const Params& p, const typename Form::Places& places, int i,
                                double sum) {
    const std::int64_t at = places.at(i);
    if (at >= 0) write_as(p.dtype, sum, p.dw, at);
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const int way = block.thread() / kLanes, lane = block.thread() % kLanes;
    const std::int64_t first = task * kLanes * kVector, end = Form::elements(p.form);
    const std::int64_t element = first + lane * kVector;
    if constexpr (kWays == 1) {
      if (element >= end) return;
      const Sums sums = add_run(p, 0, element);
      const typename Form::Places places(p.form, element);
      CONVGRAD_UNROLL
      for (int e = 0; e < kVector; ++e) write(p, places, e, sums.of[e]);
    } else {
      if (element < end) {
        const Sums sums = add_run(p, way * p.run, element);
        CONVGRAD_UNROLL
        for (int e = 0; e < kVector; ++e) block.shared.sums[way][lane * kVector + e] = sums.of[e];
      }
      block.sync();
      const int own = block.thread();  // now a thread has one element of all ways
      if (own >= kLanes * kVector || first + own >= end) return;
      double sums[kWays];
      CONVGRAD_UNROLL
      for (int i = 0; i < kWays; ++i) sums[i] = block.shared.sums[i][own];
      write(p, typename Form::Places(p.form, (first + own) / kVector * kVector),
            static_cast<int>((first + own) % kVector), add_neighbours(sums));
    }
  }
};

}  // namespace convgrad::cuda
