// threaded_device.hpp - the processor standing in for a CUDA device, as emulated_device.hpp does,
// but with a fiber for each thread: run() is executed by every thread for itself, and between two
// barriers nothing orders what they do. The thread sanitizer sees what of it can be a race.
//
// Asynchronous copies and products are threads of their own for it, from when they begin until they
// are waited for: whoever touches what they read or write meanwhile is reported.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <source_location>
#include <string>
#include <string_view>
#include <tuple>

#include "cuda/emulated_device.hpp"
#include "cuda/fibers.hpp"

namespace convgrad::testing {

// Where a kernel waits: for other threads, for copies or for products.
using Site = std::source_location;

// The sites that were met, as FILE:LINE:COLUMN; and the one that is dropped: it orders nothing, as
// if it were not there. Threads do wait there all the same, so that nothing else goes wrong than
// what the sanitizer is to see.
class Sites {
 public:
  std::string dropped;

  bool orders(const Site& site) {
    const auto [at, is_new] = orders_.try_emplace({site.file_name(), site.line(), site.column()});
    if (is_new) at->second = name(at->first) != dropped;
    return at->second;
  }
  std::vector<std::string> met() const {
    std::vector<std::string> names;
    for (const auto& [key, orders] : orders_) names.push_back(name(key));
    return names;
  }

 private:
  using Key = std::tuple<const char*, unsigned, unsigned>;

  static std::string name(const Key& key) {
    return cat(std::get<0>(key), ":", std::get<1>(key), ":", std::get<2>(key));
  }

  std::map<Key, bool> orders_;
};

// Of some threads of a block.
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
      arrived_ = 0;
      any_[1 - round] = false;
      ++round_;
    }
    fibers.wait([&] { return round_ % 2 != round; });
    if (orders) order_[round].acquire();
    return any_[round];
  }

 private:
  int threads_, arrived_ = 0;
  unsigned round_ = 0;
  bool any_[2] = {};
  Order order_[2];
};

// A barrier of bulk.hpp: a round ends when all have arrived and the bytes that they expect have.
struct BulkState {
  int arrivals = 1, arrived = 0, expected = 0, bytes = 0;
  unsigned round = 0;
  std::vector<std::function<void()>> copies;
  Order begun[2], ended[2];  // of even and odd rounds
  Timeline* copier = nullptr;

  void end_round_if_complete() {
    if (arrived != arrivals || expected != bytes) return;
    copier->acquire(begun[round % 2]);
    for (const auto& copy : copies) copy();
    copier->release(ended[round % 2]);
    copies.clear();
    arrived = expected = bytes = 0;
    ++round;
  }
  void arrive(bool orders) {
    end_round_if_complete();
    if (arrived == arrivals) throw std::logic_error("more threads arrive than a round has");
    if (orders) ended[round % 2].release();
    ++arrived;
  }
};

// Runs thread blocks one after the other. That there are two keeps the blocks of a launch from
// being in one order.
struct Multiprocessor {
  Fibers fibers;
  std::deque<Timeline> timelines;  // of what threads of a block begin together
};

// The threads that begin products together, and the products: one timeline for all, as whoever has
// waited for a product knows that all of it is done.
struct Warpgroup {
  static constexpr unsigned kProducts = 16;  // under way at a time
  FiberBarrier barrier{cuda::kWarpgroup};
  Timeline* products = nullptr;
  Order begun[kProducts], ended;
};

// What the threads of a block have in common; only looked at Unseen.
template <class Body>
struct Team {
  Team(Multiprocessor& multiprocessor, typename Body::Shared& memory, Sites& where, bool reversed)
      : processor(multiprocessor), shared(memory), sites(where), backwards(reversed) {
    for (int i = 0; i < Body::kThreads / cuda::kWarp; ++i) warps.emplace_back(cuda::kWarp);
    for (int i = 0; i < Body::kThreads / cuda::kWarpgroup; ++i) {
      warpgroups.emplace_back().products = &new_timeline();
    }
  }
  Timeline& new_timeline() {
    if (timelines == processor.timelines.size()) processor.timelines.emplace_back();
    return processor.timelines[timelines++];
  }
  Multiprocessor& processor;
  typename Body::Shared& shared;
  Sites& sites;
  bool backwards;
  FiberBarrier all{Body::kThreads};
  std::deque<FiberBarrier> warps;
  std::deque<Warpgroup> warpgroups;
  std::array<typename Body::Regs*, Body::kThreads> regs{};
  std::map<const cuda::BulkBarrier*, BulkState> bulk;
  std::size_t timelines = 0;  // that are taken
};

