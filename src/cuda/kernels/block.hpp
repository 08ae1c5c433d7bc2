// block.hpp - a thread block as kernels see it: phases of all threads, with a barrier after each.
//
// A kernel is a Body:
//   struct Params, Regs (what a thread keeps from phase to phase), Shared; constexpr int kThreads;
//   template <class Block> static void run(Block&, const Params&, std::int64_t task);
// run() calls block.each(f), f(thread, regs), for every phase. On a device that is f for the thread
// itself and a barrier; tests run f for one thread after the other (EmulatedBlock in
// tests/cuda/emulated_device.hpp), which is why a kernel is written in phases at all.
// Values outside of Regs and Shared are the same in all threads of a block.
//
// Everything is inlined into one kernel, and Regs taken apart: an array of it stays in registers
// where all its indices are constants (CONVGRAD_UNROLL). Inline assembly is volatile with a memory
// clobber, as the compiler does not see what asynchronous copies and products read and write.
#pragma once

#if defined(CONVGRAD_BOUNDED_WAITS)
#include <cstdio>
#endif

#include "cuda/kernels/bulk.hpp"
#include "cuda/kernels/host_device.hpp"
#include "cuda/kernels/wgmma.hpp"

namespace convgrad::cuda {

#if defined(__CUDACC__)

template <class Body>
struct DeviceBlock {
  using Regs = typename Body::Regs;
  using Shared = typename Body::Shared;

  Regs regs;
  Shared& shared;

  __device__ __forceinline__ explicit DeviceBlock(Shared& memory) : shared(memory) {}

  // Runs f in all threads, then a barrier.
  template <class F>
  CONVGRAD_HD void each([[maybe_unused]] F&& f) {
#if defined(__CUDA_ARCH__)
    f(static_cast<int>(threadIdx.x), regs);
    __syncthreads();
#endif
  }
  // Leaves the barrier out: what follows only reads what the thread itself wrote.
  template <class F>
  CONVGRAD_HD void each_unsynced([[maybe_unused]] F&& f) {
#if defined(__CUDA_ARCH__)
    f(static_cast<int>(threadIdx.x), regs);
#endif
  }
  // Does what each() does; the barrier collects whether any thread's f returned true.
  template <class F>
  CONVGRAD_HD bool each_any([[maybe_unused]] F&& f) {
#if defined(__CUDA_ARCH__)
    return __syncthreads_or(f(static_cast<int>(threadIdx.x), regs) ? 1 : 0) != 0;
#else
    return false;
#endif
  }

  // Copies 16, 8 or 4 bytes from global to shared memory on their own, or zeros if there is no
  // source: a source of 0 bytes leaves zeros (PTX ISA, "cp.async", src-size). They have arrived
  // when the thread has waited for their group, and for others after a barrier. They pass no
  // registers and, by .cg, which is for 16 bytes, no L1 cache, which has nothing to keep: a block
  // reads each element once. Below compute capability 8.0 they arrive at once.
  template <int kBytes = 16>
  CONVGRAD_HD void copy_async(int, [[maybe_unused]] void* to, [[maybe_unused]] const void* from,
                              [[maybe_unused]] bool there) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (kBytes == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                   :
                   : "r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0)
                   : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                   :
                   : "r"(shared_address(to)), "l"(from), "n"(kBytes), "r"(there ? kBytes : 0)
                   : "memory");
    }
#elif defined(__CUDA_ARCH__)
    struct alignas(kBytes) Bytes {
      std::uint32_t word[kBytes / 4];
    };
    *static_cast<Bytes*>(to) = there ? *static_cast<const Bytes*>(from) : Bytes{};
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

