// reduce.hpp - adds the partial gradients of all slices in a fixed binary tree.
//
// It adds in float64, once per slice and element: the time is that of reading the partials. Nothing
// is added atomically, as the order of atomic additions, and the bits with it, would vary from run
// to run.
#pragma once

#include "cuda/kernels/sum.hpp"

namespace convgrad::cuda {

// A launch takes slots first, first + step, ... (at most kFan of them) of each element, which
// become one float64 in slot first. The first launch reads sums, the others float64. The tree is
// that of src/engine/partial_tree.hpp: neighbours are added, then neighbours of those, the odd one
// is kept. It does not depend on kFan, a power of two, whose levels take one reading of the slots.
// It works in place, since each thread reads and writes only its own element.
template <typename Acc, int kSlots>
struct ReduceSlices {
  static constexpr int kThreads = 256, kFan = kSlots;

  struct Params {
    void* partials;  // [slot][element], 8 bytes each
    std::int64_t elements, slots, step;
    std::int64_t pieces;  // of kThreads elements
  };
  struct Regs {};
  struct Shared {};

  CONVGRAD_HD static double read(const Params& p, std::int64_t slot, std::int64_t element) {
    const std::int64_t at = slot * p.elements + element;
    return p.step == 1 ? static_cast<const Sum<Acc>*>(p.partials)[at].value()
                       : static_cast<const double*>(p.partials)[at];
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const std::int64_t first = task / p.pieces * kFan * p.step;
    const std::int64_t element = task % p.pieces * kThreads + block.thread();
    if (element >= p.elements) return;
    double sum[kFan];
    CONVGRAD_UNROLL
    for (int i = 0; i < kFan; ++i) {
      const std::int64_t slot = first + i * p.step;
      sum[i] = slot < p.slots ? read(p, slot, element) : 0;
    }
    CONVGRAD_UNROLL
    for (int apart = 1; apart < kFan; apart *= 2) {
      CONVGRAD_UNROLL
      for (int i = 0; i < kFan; i += 2 * apart) {
        if (first + (i + apart) * p.step < p.slots) sum[i] += sum[i + apart];
      }
    }
    static_cast<double*>(p.partials)[first * p.elements + element] = sum[0];
  }
};

}  // namespace convgrad::cuda