// One thread's view of its block. What a new primitive takes: the barrier that it waits at, or the
// data that it moves Unseen and tells its helper's timeline of.
template <class Body>
class ThreadedBlock {
 public:
  using Regs = typename Body::Regs;
  using Shared = typename Body::Shared;

  ThreadedBlock(Team<Body>& team, int thread)
      : shared(team.shared), team_(team), thread_(thread), memory_(&team.shared) {
    const Unseen unseen;
    std::memset(static_cast<void*>(&regs_), kUnwritten, sizeof(Regs));
    team.regs[static_cast<std::size_t>(thread)] = &regs_;
  }

  Shared& shared;

  template <class F>
  void each(F&& f, Site site = Site::current()) {
    f(thread_, regs_);
    wait(team_.all, site, false);
  }
  template <class F>
  void each_unsynced(F&& f) {
    f(thread_, regs_);
  }
  template <class F>
  bool each_any(F&& f, Site site = Site::current()) {
    return wait(team_.all, site, f(thread_, regs_));
  }

  // Copies arrive when they are waited for; or at once, where threads run backwards.
  template <int kBytes = 16>
  void copy_async(int, void* to, const void* from, bool there) {
    const Unseen unseen;
    begun_copies_[commits_ % kGroups].release();
    copies_.push_back({to, there ? from : nullptr, kBytes, commits_});
    if (team_.backwards) copies_.back().move();
  }
  void commit_copies(int) {
    const Unseen unseen;
    ++commits_;
  }
  template <int kPending>
  void wait_copies(int, Site site = Site::current()) {
    static_assert(kPending < kGroups);
    const Unseen unseen;
    while (!copies_.empty() && copies_.front().group + kPending < commits_) {
      const Copy& copy = copies_.front();
      if (!team_.backwards) copy.move();
      helper().acquire(begun_copies_[copy.group % kGroups]);
      if (copy.from != nullptr) helper().reads(copy.from, copy.bytes);
      helper().writes(copy.to, copy.bytes);
      copies_.pop_front();
    }
    wait_for_helper(site);
  }

  template <class Address>
  void load_transposed(int lane, std::uint32_t out[4], Address&& address) {
    testing::load_transposed(lane, out, address);
  }

  // The last lane that comes computes for all. That orders nothing but registers.
  template <class Op, int kRows, int kColumns, class FragmentA, class FragmentB, class FragmentC>
  void multiply(FragmentA&& a, FragmentB&& b, FragmentC&& c) {
    const Unseen unseen;
    const int first = thread_ / cuda::kWarp * cuda::kWarp;
    meet(team_.warps[static_cast<std::size_t>(thread_ / cuda::kWarp)], [&] {
      for (int i = 0; i < kRows; ++i) {
        for (int j = 0; j < kColumns; ++j) {
          multiply_warp<Op>(
              [&](int lane) -> decltype(auto) { return a(regs_of(first + lane), i); },
              [&](int lane) -> decltype(auto) { return b(regs_of(first + lane), j); },
              [&](int lane) -> decltype(auto) { return c(regs_of(first + lane), i, j); });
        }
      }
    });
  }

  template <class Produce, class Consume>
  void divide(Produce&& produce, Consume&& consume) {
    if (thread_ < Body::kConsumers) consume();
    if (thread_ == Body::kConsumers) produce();
  }

