// block.hpp - a thread block as kernels see it: phases of all threads, with a barrier after each.
//
// A kernel is a Body:
//   struct Params, Regs (what a thread keeps from phase to phase), Shared; constexpr int kThreads;
//   template <class Block> static void run(Block&, const Params&, std::int64_t task);
// run() calls block.each(f), f(thread, regs), for every phase. On a device that is f for the thread
// itself and a barrier; tests run f for one thread after the other (tests/emulated_block.hpp).
// Values outside of Regs and Shared are the same in all threads of a block.
#pragma once

#include "cuda/host_device.hpp"

namespace convgrad::cuda {

#if defined(__CUDACC__)

template <class Body>
struct DeviceBlock {
  using Regs = typename Body::Regs;
  using Shared = typename Body::Shared;

  Regs regs;
  Shared& shared;

  __device__ __forceinline__ explicit DeviceBlock(Shared& memory) : shared(memory) {}

  // f in all threads, then a barrier.
  template <class F>
  CONVGRAD_HD void each([[maybe_unused]] F&& f) {
#if defined(__CUDA_ARCH__)
    f(static_cast<int>(threadIdx.x), regs);
    __syncthreads();
#endif
  }
  // The same without the barrier: what follows only reads what the thread itself wrote.
  template <class F>
  CONVGRAD_HD void each_alone([[maybe_unused]] F&& f) {
#if defined(__CUDA_ARCH__)
    f(static_cast<int>(threadIdx.x), regs);
#endif
  }
  // each(), and whether any thread's f returned true.
  template <class F>
  CONVGRAD_HD bool each_any([[maybe_unused]] F&& f) {
#if defined(__CUDA_ARCH__)
    return __syncthreads_or(f(static_cast<int>(threadIdx.x), regs) ? 1 : 0) != 0;
#else
    return false;
#endif
  }

  // 16 bytes from global to shared memory on their own, or zeros if there is no source. They are
  // there when the thread has waited for their group, and for others after a barrier.
  CONVGRAD_HD void copy_async(int, [[maybe_unused]] void* to, [[maybe_unused]] const void* from,
                              [[maybe_unused]] bool there) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from),
                   "r"(there ? 16 : 0)
                 : "memory");
#endif
  }
  CONVGRAD_HD void commit_copies(int) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  }
  // Waits for all groups of the thread but the last kPending.
  template <int kPending>
  CONVGRAD_HD void wait_copies(int) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
#endif
  }

  // Four 8x8 matrices of 16-bit elements, transposed: lane 8*j + i gives the address of row i of
  // matrix j, and gets elements (2*(lane%4), lane/4) and (2*(lane%4) + 1, lane/4) of each.
  template <class Address>
  CONVGRAD_HD void load_transposed([[maybe_unused]] int lane, [[maybe_unused]] std::uint32_t out[4],
                                   [[maybe_unused]] Address&& address) {
#if defined(__CUDA_ARCH__)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(address(lane))))
                 : "memory");
#endif
  }

  // In every warp, for all i < kRows and j < kColumns: c(regs, i, j) += a(regs, i) * b(regs, j).
  template <class Op, int kRows, int kColumns, class FragmentA, class FragmentB, class FragmentC>
  CONVGRAD_HD void multiply([[maybe_unused]] FragmentA&& a, [[maybe_unused]] FragmentB&& b,
                            [[maybe_unused]] FragmentC&& c) {
#if defined(__CUDA_ARCH__)
    CONVGRAD_UNROLL
    for (int i = 0; i < kRows; ++i) {
      CONVGRAD_UNROLL
      for (int j = 0; j < kColumns; ++j) Op::multiply(c(regs, i, j), a(regs, i), b(regs, j));
    }
#endif
  }

  // *shared = the least of itself and value, which all threads may do in one phase.
  CONVGRAD_HD void least_of([[maybe_unused]] std::uint32_t* least,
                            [[maybe_unused]] std::uint32_t value) {
#if defined(__CUDA_ARCH__)
    atomicMin(least, value);
#endif
  }
};

#endif

}  // namespace convgrad::cuda
