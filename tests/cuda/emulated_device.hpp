// emulated_device.hpp - the processor standing in for a CUDA device: the code of device kernels,
// with a fiber for each thread of a block, between whose barriers nothing orders what they do.
//
// What a thread or a block has not written is NaN. Asynchronous copies and products are done when
// they are waited for.
//
// Whether another order could have another result, the thread sanitizer sees
// (threaded_kernels.cpp): all that races. Copies and products are threads of their own for it, from
// when they begin until they are waited for: whoever touches what they read or write meanwhile is
// reported.
#pragma once

#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <source_location>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "cuda/device_adder.hpp"
#include "cuda/emulated_instructions.hpp"
#include "cuda/fibers.hpp"
#include "engine/run.hpp"

namespace convgrad::testing {

inline constexpr unsigned char kUnwritten = 0xff;

// How often a block agreed to go another way (any()): to sum a chunk once more, in all kernels.
inline std::int64_t agreements = 0;

// Where a kernel waits: for other threads, for copies or for products.
#ifdef __clang__  // clang 14 does not understand libstdc++'s
struct Site {
  const char* file;
  unsigned at_line, at_column;
  static constexpr Site current(const char* file = __builtin_FILE(),
                                unsigned line = __builtin_LINE(),
                                unsigned column = __builtin_COLUMN()) {
    return {file, line, column};
  }
  const char* file_name() const { return file; }
  unsigned line() const { return at_line; }
  unsigned column() const { return at_column; }
};
#else
using Site = std::source_location;
#endif

// The sites that were met, as FILE:LINE:COLUMN; and the one that is dropped: it orders nothing, as
// if it were not there. Threads do wait there all the same, so that nothing else goes wrong than
// what the sanitizer is to see.
class Sites {
 public:
  std::string dropped;