  // Threads that use a barrier before it is there are reported as races about its state.
  void init_barrier(cuda::BulkBarrier& barrier, int arrivals) {
    barrier.state = 0;
    const Unseen unseen;
    BulkState& state = team_.bulk[&barrier];
    state.arrivals = arrivals;
    state.copier = &team_.new_timeline();
  }
  // By all threads of some warps: what each lane has done before is done.
  void arrive_by_warps(cuda::BulkBarrier& barrier, Site site = Site::current()) {
    wait(team_.warps[static_cast<std::size_t>(thread_ / cuda::kWarp)], site, false);
    if (thread_ % cuda::kWarp != 0) return;
    BulkState& state = bulk_state(barrier);
    const Unseen unseen;
    state.arrive(team_.sites.orders(site));
  }
  void fence_async_proxy() {}
  void expect_bulk(cuda::BulkBarrier& barrier, int bytes) {
    BulkState& state = bulk_state(barrier);
    const Unseen unseen;
    state.arrive(true);
    state.expected += bytes;
  }
  void copy_bulk(void* to, const cuda::BulkTensor& from, const int (&at)[5],
                 cuda::BulkBarrier& barrier) {
    BulkState& state = bulk_state(barrier);
    const Unseen unseen;
    cuda::BulkMap map;
    std::memcpy(&map, from.bytes, sizeof(map));
    const auto copy = [this, to, map, at = std::to_array(at)] { memory_.copy_box(to, map, at); };
    state.begun[state.round % 2].release();
    state.bytes += box_bytes(map);
    if (team_.backwards) copy();
    state.copies.emplace_back([early = team_.backwards, &state, copy, to, bytes = box_bytes(map)] {
      if (!early) copy();
      state.copier->writes(to, static_cast<std::size_t>(bytes));
    });
  }
  void wait_bulk(cuda::BulkBarrier& barrier, unsigned round, Site site = Site::current()) {
    BulkState& state = bulk_state(barrier);
    const Unseen unseen;
    team_.processor.fibers.wait([&] {
      state.end_round_if_complete();
      return state.round % 2 != round;
    });
    if (team_.sites.orders(site)) state.ended[round].acquire();
  }

  // Products are done when they are waited for, by the last thread that does. What they read must
  // be there for every thread that begins them; whoever has waited may overwrite it.
  template <class Op, int kSteps, class AddressA, class AddressB, class FragmentC>
  void multiply_shared(bool fresh, int panel_bytes, AddressA&& a, AddressB&& b, FragmentC&& c) {
    const Unseen unseen;
    const int group = thread_ / cuda::kWarpgroup;
    begun_.release();
    helper().acquire(begun_);
    for (int i = 0; i < kSteps; ++i) {
      const std::uint64_t left = memory_.operand(a(group, i), panel_bytes);
      const std::uint64_t right = memory_.operand(b(i), panel_bytes);
      tell_reads<Op>(helper(), left, right);
      products_.push_back(
          {[this, left, right, c, clear = fresh && i == 0] { land<Op>(left, right, c, clear); },
           products_begun_});
    }
    helper().release(warpgroup().begun[products_begun_ % Warpgroup::kProducts]);
    ++products_begun_;
  }
  // The sums are the products' until then.
  template <class Op, int kPending, class FragmentC>
  void wait_multiplies(FragmentC&&, Site site = Site::current()) {
    static_assert(kPending < Warpgroup::kProducts);
    const Unseen unseen;
    Warpgroup& group = warpgroup();
    const auto done = [&](const Product& product) {
      return product.begin + kPending < products_begun_;
    };
    meet(group.barrier, [&] {
      for (const Product& product : products_) {
        if (!done(product)) continue;
        group.products->acquire(group.begun[product.begin % Warpgroup::kProducts]);
        product.land();
      }
      group.products->release(group.ended);
    });
    while (!products_.empty() && done(products_.front())) products_.pop_front();
    if (team_.sites.orders(site)) group.ended.acquire();
  }

  void atomic_min(std::uint32_t* least, std::uint32_t value) {
    const std::atomic_ref<std::uint32_t> shared_least(*least);
    std::uint32_t old = value;
    while (
        !shared_least.compare_exchange_weak(old, std::min(old, value), std::memory_order_relaxed)) {
    }
  }

 private:
  static constexpr unsigned kGroups = 16;  // of copies, under way at a time

  struct Copy {
    void* to;
    const void* from;  // nullptr: zeros
    std::size_t bytes;
    unsigned group;

    void move() const {
      if (from != nullptr) {
        std::memcpy(to, from, bytes);
      } else {
        std::memset(to, 0, bytes);
      }
    }
  };
  struct Product {
    std::function<void()> land;
    unsigned begin;
  };

  bool wait(FiberBarrier& barrier, const Site& site, bool value) {
    const Unseen unseen;
    return barrier.wait(team_.processor.fibers, team_.sites.orders(site), value, [] {});
  }
  // Some threads come together, which orders nothing.
  template <class ForAll>
  void meet(FiberBarrier& barrier, ForAll&& for_all) {
    barrier.wait(team_.processor.fibers, false, false, for_all);
  }
  Timeline& helper() { return team_.processor.fibers.helper(thread_); }
  void wait_for_helper(const Site& site) {
    helper().release(helped_);
    if (team_.sites.orders(site)) helped_.acquire();
  }
  Regs& regs_of(int thread) { return *team_.regs[static_cast<std::size_t>(thread)]; }

