// block.hpp - a thread of a thread block as kernels see it.
//
// A kernel is a Body:
//   struct Params, Regs (what a thread keeps), Shared;
//   constexpr int kThreads, kLeastBlocks;  // of a multiprocessor, or 0 (launch_tasks.cuh)
//   template <class Block> static void run(Block&, const Params&, std::int64_t task);
// Every thread calls run() with a Block of its own: on a device this one, in tests that of
// tests/cuda/emulated_block.hpp, which has the same functions.
//
// Everything is inlined, and Regs taken apart: an array of it stays in registers where all its
// indices are constants (CONVGRAD_UNROLL). Inline assembly is volatile with a memory clobber, as
// the compiler does not see what asynchronous copies and products read and write.
#pragma once

#include "cuda/kernels/bulk.hpp"
#include "cuda/kernels/host_device.hpp"
#include "cuda/kernels/wgmma.hpp"

namespace convgrad::cuda {

template <class Body>
struct DeviceBlock {
  using Regs = typename Body::Regs;
  using Shared = typename Body::Shared;

  Regs regs;
  Shared& shared;

  CONVGRAD_HD explicit DeviceBlock(Shared& memory) : shared(memory) {}

  CONVGRAD_HD static int thread() { return static_cast<int>(threadIdx.x); }

  // Is a barrier of all threads.
  CONVGRAD_HD static void sync() { __syncthreads(); }
  // Is one that also collects whether any thread says so.
  CONVGRAD_HD static bool any(bool here) { return __syncthreads_or(here ? 1 : 0) != 0; }

  // Copies 16 bytes from global to shared memory on their own, or zeros, which a source of 0 bytes
  // leaves (PTX ISA, "cp.async", src-size). They have arrived when the thread has waited for their
  // group, for others after a barrier; below compute capability 8.0 at once. They pass no registers
  // and, by .cg, no L1 cache, which has nothing to keep: a block reads each element once.
  CONVGRAD_HD static void copy_async(void* to, const void* from, bool there) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    const unsigned at = shared_address(to), bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
#else
    *static_cast<uint4*>(to) = there ? *static_cast<const uint4*>(from) : uint4{};
#endif
  }
  CONVGRAD_HD static void commit_copies() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  }
  // Waits for all groups of the thread but the last kPending.
  template <int kPending>
  CONVGRAD_HD static void wait_copies() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" : : "n"(kPending) : "memory");
