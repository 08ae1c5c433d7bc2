// emulated_block.hpp - a thread block of a device, emulated: a fiber for each thread, between whose
// barriers nothing orders what they do.
//
// What nobody has written is NaN. The thread sanitizer sees whether another order could have
// another result (threaded_kernels.cpp). Asynchronous copies and products are done at once, but by
// threads of their own for it: it reports who touches their data before it has waited for them.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/emulated_device.hpp"
#include "cuda/emulated_instructions.hpp"
#include "cuda/fibers.hpp"

namespace convgrad::testing {

inline constexpr unsigned char kUnwritten = 0xff;

// Where a kernel waits: for other threads, for copies or for products. It is FILE:LINE.
struct Site {
  const char* file;
  int line;
  static constexpr Site current(const char* at = __builtin_FILE(), int number = __builtin_LINE()) {
    return {at, number};
  }
  auto operator<=>(const Site&) const = default;
  std::string name() const { return cat(file, ":", line); }
};

// The sites that were met, and whether each orders anything: one may be dropped. Threads wait there
// all the same, so that nothing else goes wrong than what the sanitizer is to see.
struct Sites {
  std::string dropped;
  std::map<Site, bool> met;

  bool orders(const Site& site) {
    if (!kSanitized) return true;
    const Unseen unseen;
    const auto [at, is_new] = met.try_emplace(site);
    if (is_new) at->second = site.name() != dropped;
    return at->second;
  }
};
inline Sites sites;

class FiberBarrier {
 public:
  explicit FiberBarrier(int threads) : threads_(threads) {}

  // Whether any thread gave true. for_all() is called once, when all have come and none goes on.
  template <class ForAll>
  bool wait(Fibers& fibers, bool orders, bool value, ForAll&& for_all) {
    const unsigned round = round_ % 2;
    if (orders) order_[round].release();
    any_[round] = any_[round] || value;
    if (++arrived_ == threads_) {
      for_all();
      end_round();
    }
    fibers.wait([&] { return round_ % 2 != round; });
    if (orders) order_[round].acquire();
    return any_[round];
  }
  // A thread has ended, and the others no longer wait for it.
  void leave() {
    if (arrived_ == --threads_) end_round();
  }

 private:
  void end_round() {
    arrived_ = 0;
    any_[++round_ % 2] = false;
  }

  int threads_, arrived_ = 0;
  unsigned round_ = 0;
  bool any_[2] = {};
  Order order_[2];
};

// A barrier of bulk.hpp: a round ends when all have arrived and the bytes that they expect have.
struct BulkState {
  int arrivals = 1, arrived = 0, expected = 0, bytes = 0;
  unsigned round = 0;
  Order ended[2];  // even and odd rounds
  Timeline* copier = nullptr;

  void arrive(bool orders) {
    if (orders) ended[round % 2].release();
    ++arrived;
    end_round_if_complete();
  }
  void end_round_if_complete() {
    if (arrived != arrivals || expected != bytes) return;
    copier->release(ended[round % 2]);
    arrived = expected = bytes = 0;
    ++round;
  }
};

// That there are two keeps the thread blocks of a launch from being in one order.
struct Multiprocessor {
  Fibers fibers;
  std::deque<Timeline> timelines;  // of what threads of a block begin together
  std::size_t taken = 0;           // of these
};

// So many groups of copies, or products, are under way at a time.
inline constexpr unsigned kUnderWay = 16;

// The threads that begin products together, and a timeline of these for each warp: who has waited
// for a product knows that its own warp's part of it is done.
struct Warpgroup {
  struct Products {
    Timeline* timeline = nullptr;
    Order ended[kUnderWay];
  };
  FiberBarrier barrier{cuda::kWarpgroup}, together{cuda::kWarpgroup};
  Products warps[cuda::kWarpgroup / cuda::kWarp];
  Order begun;
};

// What the threads of a block have in common; only looked at Unseen.
template <class Body>
struct Team {
  Team(Multiprocessor& multiprocessor, typename Body::Shared& memory, int rank_of_block,
       FiberBarrier& of_cluster)
      : processor(multiprocessor),
        shared(memory),
        rank(rank_of_block),
        cluster(of_cluster),
        warps(Body::kThreads / cuda::kWarp, FiberBarrier(cuda::kWarp)),
        warpgroups(Body::kThreads / cuda::kWarpgroup) {
    for (Warpgroup& group : warpgroups) {
      for (auto& products : group.warps) products.timeline = &new_timeline();
    }
  }
  Timeline& new_timeline() {
    if (processor.taken == processor.timelines.size()) processor.timelines.emplace_back();
    return processor.timelines[processor.taken++];
  }
  Multiprocessor& processor;
  typename Body::Shared& shared;  // those of a cluster follow each other
  const int rank;                 // in the cluster
  FiberBarrier& cluster;
  FiberBarrier all{Body::kThreads};
  std::vector<FiberBarrier> warps;
  std::vector<Warpgroup> warpgroups;
  // Registers of each thread: fragments of multiply(), sums of multiply_shared() are c.
  struct Operands {
    const void *a, *b;
    void* c;
  };
  std::array<Operands, Body::kThreads> operands{};
  std::map<const cuda::BulkBarrier*, BulkState> bulk;
  Order end;
  int ended = 0;  // threads
};

// One thread's view of its block (block.hpp). A new primitive waits at a barrier, or moves data
// Unseen and tells its helper's timeline.
template <class Body>
class EmulatedBlock {
 public:
  using Regs = typename Body::Regs;
  using Shared = typename Body::Shared;