  BulkState& bulk_state(cuda::BulkBarrier& barrier) {
    static_cast<void>(*const_cast<volatile std::uint64_t*>(&barrier.state));
    const Unseen unseen;
    return team_.bulk.at(&barrier);
  }
  Warpgroup& warpgroup() {
    return team_.warpgroups[static_cast<std::size_t>(thread_ / cuda::kWarpgroup)];
  }
  // A product of the warpgroup. Its sums are its own until it is done.
  template <class Op, class FragmentC>
  void land(std::uint64_t left, std::uint64_t right, FragmentC&& c, bool clear) {
    const int first = thread_ / cuda::kWarpgroup * cuda::kWarpgroup;
    const auto sums = [&](int thread) -> typename Op::C& { return c(regs_of(first + thread)); };
    for (int thread = 0; clear && thread < cuda::kWarpgroup; ++thread) {
      std::ranges::fill(sums(thread), 0.0f);
    }
    memory_.multiply_group<Op>(left, right, sums);
    tell_reads<Op>(*warpgroup().products, left, right);
    for (int thread = 0; thread < cuda::kWarpgroup; ++thread) {
      warpgroup().products->writes(&sums(thread), sizeof(typename Op::C));
    }
  }
  // A word of each row of both operands: bulk copies write whole rows.
  template <class Op>
  void tell_reads(Timeline& timeline, std::uint64_t left, std::uint64_t right) {
    const auto tell = [&](std::uint64_t operand, int extent) {
      for (int k = 0; k < Op::kK; ++k) {
        for (int mn = 0; mn < extent; mn += cuda::kPanel) {
          timeline.reads(&memory_.element(operand, mn, k), sizeof(std::uint16_t));
        }
      }
    };
    tell(left, Op::kM);
    tell(right, Op::kN);
  }

  Team<Body>& team_;
  int thread_;
  SwizzledMemory memory_;
  Regs regs_;
  std::deque<Copy> copies_;
  std::deque<Product> products_;
  unsigned commits_ = 0, products_begun_ = 0;
  Order begun_, begun_copies_[kGroups], helped_;
};

// With the sanitizer, to compile all kernels would take minutes: left out are those whose code is
// that of another dtype, of float16 (bfloat16's), and of float64 without tensor cores (float32's).
template <class Body>
consteval bool is_compiled() {
  const std::string_view body = __PRETTY_FUNCTION__;
  const auto has = [&](std::string_view part) { return body.find(part) != body.npos; };
  return !has("::Float16") && !(has("double") && (has("Simt") || has("Streaming")));
}

class ThreadedDevice : public EmulatedDevice {
 public:
  static inline Sites sites;

  template <class Body>
  void launch(const typename Body::Params& params, std::int64_t tasks) {
    if constexpr (is_compiled<Body>()) {
      run<Body>(params, tasks);
    } else {
      throw std::logic_error("this kernel is not compiled for threads");
    }
  }

 private:
  static std::array<Multiprocessor, 2>& multiprocessors() {
    static auto& all = *new std::array<Multiprocessor, 2>;  // fibers may wait in them at the end
    return all;
  }

  template <class Body>
  void run(const typename Body::Params& params, std::int64_t tasks) {
    using Shared = typename Body::Shared;
    std::array<Multiprocessor, 2>& processors = multiprocessors();
    const std::unique_ptr<Shared> shared[2] = {std::make_unique<Shared>(),
                                               std::make_unique<Shared>()};
    std::unique_ptr<Team<Body>> team;
    std::int64_t task = 0;
    const auto run_thread = [&](int thread) {
      Team<Body>* own;
      std::int64_t number;
      {
        const Unseen unseen;
        own = team.get();
        number = task;
      }
      ThreadedBlock<Body> block(*own, thread);
      Body::run(block, params, number);
    };
    for (std::int64_t i = 0; i < tasks; ++i) {
      const Unseen unseen;
      task = backwards ? tasks - 1 - i : i;
      const auto p = static_cast<std::size_t>(i % 2);
      std::memset(static_cast<void*>(shared[p].get()), kUnwritten, sizeof(Shared));
      team = std::make_unique<Team<Body>>(processors[p], *shared[p], sites, backwards);
      processors[p].fibers.run(Body::kThreads, backwards, run_thread);
    }
    for (Multiprocessor& processor : processors) processor.fibers.finish();
  }
};

}  // namespace convgrad::testing