  // Loads four 8x8 matrices of 16-bit elements, transposed (PTX ISA, "ldmatrix", .trans): lane 8*j
  // + i gives the address of row i of matrix j, and gets elements (2*(lane%4), lane/4) and
  // (2*(lane%4) + 1, lane/4) of each. address(lane) is a function because the emulation asks it for
  // other lanes' addresses.
  template <class Address>
  CONVGRAD_HD void load_transposed([[maybe_unused]] int lane, [[maybe_unused]] std::uint32_t out[4],
                                   [[maybe_unused]] Address&& address) {
#if defined(__CUDA_ARCH__)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(address(lane)))
                 : "memory");
#endif
  }

  // Forms c(regs, i, j) += a(regs, i) * b(regs, j) in every warp, for i < kRows and j < kColumns.
  // Neighbouring instructions add to different sums, so none waits for the one before.
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

  // ---- Compute capability 9.0 (bulk.hpp, wgmma.hpp). These instructions exist for the target 90a
  // alone; built for others, kernels stop at once instead of computing something else.

  // From here on the block's threads have two roles: thread Body::kConsumers alone produces, those
  // below it consume. They meet at BulkBarriers only, no longer at each().
  //
  // The block starts with 168 registers a thread, which is what three warpgroups can have of 65536.
  // The producer's warpgroup gives most of them to the consumers' (PTX ISA, "setmaxnreg"): all
  // warps of one execute it, though all but a thread of the producer's have nothing to do.
  template <class Produce, class Consume>
  CONVGRAD_HD void divide([[maybe_unused]] Produce&& produce, [[maybe_unused]] Consume&& consume) {
    static_assert(Body::kConsumers == 2 * kWarpgroup && Body::kThreads == 3 * kWarpgroup);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if (threadIdx.x < Body::kConsumers) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
      consume();
    } else {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
      if (threadIdx.x == Body::kConsumers) produce();
    }
#endif
  }

  // One thread calls it, before a barrier of all. A round is over when so many threads have
  // arrived, and all bytes that they expect.
  CONVGRAD_HD void init_barrier([[maybe_unused]] BulkBarrier& barrier,
                                [[maybe_unused]] int arrivals) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    // Descriptors and swizzles need a block of shared memory that is aligned as declared. Assembly
    // reads it: the compiler takes the declared alignment for granted and would drop the check.
    std::uint32_t address;
    asm volatile("mov.u32 %0, %1;" : "=r"(address) : "r"(shared_address(&shared)));
    if (address % kSwizzleBytes != 0) __trap();
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :
                 : "r"(shared_address(&barrier)), "r"(arrivals)
                 : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#elif defined(__CUDA_ARCH__)
    __trap();
#endif
  }
  // What the thread wrote to shared memory is visible to bulk copies and products after a barrier:
  // they access it by another path (PTX ISA, "Async proxy").
  CONVGRAD_HD void fence_async_proxy() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  }
  // All warps of a role call it. Each arrives as one when its threads are here: what they have done
  // before is done for those who wait for the round.
  CONVGRAD_HD void arrive_by_warps([[maybe_unused]] BulkBarrier& barrier) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __syncwarp();
    if (threadIdx.x % kWarp == 0) {
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                   :
                   : "r"(shared_address(&barrier))
                   : "memory");
    }
#endif
  }
  // One thread calls it and arrives before copies of so many bytes, for which the round waits, too.
  CONVGRAD_HD void expect_bulk([[maybe_unused]] BulkBarrier& barrier, [[maybe_unused]] int bytes) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(shared_address(&barrier)), "r"(bytes)
                 : "memory");
#endif
  }
  CONVGRAD_HD void copy_bulk([[maybe_unused]] void* to, [[maybe_unused]] const BulkTensor& from,
                             [[maybe_unused]] const int (&at)[5],
                             [[maybe_unused]] BulkBarrier& barrier) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
        :
        : "r"(shared_address(to)), "l"(&from), "r"(shared_address(&barrier)), "r"(at[0]),
          "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
        : "memory");
#endif
  }
  // Waits until a round is over: 0 is the first, third, ... one, by the parity of the barrier's
  // phase; before the first is over, round 1 counts as over. Every thread waits that uses what has
  // arrived; try_wait suspends the thread for a while before it returns. Where bytes never arrive,
  // that is for ever; with CONVGRAD_BOUNDED_WAITS the kernel ends and says which did not.
  CONVGRAD_HD void wait_bulk([[maybe_unused]] BulkBarrier& barrier,
                             [[maybe_unused]] unsigned round) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    unsigned there = 0;