  EmulatedBlock(Team<Body>& team, int thread)
      : shared(team.shared), team_(team), rank_(team.rank), thread_(thread), memory_(&team.shared) {
    const Unseen unseen;
    std::memset(static_cast<void*>(&regs), kUnwritten, sizeof(Regs));
  }

  Regs regs;
  Shared& shared;

  int thread() const { return thread_; }

  // Is called last. Shared memory ends with its block: whoever looks later sees NaN, or races.
  void end() {
    {
      const Unseen unseen;
      team_.cluster.leave();
      team_.end.release();
      if (++team_.ended < Body::kThreads) return;
      team_.end.acquire();
    }
    std::memset(static_cast<void*>(&shared), kUnwritten, sizeof(Shared));
  }

  void sync(Site site = Site::current()) { wait(team_.all, site, false); }
  bool any(bool here, Site site = Site::current()) {
    const bool result = wait(team_.all, site, here);
    if (result && thread_ == 0) ++agreements;
    return result;
  }

  void copy_async(void* to, const void* from, bool there) {
    constexpr int kBytes = 16;
    alignas(16) static constexpr char kZeros[16] = {};
    const void* const source = there ? from : kZeros;
    for (const void* place : {source, static_cast<const void*>(to)}) {
      if (reinterpret_cast<std::uintptr_t>(place) % kBytes == 0) continue;
      throw std::logic_error("a misaligned copy");
    }
    const Unseen unseen;
    begin(helper());
    std::memcpy(to, source, kBytes);
    helper().reads(source, kBytes);
    helper().writes(to, kBytes);
  }
  void commit_copies() { helper().release(committed_[commits_++ % kUnderWay]); }
  template <int kPending>
  void wait_copies(Site site = Site::current()) {
    static_assert(kPending < kUnderWay);
    if (commits_ <= kPending || !sites.orders(site)) return;
    committed_[(commits_ - kPending - 1) % kUnderWay].acquire();
  }

  // Here and in multiply() the last lane does it for all, which orders nothing but registers.
  void load_transposed(std::uint32_t (&out)[4], const void* row) {
    std::memcpy(out, row, sizeof(out));  // is seen: each lane reads the row that it points to
    const Unseen unseen;
    const auto* const of = operands_of_warp({row, nullptr, out});
    meet(warp(), [&] {
      for (int lane = 0; lane < cuda::kWarp; ++lane) {
        testing::load_transposed(lane, static_cast<std::uint32_t*>(of[lane].c),
                                 [&](int other) { return of[other].a; });
      }
    });
  }

  template <class Op, int kRows, int kColumns>
  void multiply(typename Op::C (&c)[kRows * kColumns], const typename Op::A (&a)[kRows],
                const typename Op::B (&b)[kColumns]) {
    if constexpr (!Op::kOfTensorCores) {
      for (int i = 0; i < kRows; ++i) {
        for (int j = 0; j < kColumns; ++j) Op::multiply(c[i * kColumns + j], a[i], b[j]);
      }
    } else {
      const Unseen unseen;
      const auto* const of = operands_of_warp({a, b, c});
      meet(warp(), [&] {
        for (int i = 0; i < kRows; ++i) {
          for (int j = 0; j < kColumns; ++j) {
            multiply_warp<Op>(
                [&](int n) -> auto& { return static_cast<const typename Op::A*>(of[n].a)[i]; },
                [&](int n) -> auto& { return static_cast<const typename Op::B*>(of[n].b)[j]; },
                [&](int n) -> auto& {
                  return static_cast<typename Op::C*>(of[n].c)[i * kColumns + j];
                });
          }
        }
      });
    }
  }

