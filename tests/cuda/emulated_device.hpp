// emulated_device.hpp - the processor standing in for a CUDA device: device kernels' own code, run
// for one thread after the other between barriers.
//
// What a thread or a block has not written is NaN. Threads can be run in the opposite order, in
// which a result must not change: a race would.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

#include "cuda/device_adder.hpp"
#include "cuda/emulated_instructions.hpp"
#include "cuda/turns.hpp"
#include "engine/run.hpp"

namespace convgrad::testing {

inline constexpr unsigned char kUnwritten = 0xff;

// How often a block agreed to go another way (each_any): to sum a chunk once more, in all kernels.
inline std::int64_t agreements = 0;

template <class Body>
class EmulatedBlock {
 public:
  using Regs = typename Body::Regs;
  using Shared = typename Body::Shared;

  EmulatedBlock(Shared& memory, bool backwards)
      : shared(memory), memory_(&memory), regs_(Body::kThreads), backwards_(backwards) {
    std::memset(static_cast<void*>(regs_.data()), kUnwritten, regs_.size() * sizeof(Regs));
  }

  Shared& shared;

  template <class F>
  void each(F&& f) {
    for (int i = 0; i < threads_; ++i) {
      const int thread = backwards_ ? threads_ - 1 - i : i;
      f(thread, regs_[static_cast<std::size_t>(thread)]);
    }
  }
  template <class F>
  void each_unsynced(F&& f) {
    each(f);
  }
  template <class F>
  bool each_any(F&& f) {
    bool any = false;
    each([&](int thread, Regs& regs) { any = f(thread, regs) || any; });
    if (any) ++agreements;
    return any;
  }

  // Copies arrive when they are waited for, and not before.
  template <int kBytes = 16>
  void copy_async(int thread, void* to, const void* from, bool there) {
    const auto misplaced = [](const void* p) {
      return reinterpret_cast<std::uintptr_t>(p) % kBytes != 0;
    };
    if (misplaced(to) || (there && misplaced(from))) throw std::logic_error("a misaligned copy");
    queue(thread).back().push_back({to, there ? from : nullptr, kBytes});
  }
  void commit_copies(int thread) { queue(thread).emplace_back(); }
  template <int kPending>
  void wait_copies(int thread) {
    auto& groups = queue(thread);  // the last one is open
    while (groups.size() > kPending + 1) {
      for (const Copy& copy : groups.front()) {
        if (copy.from != nullptr) {
          std::memcpy(copy.to, copy.from, copy.bytes);
        } else {
          std::memset(copy.to, 0, copy.bytes);
        }
      }
      groups.erase(groups.begin());
    }
  }

  template <class Address>
  void load_transposed(int lane, std::uint32_t out[4], Address&& address) {
    testing::load_transposed(lane, out, address);
  }

  template <class Op, int kRows, int kColumns, class FragmentA, class FragmentB, class FragmentC>
  void multiply(FragmentA&& a, FragmentB&& b, FragmentC&& c) {
    for (std::size_t warp = 0; warp < regs_.size(); warp += cuda::kWarp) {
      for (int i = 0; i < kRows; ++i) {
        for (int j = 0; j < kColumns; ++j) {
          multiply_warp<Op>(
              [&](int lane) -> decltype(auto) { return a(lane_of(warp, lane), i); },
              [&](int lane) -> decltype(auto) { return b(lane_of(warp, lane), j); },
              [&](int lane) -> decltype(auto) { return c(lane_of(warp, lane), i, j); });
        }
      }
    }
  }

  // The roles take turns: a role goes on until it waits, or where threads run backwards, until it
  // has done something that the other may wait for.
  template <class Produce, class Consume>
  void divide(Produce&& produce, Consume&& consume) {
    threads_ = Body::kConsumers;
    turns_.run(consume, produce);
    threads_ = Body::kThreads;
  }

  // Bytes arrive as late as they may; or as early, where threads run backwards.
  void init_barrier(cuda::BulkBarrier& barrier, int arrivals) {
    bulk_[&barrier] = {arrivals, arrivals, 0, 0, 0, {}};
  }
  void fence_async_proxy() {}
  void arrive_by_warps(cuda::BulkBarrier& barrier) {
    BulkState& state = bulk_.at(&barrier);
    for (int warp = 0; warp < threads_ / cuda::kWarp; ++warp) {
      state.end_round();
      if (state.missing == 0) throw std::logic_error("a warp arrives in the place of another");
      --state.missing;
      if (backwards_) turns_.yield();
    }
  }
  void expect_bulk(cuda::BulkBarrier& barrier, int bytes) {
    BulkState& state = bulk_.at(&barrier);
    state.end_round();
    if (state.missing == 0) throw std::logic_error("bytes are expected while others are");
    --state.missing;
    state.expected += bytes;
  }
  void copy_bulk(void* to, const cuda::BulkTensor& from, const int (&at)[5],
                 cuda::BulkBarrier& barrier) {
    cuda::BulkMap map;
    std::memcpy(&map, from.bytes, sizeof(map));
    const auto copy = [this, to, map, at = std::to_array(at)] { memory_.copy_box(to, map, at); };
    bulk_.at(&barrier).bytes += box_bytes(map);
    if (backwards_) {
      copy();
      turns_.yield();
    } else {
      bulk_.at(&barrier).copies.emplace_back(copy);
    }
  }
  void wait_bulk(cuda::BulkBarrier& barrier, unsigned round) {
    BulkState& state = bulk_.at(&barrier);
    turns_.wait([&] {
      state.end_round();
      return state.rounds % 2 != round;
    });
  }