#if defined(CONVGRAD_BOUNDED_WAITS)
    const long long start = clock64();
#endif
    while (there == 0) {
#if defined(CONVGRAD_BOUNDED_WAITS)
      if (clock64() - start > kMostWaitCycles) stop_waiting(number_of(shared, barrier, 0), round);
#endif
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(there)
          : "r"(shared_address(&barrier)), "r"(round)
          : "memory");
    }
#endif
  }

  // Begins in every warpgroup c(regs) += A * B for kSteps times Op::kK of k, or c(regs) = A * B
  // where `fresh`: step i's operands are at a(warpgroup, i) and b(i).
  template <class Op, int kSteps, class AddressA, class AddressB, class FragmentC>
  CONVGRAD_HD void multiply_shared([[maybe_unused]] bool fresh, [[maybe_unused]] int panel_bytes,
                                   [[maybe_unused]] AddressA&& a, [[maybe_unused]] AddressB&& b,
                                   [[maybe_unused]] FragmentC&& c) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
    __syncwarp();  // .aligned: all threads of a warp together, also after copies by one of them
    Op::fence_sums(c(regs));
    // Orders the sums' registers, which other instructions may have written, before the products.
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    // Steps are equally far apart: additions to the first step's descriptors are all they take.
    const std::uint64_t first_a = operand_at(shared_address(a(group, 0)), panel_bytes);
    const std::uint64_t first_b = operand_at(shared_address(b(0)), panel_bytes);
    CONVGRAD_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      Op::begin(c(regs),
                operand_after(first_a, shared_address(a(group, i)) - shared_address(a(group, 0))),
                operand_after(first_b, shared_address(b(i)) - shared_address(b(0))),
                fresh && i == 0);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    Op::fence_sums(c(regs));
#endif
  }
  // Waits for the thread's warpgroup's products, but those of the last kPending begins.
  template <class Op, int kPending, class FragmentC>
  CONVGRAD_HD void wait_multiplies([[maybe_unused]] FragmentC&& c) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __syncwarp();
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kPending) : "memory");
    Op::fence_sums(c(regs));
#endif
  }

  // Sets *least to the least of itself and value. All threads may do so in one phase, as the order
  // does not matter to a minimum.
  CONVGRAD_HD void atomic_min([[maybe_unused]] std::uint32_t* least,
                              [[maybe_unused]] std::uint32_t value) {
#if defined(__CUDA_ARCH__)
    atomicMin(least, value);
#endif
  }

 private:
#if defined(CONVGRAD_BOUNDED_WAITS)
  // These are seconds, where copies take microseconds. Cycles are counted, as it is not documented
  // for how long one try_wait suspends a thread.
  static constexpr long long kMostWaitCycles = 1ll << 33;

  // Returns a barrier's number among `arrived`, and behind it `used`; -1 where a kernel calls them
  // otherwise. Overloads do it, as .cu files are C++17.
  template <class S>
  CONVGRAD_HD static auto number_of(const S& s, const BulkBarrier& barrier, int)
      -> decltype(static_cast<int>(&barrier - s.arrived)) {
    return static_cast<int>(&barrier - s.arrived);
  }
  template <class S>
  CONVGRAD_HD static int number_of(const S&, const BulkBarrier&, long) {
    return -1;
  }
  // It is static and not inlined, so that the threads' registers stay registers.
  __device__ __noinline__ static void stop_waiting(int number, unsigned round) {
    const unsigned waiting = __activemask();  // one thread, where one copies for all
    if ((waiting & ((1u << threadIdx.x % kWarp) - 1)) == 0) {
      printf("convgrad: block %u thread %u waits for barrier %d, round %u, in vain\n", blockIdx.x,
             threadIdx.x, number, round);
    }
    __syncwarp(waiting);  // nothing is printed behind a trap
    __trap();
  }
#endif
#if defined(__CUDA_ARCH__)
  __device__ __forceinline__ static unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
  }
#endif
};

#endif

}  // namespace convgrad::cuda