#endif
  }

  // Loads four 8x8 matrices of 16-bit elements, transposed (PTX ISA, "ldmatrix", .trans): lane
  // 8*j + i gives the address of row i of matrix j; each gets (2*(lane%4) + {0, 1}, lane/4) of all.
  CONVGRAD_HD static void load_transposed(std::uint32_t (&out)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
  }

  // Forms c[i, j] += a[i] * b[j] in every warp. No instruction waits for the sums of the one
  // before.
  template <class Op, int kRows, int kColumns>
  CONVGRAD_HD static void multiply(typename Op::C (&c)[kRows * kColumns],
                                   const typename Op::A (&a)[kRows],
                                   const typename Op::B (&b)[kColumns]) {
    CONVGRAD_UNROLL
    for (int i = 0; i < kRows; ++i) {
      CONVGRAD_UNROLL
      for (int j = 0; j < kColumns; ++j) Op::multiply(c[i * kColumns + j], a[i], b[j]);
    }
  }

  // ---- Compute capability 9.0 (bulk.hpp, wgmma.hpp), for the target 90a alone.

  CONVGRAD_HD static void refuse() { __trap(); }

  // From here on the block's threads have two roles: one thread behind Body::kConsumers alone
  // produces, those below it consume. They meet at BulkBarriers only, no longer at sync().
  //
  // The block starts with as many registers a thread as 65536 leave for each: 168 or 128. The
  // producer's warpgroup, all warps of it, gives most of them to the consumers' (PTX ISA,
  // "setmaxnreg"). Its thread is elected, by which the compiler knows that it is one: it would
  // repeat bulk copies for each thread of a warp that a comparison lets through.
  template <class Produce, class Consume>
  CONVGRAD_HD static void divide(Produce&& produce, Consume&& consume) {
    constexpr int kGroups = Body::kConsumers / kWarpgroup;
    static_assert((kGroups == 2 || kGroups == 3) && Body::kThreads == (kGroups + 1) * kWarpgroup);
    if (threadIdx.x < Body::kConsumers) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kGroups == 2 ? 240 : 160));
      consume();
    } else {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
      if (threadIdx.x / kWarp == Body::kConsumers / kWarp) by_one_of_warp(produce);
    }
  }
  // All threads of a warp call it.
  template <class Work>
  CONVGRAD_HD static void by_one_of_warp(Work&& work) {
    unsigned elected;
    asm volatile(
        "{\n.reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(elected));
    if (elected != 0) work();
  }

  // One thread calls these, before a barrier of all. A round of a barrier is over when so many
  // threads have arrived, and all bytes that they expect.
  template <int kCount>
  CONVGRAD_HD void init_barriers(BulkBarrier (&barriers)[kCount], int arrivals) {
    CONVGRAD_UNROLL
    for (int i = 0; i < kCount; ++i) {
      const unsigned at = shared_address(&barriers[i]);
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
    }
  }
  // Is called behind the last of them.
  CONVGRAD_HD void fence_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    // Descriptors and swizzles need shared memory that is aligned as declared, which the compiler
    // takes for granted: it would drop a check of what no assembly has read.
    std::uint32_t address;
    asm volatile("mov.u32 %0, %1;" : "=r"(address) : "r"(shared_address(&shared)));
    if (address % kSwizzleBytes != 0) __trap();
  }
  // What the thread wrote to shared memory is visible to bulk copies and products after a barrier:
  // they access it by another path (PTX ISA, "Async proxy").
  CONVGRAD_HD static void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  // All warps of a role call it. Each arrives as one when its threads are here: what they have done
  // before is done for those who wait for the round.
  CONVGRAD_HD static void arrive_by_warps(BulkBarrier& barrier) {
    __syncwarp();
    if (threadIdx.x % kWarp != 0) return;
    const unsigned at = shared_address(&barrier);
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
  }
  // One thread calls it and arrives before copies of so many bytes, for which the round waits, too.
  CONVGRAD_HD static void expect_bulk(BulkBarrier& barrier, int bytes) {
    const unsigned at = shared_address(&barrier);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
  }
  CONVGRAD_HD static void copy_bulk(void* to, const BulkTensor& from, const int (&at)[5],
                                    BulkBarrier& barrier) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(to)),
        "l"(&from), "r"(shared_address(&barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
        "r"(at[4])
        : "memory");
  }
  // Waits until a round is over, for ever where bytes never arrive: 0 is the first, third, ... one,
  // by the parity of the barrier's phase; before the first is over, round 1 counts as over. Every
  // thread waits that uses what has arrived; try_wait suspends it for a while before it returns.
  CONVGRAD_HD static void wait_bulk(BulkBarrier& barrier, unsigned round) {
    unsigned there = 0;
    while (there == 0) {
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(there)
          : "r"(shared_address(&barrier)), "r"(round)
          : "memory");
    }
  }

  // Returns the descriptor of an operand whose first row is at `at` (wgmma.hpp).
  CONVGRAD_HD std::uint64_t operand(const void* at, int row_bytes, int panel_bytes) const {
    return operand_at(shared_address(at), row_bytes, panel_bytes);
  }
  // Begins in every warpgroup c += A * B, or c = A * B, for kSteps steps of Op::kK of k
  // (each_instruction()). How many is known to the compiler, as ptxas lets instructions overlap
  // that nothing stands between: one by one they take longer (seen on an H100).
  template <class Op, int kSteps, Onto kOnto = Onto::sums, int kFirst = kLastProduct,
            int kEnd = kProducts>
  CONVGRAD_HD static void begin_multiply(std::uint64_t a, std::uint32_t a_bytes, std::uint64_t b,
                                         std::uint32_t b_bytes, typename Op::C& c,
                                         std::uint32_t term_bytes = 0) {
    __syncwarp();  // .aligned: all threads of a warp together, also after copies by one of them
    Op::fence_sums(c);
    // Orders the sums' registers, which other instructions may have written, before the products.
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    each_instruction<kSteps, kOnto, kFirst, kEnd>(
        a, a_bytes, b, b_bytes, term_bytes,
        [&](std::uint64_t left, std::uint64_t right, bool adds) {
          Op::begin(c, left, right, adds);
        });
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    Op::fence_sums(c);
  }
  // Waits for the thread's warpgroup's products, but those of the last kPending begins.
  template <class Op, int kPending>
  CONVGRAD_HD static void wait_multiplies(typename Op::C& c) {
    __syncwarp();
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kPending) : "memory");
    Op::fence_sums(c);
  }

  // Is a barrier of all threads of the block's cluster but those that have ended.
  CONVGRAD_HD static void sync_cluster() {
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
  }
  // Returns what block number `rank` of the cluster has where this one has `own` in shared memory.
  template <typename T>
  CONVGRAD_HD static const T& of_block(const T& own, int rank) {
    const T* there;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(&own), "r"(rank));
    return *there;
  }

  // Are barriers of the thread's warpgroup alone.
  CONVGRAD_HD static void sync_group() { any_of_group(false); }
  CONVGRAD_HD static bool any_of_group(bool here) {
    unsigned result;
    asm volatile(
        "{\n.reg .pred p, q;\n"
        "setp.ne.u32 p, %1, 0;\n"
        "barrier.cta.red.or.pred q, %2, 128, p;\n"
        "selp.u32 %0, 1, 0, q;\n}"
        : "=r"(result)
        : "r"(here ? 1 : 0), "r"(1 + static_cast<int>(threadIdx.x) / kWarpgroup)
        : "memory");
    return result != 0;
  }

 private:
  CONVGRAD_HD static unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
  }
};

}  // namespace convgrad::cuda