  template <class Produce, class Consume>
  void divide(Produce&& produce, Consume&& consume) {
    if (thread_ < Body::kConsumers) consume();
    if (thread_ == Body::kConsumers) produce();
  }
  template <class Work>
  void by_one_of_warp(Work&& work) {
    if (lane() == 0) work();
  }

  // Threads that use a barrier before it is there are reported as races about its state.
  template <std::size_t kCount>
  void init_barriers(cuda::BulkBarrier (&barriers)[kCount], int arrivals) {
    for (cuda::BulkBarrier& barrier : barriers) {
      barrier.state = 0;
      const Unseen unseen;
      BulkState& state = team_.bulk[&barrier];
      state.arrivals = arrivals;
      state.copier = &team_.new_timeline();
    }
  }
  void fence_barriers() {}
  void fence_async_proxy() {}
  // By all threads of some warps: what each lane has done before is done.
  void arrive_by_warps(cuda::BulkBarrier& barrier, Site site = Site::current()) {
    wait(warp(), site, false);
    if (lane() != 0) return;
    BulkState& state = bulk_state(barrier);
    const Unseen unseen;
    state.arrive(sites.orders(site));
  }
  void expect_bulk(cuda::BulkBarrier& barrier, int bytes) {
    BulkState& state = bulk_state(barrier);
    const Unseen unseen;
    state.expected += bytes;
    state.arrive(true);
  }
  void copy_bulk(void* to, const cuda::BulkTensor& from, const int (&at)[5],
                 cuda::BulkBarrier& barrier) {
    BulkState& state = bulk_state(barrier);
    const Unseen unseen;
    const cuda::BulkMap* described;
    std::memcpy(&described, from.bytes, sizeof(described));
    const cuda::BulkMap& map = *described;
    const auto offset = static_cast<unsigned char*>(to) - reinterpret_cast<unsigned char*>(&shared);
    if (offset % cuda::kBulkAlignment != 0 || at[0] * map.item_bytes % 16 != 0) {
      throw std::logic_error("a misaligned bulk copy");
    }
    begin(*state.copier);
    memory_.copy_box(to, map, std::to_array(at));
    state.copier->writes(to, static_cast<std::size_t>(box_bytes(map)));
    state.bytes += box_bytes(map);
    state.end_round_if_complete();
  }
  void wait_bulk(cuda::BulkBarrier& barrier, unsigned round, Site site = Site::current()) {
    BulkState& state = bulk_state(barrier);
    const Unseen unseen;
    team_.processor.fibers.wait([&] { return state.round % 2 != round; });
    if (sites.orders(site)) state.ended[round].acquire();
  }

  void sync_cluster(Site site = Site::current()) { wait(team_.cluster, site, false); }
  template <typename T>
  const T& of_block(const T& own, int rank) {
    const auto at = reinterpret_cast<const char*>(&own) - reinterpret_cast<const char*>(&shared);
    return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(&shared + rank - rank_) + at);
  }

  void sync_group(Site site = Site::current()) { wait(warpgroup().together, site, false); }
  // Nobody relies on its being a barrier, too.
  bool any_of_group(bool here) {
    const Unseen unseen;
    const bool result = warpgroup().together.wait(team_.processor.fibers, false, here, [] {});
    if (result && thread_ % cuda::kWarpgroup == 0) ++agreements;
    return result;
  }