  // Products are done when they are waited for: what was written until then, they read.
  template <class Op, int kSteps, class AddressA, class AddressB, class FragmentC>
  void multiply_shared(bool fresh, int panel_bytes, AddressA&& a, AddressB&& b, FragmentC&& c) {
    products_.emplace_back();
    for (int group = 0; group < threads_ / cuda::kWarpgroup; ++group) {
      for (int i = 0; i < kSteps; ++i) {
        const std::uint64_t left = memory_.operand(a(group, i), panel_bytes);
        const std::uint64_t right = memory_.operand(b(i), panel_bytes);
        products_.back().push_back([this, left, right, group, c, clear = fresh && i == 0] {
          const auto sums = [&](int thread) -> typename Op::C& {
            return c(regs_[static_cast<std::size_t>(group * cuda::kWarpgroup + thread)]);
          };
          for (int thread = 0; clear && thread < cuda::kWarpgroup; ++thread) {
            std::ranges::fill(sums(thread), 0.0f);
          }
          memory_.multiply_group<Op>(left, right, sums);
        });
      }
    }
  }
  template <class Op, int kPending, class FragmentC>
  void wait_multiplies(FragmentC&&) {
    while (products_.size() > kPending) {
      for (const auto& product : products_.front()) product();
      products_.erase(products_.begin());
    }
  }

  void atomic_min(std::uint32_t* least, std::uint32_t value) { *least = std::min(*least, value); }

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };

  struct BulkState {
    int arrivals, missing;  // of a round
    unsigned rounds;
    int expected, bytes;
    std::vector<std::function<void()>> copies;

    // A round is over when all have arrived, and all bytes. That the next one has begun shows only
    // when somebody looks.
    void end_round() {
      if (missing > 0 || bytes != expected) return;
      for (const auto& copy : copies) copy();
      *this = {arrivals, arrivals, rounds + 1, 0, 0, {}};
    }
  };

  Regs& lane_of(std::size_t warp, int lane) { return regs_[warp + static_cast<std::size_t>(lane)]; }

  std::vector<std::vector<Copy>>& queue(int thread) {
    if (copies_.empty()) copies_.resize(Body::kThreads, std::vector<std::vector<Copy>>(1));
    return copies_[static_cast<std::size_t>(thread)];
  }

  SwizzledMemory memory_;
  std::vector<Regs> regs_;
  bool backwards_;
  std::vector<std::vector<std::vector<Copy>>> copies_;  // [thread][group]
  std::map<const cuda::BulkBarrier*, BulkState> bulk_;
  int threads_ = Body::kThreads;  // that each() runs
  Turns turns_;
  std::vector<std::vector<std::function<void()>>> products_;  // [begin]
};

class EmulatedDevice {
 public:
  bool backwards = false;
  std::int64_t launches = 0, most_tasks = 0;
  std::int64_t *launched = nullptr, *copied = nullptr;  // counted too, where an adder owns this
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
  void zero(void* memory, std::int64_t bytes) {
    std::memset(memory, 0, static_cast<std::size_t>(bytes));
  }
  void upload(void* to, const void* from, std::int64_t bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void download(void* to, const void* from, std::int64_t bytes) { upload(to, from, bytes); }
  void begin_upload(std::int64_t) {}
  void end_upload(std::int64_t) {}
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
    ++launches;
    if (launched != nullptr) ++*launched;
    if constexpr (requires { params.work.x.data; }) {
      if (read != nullptr) read->insert(params.work.x.data);
    }
    most_tasks = std::max(most_tasks, tasks);
    const auto shared = std::make_unique<Shared>();
    for (std::int64_t i = 0; i < tasks; ++i) {
      std::memset(static_cast<void*>(shared.get()), kUnwritten, sizeof(Shared));
      EmulatedBlock<Body> block(*shared, backwards);
      Body::run(block, params, backwards ? tasks - 1 - i : i);
    }
  }

 private:
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
  const bool by_warps = kernel.name.starts_with("cuda_mma");
  return !by_warps || tiles * 4096 < (problem.dtype == DType::f32 ? 8e6 : 2e7);
}

// The float64 sums in [tap][c][k] order of a plan made for emulated_device().
template <class Device = EmulatedDevice>
std::vector<double> emulated_sums(const Plan& plan, const void* x, const void* dy,
                                  bool backwards = false) {
  Device device;
  device.backwards = backwards;
  cuda::DeviceAdder<Device> adder(plan, std::move(device));
  MemorySource source(x, dy);
  Timing timing;
  stream_blocks(
      plan, source, [&](const Block& block, std::int64_t i) { adder.add(block, i); }, timing);
  const double* dw = adder.finish(0);
  return {dw, dw + plan.problem.dw_count()};
}

}  // namespace convgrad::testing
