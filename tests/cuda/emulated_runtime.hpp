// emulated_runtime.hpp - the Runtime (cuda/launch.hpp) of emulated_device.hpp: device kernels in
// emulated blocks, on memory that nobody has written. Who includes it compiles what it launches.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.hpp"
#include "cuda/emulated_block.hpp"
#include "cuda/launch.hpp"

namespace convgrad::testing {

class EmulatedDevice {
 public:
  std::string current() const { return {}; }  // of no use
  int shared_bytes() const { return emulated_shared_bytes; }
  void* allocate(std::int64_t bytes) {
    auto* const memory = memory_.emplace_back(bytes + kGuard, "an emulated device").as<void>();
    std::memset(memory, kUnwritten, static_cast<std::size_t>(bytes + kGuard));
    return memory;
  }
  cuda::BulkTensor bulk_tensor(const cuda::BulkMap& map) const {
    cuda::BulkTensor tensor{};
    for (int a = 0; a < 5; ++a) {
      const int last_bytes = a == 0 ? map.box[0] * map.item_bytes
                                    : static_cast<int>(map.stride[a] * map.item_bytes % 16);
      if (map.box[a] < 1 || map.box[a] * map.step[a] > cuda::kMaxBulkBox || map.extent[a] < 1 ||
          last_bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(map.data) % 16 != 0) {
        throw std::logic_error("a map that devices do not take");
      }
    }
    const cuda::BulkMap* const described = &maps_.emplace_back(map);
    std::memcpy(tensor.bytes, &described, sizeof(described));
    return tensor;
  }
  bool copies_in_bulk() const { return emulated_bulk_copies; }
  void upload(void* to, const void* from, std::int64_t bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void download(void* to, const void* from, std::int64_t bytes) { upload(to, from, bytes); }
  void begin_upload(std::int64_t) {}
  void end_upload() {}
  void end_compute(std::int64_t) {}
  void copy(void* to, const void* from, std::int64_t bytes) {
    upload(to, from, bytes);
    ++device_copies;
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
  void launch(const typename Body::Params& params, std::int64_t tasks, int cluster = 1) {
    using Shared = typename Body::Shared;
    ++launches;
    most_blocks = std::max(most_blocks, cluster);
    if (tasks % cluster != 0) throw std::logic_error("a grid that is no whole clusters");
    std::array<Multiprocessor, 2>& processors = multiprocessors();
    const auto blocks = static_cast<std::size_t>(cluster);
    std::unique_ptr<Shared[]> shared[2];
    for (auto& memory : shared) memory = std::make_unique<Shared[]>(blocks);
    std::deque<Team<Body>> teams;
    std::int64_t first = 0;
    const auto run_thread = [&](int i) {
      const auto [team, number] = [&] {
        const Unseen unseen;
        const int rank = i / Body::kThreads;
        return std::pair(&teams[static_cast<std::size_t>(rank)], first + rank);
      }();
      EmulatedBlock<Body> block(*team, i % Body::kThreads);
      Body::run(block, params, number);
      block.end();
    };
    for (; first < tasks; first += cluster) {
      const Unseen unseen;
      const auto p = static_cast<std::size_t>(first / cluster % 2);
      std::memset(static_cast<void*>(shared[p].get()), kUnwritten, blocks * sizeof(Shared));
      FiberBarrier all(cluster * Body::kThreads);
      processors[p].taken = 0;
      teams.clear();
      for (int rank = 0; rank < cluster; ++rank) {
        teams.emplace_back(processors[p], shared[p][static_cast<std::size_t>(rank)], rank, all);
      }
      processors[p].fibers.run(cluster * Body::kThreads, run_thread);
    }
    for (Multiprocessor& processor : processors) processor.fibers.finish();
    for (const Buffer& memory : memory_) {
      const auto* const end = memory.as<unsigned char>() + memory.size_bytes();
      if (std::any_of(end - kGuard, end, [](unsigned char byte) { return byte != kUnwritten; })) {
        throw std::logic_error("a write beyond a device's memory");
      }
    }
  }

 private:
  // Bytes behind each allocation, which stay as they are.
  static constexpr std::int64_t kGuard = 4096;

  static std::array<Multiprocessor, 2>& multiprocessors() {
    static auto& all = *new std::array<Multiprocessor, 2>;  // fibers may wait in them at the end
    return all;
  }

  mutable std::deque<cuda::BulkMap> maps_;  // what tensors point to
  std::vector<Buffer> memory_;
};

}  // namespace convgrad::testing
