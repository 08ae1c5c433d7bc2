// add_gradient.hpp - adds a gradient that a library computed to a partial gradient.
//
// Reads are not contiguous (dw has k outside), but dw is small beside x and dy: it is not worth a
// transposition in shared memory.
#pragma once

#include "cuda/kernels/geometry.hpp"

namespace convgrad::cuda {

template <typename Scalar>
struct AddGradient {
  using Acc = typename AccumulatorOf<Scalar>::type;
  static constexpr int kThreads = 256, kLeastBlocks = 0;

  struct Params {
    const void* dw;  // [k][c][tap], or [k][tap][c] with channels last
    void* partial;   // Sum<Acc> [tap][c][k]
    std::int64_t taps, group_c, K;
    bool channels_last;
    bool first;  // nothing has been written to `partial` yet
  };
  struct Regs {};
  struct Shared {};

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const std::int64_t i = task * kThreads + block.thread();
    if (i >= p.taps * p.group_c * p.K) return;
    const std::int64_t k = i % p.K, c = i / p.K % p.group_c, tap = i / p.K / p.group_c;
    const std::int64_t at =
        p.channels_last ? (k * p.taps + tap) * p.group_c + c : (k * p.group_c + c) * p.taps + tap;
    Sum<Acc>& to = static_cast<Sum<Acc>*>(p.partial)[i];
    Sum<Acc> sum = p.first ? Sum<Acc>{} : to;
    sum.add(convert<Acc>(static_cast<const Scalar*>(p.dw)[at]));
    to = sum;
  }
};

}  // namespace convgrad::cuda