  std::uint64_t operand(const void* at, int row_bytes, int panel_bytes) const {
    return memory_.operand(at, row_bytes, panel_bytes);
  }
  // The last thread computes them. What they read must be there for every thread that begins them.
  template <class Op, int kSteps, cuda::Onto kOnto = cuda::Onto::sums,
            int kFirst = cuda::kLastProduct, int kEnd = cuda::kProducts>
  void begin_multiply(std::uint64_t a, std::uint32_t a_bytes, std::uint64_t b,
                      std::uint32_t b_bytes, typename Op::C& c, std::uint32_t term_bytes = 0) {
    const Unseen unseen;
    Warpgroup& group = warpgroup();
    team_.operands[static_cast<std::size_t>(thread_)].c = &c;
    const auto each = [&](auto&& f) {
      cuda::each_instruction<kSteps, kOnto, kFirst, kEnd>(a, a_bytes, b, b_bytes, term_bytes, f);
    };
    begin(helper());
    each([&](auto left, auto right, bool) { tell_reads<Op>(helper(), left, right); });
    helper().release(group.begun);
    meet(group.barrier, [&] {
      for (auto& warp : group.warps) warp.timeline->acquire(group.begun);
      each([&](auto left, auto right, bool adds) { multiply_group<Op>(left, right, adds); });
      for (auto& warp : group.warps) warp.timeline->release(warp.ended[products_ % kUnderWay]);
    });
    ++products_;
  }
  // The sums are the products' until then.
  template <class Op, int kPending>
  void wait_multiplies(typename Op::C&, Site site = Site::current()) {
    static_assert(kPending < kUnderWay);
    if (products_ <= kPending || !sites.orders(site)) return;
    own_products().ended[(products_ - kPending - 1) % kUnderWay].acquire();
  }

 private:
  int lane() const { return thread_ % cuda::kWarp; }
  FiberBarrier& warp() { return team_.warps[static_cast<std::size_t>(thread_ / cuda::kWarp)]; }
  // Shows the others of the warp this thread's operands.
  const auto* operands_of_warp(typename Team<Body>::Operands own) {
    team_.operands[static_cast<std::size_t>(thread_)] = own;
    return &team_.operands[static_cast<std::size_t>(thread_ - lane())];
  }
  Warpgroup& warpgroup() {
    return team_.warpgroups[static_cast<std::size_t>(thread_ / cuda::kWarpgroup)];
  }
  Warpgroup::Products& own_products() {
    return warpgroup().warps[thread_ % cuda::kWarpgroup / cuda::kWarp];
  }
  Timeline& helper() { return team_.processor.fibers.helper(rank_ * Body::kThreads + thread_); }
  // Lets a timeline go on with what this thread has begun.
  void begin(Timeline& timeline) {
    begun_.release();
    timeline.acquire(begun_);
  }

  bool wait(FiberBarrier& barrier, const Site& site, bool value) {
    const Unseen unseen;
    return barrier.wait(team_.processor.fibers, sites.orders(site), value, [] {});
  }
  // Some threads come together, which orders nothing.
  template <class ForAll>
  void meet(FiberBarrier& barrier, ForAll&& for_all) {
    const Unseen unseen;
    barrier.wait(team_.processor.fibers, false, false, for_all);
  }
  BulkState& bulk_state(cuda::BulkBarrier& barrier) {
    static_cast<void>(*const_cast<volatile std::uint64_t*>(&barrier.state));
    const Unseen unseen;
    return team_.bulk.at(&barrier);
  }

  template <class Op>
  void multiply_group(std::uint64_t left, std::uint64_t right, bool adds) {
    const int first = thread_ / cuda::kWarpgroup * cuda::kWarpgroup;
    const auto sums = [&](int thread) -> typename Op::C& {
      void* const c = team_.operands[static_cast<std::size_t>(first + thread)].c;
      return *static_cast<typename Op::C*>(c);
    };
    memory_.multiply_group<Op>(left, right, adds, sums);
    for (auto& warp : warpgroup().warps) tell_reads<Op>(*warp.timeline, left, right);
    for (int thread = 0; thread < cuda::kWarpgroup; ++thread) {
      warpgroup().warps[thread / cuda::kWarp].timeline->writes(&sums(thread),
                                                               sizeof(typename Op::C));
    }
  }
  // A word of each row of both operands: bulk copies write whole rows.
  template <class Op>
  void tell_reads(Timeline& timeline, std::uint64_t left, std::uint64_t right) {
    if (!kSanitized) return;
    for (const auto& [operand, extent] : {std::pair(left, Op::kM), std::pair(right, Op::kN)}) {
      for (int at = 0; at < Op::kK * extent; at += 32) {
        timeline.reads(&memory_.element(operand, at % extent, at / extent), 2);
      }
    }
  }

  Team<Body>& team_;
  int rank_, thread_;
  SwizzledMemory memory_;
  unsigned commits_ = 0, products_ = 0;
  Order begun_, committed_[kUnderWay];
};

}  // namespace convgrad::testing