  bool orders(const Site& site) {
    if (!kSanitized) return true;
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
inline Sites sites;

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

// The threads of a warp, and what each shows the others.
struct Warp {
  FiberBarrier barrier{cuda::kWarp};
  std::array<const void*, cuda::kWarp> rows[2];  // of load_transposed(), in even and odd rounds
};

// What the threads of a block have in common; only looked at Unseen.
template <class Body>
struct Team {
  Team(Multiprocessor& multiprocessor, typename Body::Shared& memory)
      : processor(multiprocessor),
        shared(memory),
        warps(Body::kThreads / cuda::kWarp),
        warpgroups(Body::kThreads / cuda::kWarpgroup) {
    for (Warpgroup& group : warpgroups) group.products = &new_timeline();
  }
  Timeline& new_timeline() {
    if (timelines == processor.timelines.size()) processor.timelines.emplace_back();
    return processor.timelines[timelines++];
  }
  Multiprocessor& processor;
  typename Body::Shared& shared;
  FiberBarrier all{Body::kThreads};
  std::vector<Warp> warps;
  std::vector<Warpgroup> warpgroups;
  // Registers of each thread: fragments of multiply(), sums of multiply_shared() are c.
  struct Operands {
    const void *a, *b;
    void* c;
  };
  std::array<Operands, Body::kThreads> operands{};
  std::map<const cuda::BulkBarrier*, BulkState> bulk;
  std::size_t timelines = 0;  // that are taken
};

// One thread's view of its block (block.hpp). What a new primitive takes: the barrier that it waits
// at, or the data that it moves Unseen and tells its helper's timeline of.
template <class Body>
class EmulatedBlock {
 public:
  using Regs = typename Body::Regs;
  using Shared = typename Body::Shared;

  EmulatedBlock(Team<Body>& team, int thread)
      : shared(team.shared), team_(team), thread_(thread), memory_(&team.shared) {
    const Unseen unseen;
    std::memset(static_cast<void*>(&regs), kUnwritten, sizeof(Regs));
  }

  Regs regs;
  Shared& shared;

  int thread() const { return thread_; }

  void sync(Site site = Site::current()) { wait(team_.all, site, false); }
  bool any(bool here, Site site = Site::current()) {
    const bool result = wait(team_.all, site, here);
    if (result && thread_ == 0) ++agreements;
    return result;
  }

  template <int kBytes = 16>
  void copy_async(void* to, const void* from, bool there) {
    const auto misplaced = [](const void* p) {
      return reinterpret_cast<std::uintptr_t>(p) % kBytes != 0;
    };
    if (misplaced(to) || (there && misplaced(from))) throw std::logic_error("a misaligned copy");
    const Unseen unseen;
    begun_copies_[commits_ % kGroups].release();
    copies_.push_back({to, there ? from : nullptr, kBytes, commits_});
  }
  void commit_copies() { ++commits_; }
  template <int kPending>
  void wait_copies(Site site = Site::current()) {
    static_assert(kPending < kGroups);
    const Unseen unseen;
    while (!copies_.empty() && copies_.front().group + kPending < commits_) {
      const Copy& copy = copies_.front();
      copy.move();
      helper().acquire(begun_copies_[copy.group % kGroups]);
      if (copy.from != nullptr) helper().reads(copy.from, copy.bytes);
      helper().writes(copy.to, copy.bytes);
      copies_.pop_front();
    }
    helper().release(helped_);
    if (sites.orders(site)) helped_.acquire();
  }

  // A lane may be one round ahead of others that have not read their rows yet.
  void load_transposed(std::uint32_t (&out)[4], const void* row) {
    std::array<const void*, cuda::kWarp> rows;
    {
      const Unseen unseen;
      auto& shown = warp().rows[++loads_ % 2];
      shown[static_cast<std::size_t>(lane())] = row;
      meet(warp().barrier, [] {});
      rows = shown;
    }
    testing::load_transposed(lane(), out,
                             [&](int other) { return rows[static_cast<std::size_t>(other)]; });
  }

  // The last lane that comes computes for all. That orders nothing but registers.
  template <class Op, int kRows, int kColumns>
  void multiply(typename Op::C (&c)[kRows * kColumns], const typename Op::A (&a)[kRows],
                const typename Op::B (&b)[kColumns]) {
    const Unseen unseen;
    team_.operands[static_cast<std::size_t>(thread_)] = {a, b, c};
    meet(warp().barrier, [&] {
      const auto* const of = &team_.operands[static_cast<std::size_t>(thread_ - lane())];
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

  template <class Produce, class Consume>
  void divide(Produce&& produce, Consume&& consume) {
    if (thread_ < Body::kConsumers) consume();
    if (thread_ == Body::kConsumers) produce();
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
    wait(warp().barrier, site, false);
    if (lane() != 0) return;
    BulkState& state = bulk_state(barrier);
    const Unseen unseen;
    state.arrive(sites.orders(site));
  }
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
    state.begun[state.round % 2].release();
    state.bytes += box_bytes(map);
    state.copies.emplace_back([&state, memory = memory_, to, map, at = std::to_array(at)] {
      memory.copy_box(to, map, at);
      state.copier->writes(to, static_cast<std::size_t>(box_bytes(map)));
    });
  }
  void wait_bulk(cuda::BulkBarrier& barrier, unsigned round, Site site = Site::current()) {
    BulkState& state = bulk_state(barrier);
    const Unseen unseen;
    team_.processor.fibers.wait([&] {
      state.end_round_if_complete();
      return state.round % 2 != round;
    });
    if (sites.orders(site)) state.ended[round].acquire();
  }

  // Products are done when they are waited for, by the last thread that does. What they read must
  // be there for every thread that begins them; whoever has waited may overwrite it.
  template <class Op, int kSteps, int kStepBytes>
  void multiply_shared(bool fresh, int panel_bytes, const void* a, const void* b,
                       typename Op::C& c) {
    const Unseen unseen;
    team_.operands[static_cast<std::size_t>(thread_)].c = &c;
    begun_.release();
    helper().acquire(begun_);
    for (std::uint32_t i = 0; i < kSteps; ++i) {
      const std::uint64_t left =
          cuda::operand_after(memory_.operand(a, panel_bytes), i * kStepBytes);
      const std::uint64_t right =
          cuda::operand_after(memory_.operand(b, panel_bytes), i * kStepBytes);
      tell_reads<Op>(helper(), left, right);
      products_.push_back({left, right, fresh && i == 0, products_begun_});
    }
    helper().release(warpgroup().begun[products_begun_ % Warpgroup::kProducts]);
    ++products_begun_;
  }
  // The sums are the products' until then.
  template <class Op, int kPending>
  void wait_multiplies(typename Op::C&, Site site = Site::current()) {
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
        land<Op>(product);
      }
      group.products->release(group.ended);
    });
    while (!products_.empty() && done(products_.front())) products_.pop_front();
    if (sites.orders(site)) group.ended.acquire();
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
    std::uint64_t left, right;
    bool clear;  // the sums first
    unsigned begin;
  };

  int lane() const { return thread_ % cuda::kWarp; }
  Warp& warp() { return team_.warps[static_cast<std::size_t>(thread_ / cuda::kWarp)]; }
  Warpgroup& warpgroup() {
    return team_.warpgroups[static_cast<std::size_t>(thread_ / cuda::kWarpgroup)];
  }
  Timeline& helper() { return team_.processor.fibers.helper(thread_); }

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

  // A product of the warpgroup. Its sums are its own until it is done.
  template <class Op>
  void land(const Product& product) {
    const int first = thread_ / cuda::kWarpgroup * cuda::kWarpgroup;
    const auto sums = [&](int thread) -> typename Op::C& {
      void* const c = team_.operands[static_cast<std::size_t>(first + thread)].c;
      return *static_cast<typename Op::C*>(c);
    };
    for (int thread = 0; product.clear && thread < cuda::kWarpgroup; ++thread) {
      std::ranges::fill(sums(thread), 0.0f);
    }
    memory_.multiply_group<Op>(product.left, product.right, sums);
    tell_reads<Op>(*warpgroup().products, product.left, product.right);
    for (int thread = 0; thread < cuda::kWarpgroup; ++thread) {
      warpgroup().products->writes(&sums(thread), sizeof(typename Op::C));
    }
  }
  // A word of each row of both operands: bulk copies write whole rows.
  template <class Op>
  void tell_reads(Timeline& timeline, std::uint64_t left, std::uint64_t right) {
    if (!kSanitized) return;
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
  std::deque<Copy> copies_;
  std::deque<Product> products_;
  unsigned commits_ = 0, loads_ = 0, products_begun_ = 0;
  Order begun_, begun_copies_[kGroups], helped_;
};

class EmulatedDevice {
 public:
  std::int64_t *launched = nullptr, *copied = nullptr;  // counted where an adder owns this
  std::set<const void*>* read = nullptr;                // and the x of every launch

  struct Current {
    ~Current() {}  // or it would be an unused variable
  };
  Current current() const { return {}; }
  void* allocate(std::int64_t bytes) {
    const auto size = static_cast<std::size_t>((bytes + 63) / 64 * 64 + 64);
    memory_.emplace_back(static_cast<unsigned char*>(std::aligned_alloc(64, size)), std::free);
    std::memset(memory_.back().get(), kUnwritten, size);
    return memory_.back().get();
  }
  cuda::BulkTensor bulk_tensor(const cuda::BulkMap& map) const {
    cuda::BulkTensor tensor{};
    static_assert(sizeof(map) <= sizeof(tensor));
    std::memcpy(tensor.bytes, &map, sizeof(map));
    return tensor;
  }
  void upload(void* to, const void* from, std::int64_t bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void download(void* to, const void* from, std::int64_t bytes) { upload(to, from, bytes); }
  void begin_upload(std::int64_t) {}
  void end_upload() {}
  void end_compute(std::int64_t) {}
  void copy(void* to, const void* from, std::int64_t bytes) {
    upload(to, from, bytes);
    if (copied != nullptr) ++*copied;
  }
  template <class Start>
  double time(Start&& start) {
    start();
    return 0;
  }
  void cudnn(const WgradProblem&, std::int64_t, bool, const void*, const void*, void*) {
    throw Error(ErrorKind::unavailable, "no cuDNN is emulated");
  }

  template <class Body>
  void launch(const typename Body::Params& params, std::int64_t tasks) {
    using Shared = typename Body::Shared;
    if (launched != nullptr) ++*launched;
    if constexpr (requires { params.work.x.data; }) {
      if (read != nullptr) read->insert(params.work.x.data);
    }
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
      EmulatedBlock<Body> block(*own, thread);
      Body::run(block, params, number);
    };
    for (std::int64_t i = 0; i < tasks; ++i) {
      const Unseen unseen;
      task = i;
      const auto p = static_cast<std::size_t>(i % 2);
      std::memset(static_cast<void*>(shared[p].get()), kUnwritten, sizeof(Shared));
      team = std::make_unique<Team<Body>>(processors[p], *shared[p]);
      processors[p].fibers.run(Body::kThreads, run_thread);
    }
    for (Multiprocessor& processor : processors) processor.fibers.finish();
  }

 private:
  static std::array<Multiprocessor, 2>& multiprocessors() {
    static auto& all = *new std::array<Multiprocessor, 2>;  // fibers may wait in them at the end
    return all;
  }

  std::vector<std::unique_ptr<unsigned char, void (*)(void*)>> memory_;
};

// A device that has everything.
inline Device emulated_device() {
  Device device;
  device.name = "emulated";
  device.major = 9;
  device.memory_bytes = device.free_bytes = std::int64_t{1} << 40;
  return device;
}

// For emulated_device(), from tensors in memory.
inline Plan plan_with(const WgradProblem& problem, std::string_view kernel,
                      std::int64_t block_bytes = 0) {
  PlanOptions options;
  options.algorithm = std::string(kernel);
  options.backend = Backend::cuda;
  options.device = emulated_device();
  options.in_memory = true;
  options.block_bytes = block_bytes;
  return make_plan(problem, this_machine(), options);
}

// What the emulation multiplies, most of it nothing where groups are smaller than tiles: such
// problems would take minutes.
inline bool is_quick(const WgradProblem& problem, const DeviceKernel& kernel) {
  const double slabs = static_cast<double>((term_count(problem) + 31) / 32);
  const double tiles = slabs * 32 * static_cast<double>(kernel.tiles(problem));
  if (kernel.name == "cuda_simt_gemm") return tiles * 1024 < 1e8;
  if (kernel.name == "cuda_wgmma") return tiles * 128 * 128 < 2e7;
  return !kernel.name.starts_with("cuda_mma") || tiles * 4096 < 2e7;
}

// The float64 sums in [tap][c][k] order of a plan made for emulated_device().
inline std::vector<double> emulated_sums(const Plan& plan, const void* x, const void* dy) {
  cuda::DeviceAdder<EmulatedDevice> adder(plan, EmulatedDevice());
  MemorySource source(x, dy);
  Timing timing;
  stream_blocks(
      plan, source, [&](const Block& block, std::int64_t i) { adder.add(block, i); }, timing);
  const double* dw = adder.finish(0);
  return {dw, dw + plan.problem.dw_count()};
}

}  // namespace convgrad::testing
