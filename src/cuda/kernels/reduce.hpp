// reduce.hpp - adds the partial gradients of all slices in a fixed binary tree.
//
// It adds in float64, once per slice and element: the time is that of reading the partials. Nothing
// is added atomically, as the order of atomic additions, and the bits with it, would vary from run
// to run.
#pragma once

#include "cuda/kernels/sum.hpp"

namespace convgrad::cuda {

// One level of the tree takes slots first, first + step, ... (at most kFan of them) of each
// element, which become one float64 in slot first. The first level reads sums, the others float64.
// The tree is that of src/engine/partial_tree.hpp: neighbours are added, then neighbours of those,
// the odd one is kept. It does not depend on kFan, a power of two: a launch does kDepth levels for
// kFan slots, which reads them once where a launch a level would read and write them kDepth times.
// It works in place, since each thread reads and writes only its own element.
template <typename Acc>
struct ReduceSlices {
  static constexpr int kThreads = 256, kFan = 16, kDepth = 4;

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
    // waiting[b] is a sum of 2^b neighbours that has no partner yet; bit b of count says whether
    // there is one. It is a binary counter, unrolled over b so that it stays in registers.
    double waiting[kDepth + 1] = {};
    int count = 0;
    for (std::int64_t slot = first; count < kFan && slot < p.slots; slot += p.step, ++count) {
      double value = read(p, slot, element);
      CONVGRAD_UNROLL
      for (int b = 0; b < kDepth; ++b) {
        if ((count & ((1 << (b + 1)) - 1)) == (1 << (b + 1)) - 1) value = waiting[b] + value;
        if ((count & ((1 << (b + 1)) - 1)) == (1 << b) - 1) waiting[b] = value;
      }
      if (count == kFan - 1) waiting[kDepth] = value;
    }
    // Adds what is left without a partner, from the last and smallest on.
    double result = 0;
    bool any = false;
    CONVGRAD_UNROLL
    for (int b = 0; b <= kDepth; ++b) {
      if ((count >> b & 1) == 0) continue;
      result = any ? waiting[b] + result : waiting[b];
      any = true;
    }
    static_cast<double*>(p.partials)[first * p.elements + element] = result;
  }
};

}  // namespace convgrad::cuda
