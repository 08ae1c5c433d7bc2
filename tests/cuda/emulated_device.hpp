// emulated_device.hpp - the processor standing in for a CUDA device: device kernels' own code, run
// for one thread after the other between barriers.
//
// What a thread or a block has not written is NaN. Threads can be run in the opposite order, in
// which a result must not change: a race would.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "convgrad/run.hpp"
#include "cuda/device_adder.hpp"

namespace convgrad::testing {

inline constexpr unsigned char kUnwritten = 0xff;

// What tensor cores make of a sum and kCount exact products, as has been measured on an A100 (Fasi
// et al., PeerJ Computer Science 7:e330; Khattak and Mikaitis, arXiv:2512.07004): all are cut
// toward zero where the largest has its 24th bit after the point, and so is what is left of their
// sum after float32's 24 bits. Hopper takes twice the products at once, and one bit more.
template <int kCount>
float cut_sum(float c, const double (&products)[kCount]) {
  double largest = std::abs(static_cast<double>(c)), plain = c;
  for (const double product : products) {
    largest = std::max(largest, std::abs(product));
    plain += product;
  }
  if (!std::isfinite(plain) || largest == 0) return static_cast<float>(plain);
  const double power =
      std::bit_cast<double>(std::bit_cast<std::uint64_t>(largest) & 0x7ff0000000000000u);
  const double scale = 0x1p+24 / power;
  auto sum = static_cast<std::int64_t>(c * scale);
  for (const double product : products) sum += static_cast<std::int64_t>(product * scale);
  const auto bits = std::bit_width(static_cast<std::uint64_t>(std::abs(sum)));
  const std::int64_t last = std::int64_t{1} << std::max(static_cast<int>(bits) - 24, 0);
  return static_cast<float>(static_cast<double>(sum / last * last) / scale);
}

// c += the products of left(k) and right(k) for k below Op::kK, as Op's instruction does.
template <class Op, typename Acc, class Left, class Right>
Acc multiplied(Acc c, Left&& left, Right&& right) {
  if constexpr (std::is_same_v<Acc, double>) {
    for (int k = 0; k < Op::kK; ++k) c += left(k) * right(k);
  } else {
    constexpr int kFused = std::is_same_v<Op, cuda::MmaTf32> ? 4 : 8;
    for (int first = 0; first < Op::kK; first += kFused) {
      double products[kFused];
      for (int i = 0; i < kFused; ++i) products[i] = left(first + i) * right(first + i);
      c = cut_sum(c, products);
    }
  }
  return c;
}

// C += A * B of one warp, from what its lanes hold: f(lane) is a lane's fragment.
template <class Op, class FragmentA, class FragmentB, class FragmentC>
void multiply_warp(FragmentA&& a, FragmentB&& b, FragmentC&& c) {
  double left[Op::kM][Op::kK], right[Op::kK][Op::kN];
  int row, column;
  for (int lane = 0; lane < cuda::kWarp; ++lane) {
    for (int e = 0; e < Op::kElementsA; ++e) {
      Op::a_place(lane, e, row, column);
      left[row][column] = Op::a_value(a(lane), e);
    }
    for (int e = 0; e < Op::kElementsB; ++e) {
      Op::b_place(lane, e, row, column);
      right[row][column] = Op::b_value(b(lane), e);
    }
  }
  for (int lane = 0; lane < cuda::kWarp; ++lane) {
    for (int e = 0; e < Op::kElementsC; ++e) {
      Op::c_place(lane, e, row, column);
      auto& value = c(lane)[e];
      value = multiplied<Op>(
          value, [&](int k) { return left[row][k]; }, [&](int k) { return right[k][column]; });
    }
  }
}

template <class Body>
class EmulatedBlock {
 public:
  using Regs = typename Body::Regs;
  using Shared = typename Body::Shared;

  EmulatedBlock(Shared& memory, bool backwards)
      : shared(memory), regs_(Body::kThreads), backwards_(backwards) {
    std::memset(static_cast<void*>(regs_.data()), kUnwritten, regs_.size() * sizeof(Regs));
  }

  Shared& shared;

  template <class F>
  void each(F&& f) {
    for (int i = 0; i < Body::kThreads; ++i) {
      const int thread = backwards_ ? Body::kThreads - 1 - i : i;
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
    return any;
  }

  // Copies arrive when they are waited for, and not before.
  void copy_async(int thread, void* to, const void* from, bool there) {
    queue(thread).back().push_back({to, there ? from : nullptr});
  }
  void commit_copies(int thread) { queue(thread).emplace_back(); }
  template <int kPending>
  void wait_copies(int thread) {
    auto& groups = queue(thread);  // the last one is open
    while (groups.size() > kPending + 1) {
      for (const Copy& copy : groups.front()) {
        if (copy.from != nullptr) {
          std::memcpy(copy.to, copy.from, 16);
        } else {
          std::memset(copy.to, 0, 16);
        }
      }
      groups.erase(groups.begin());
    }
  }

  template <class Address>
  void load_transposed(int lane, std::uint32_t out[4], Address&& address) {
    for (int j = 0; j < 4; ++j) {
      std::uint16_t pair[2];
      for (int h = 0; h < 2; ++h) {
        const auto* row = reinterpret_cast<const std::uint16_t*>(address(8 * j + lane % 4 * 2 + h));
        pair[h] = row[lane / 4];
      }
      out[j] = pair[0] | static_cast<std::uint32_t>(pair[1]) << 16;
    }
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

  // Bytes arrive as late as they may; or as early, where threads run backwards.
  void init_barrier(cuda::BulkBarrier& barrier) { bulk_[&barrier] = {}; }
  void fence_async_proxy() {}
  void expect_bulk(cuda::BulkBarrier& barrier, int bytes) {
    BulkState& state = bulk_.at(&barrier);
    if (state.expected != 0) throw std::logic_error("bytes are expected while others are");
    state.expected = bytes;
  }
  void copy_bulk(void* to, const cuda::BulkTensor& from, const int (&at)[5],
                 cuda::BulkBarrier& barrier) {
    cuda::BulkMap map;
    std::memcpy(&map, from.bytes, sizeof(map));
    const auto copy = [this, to, map, at = std::to_array(at)] { copy_box(to, map, at); };
    bulk_.at(&barrier).bytes += map.box[0] * map.box[1] * map.box[2] * map.box[3] * map.box[4] * 2;
    if (backwards_) {
      copy();
    } else {
      bulk_.at(&barrier).copies.emplace_back(copy);
    }
  }
  void wait_bulk(cuda::BulkBarrier& barrier, unsigned round) {
    BulkState& state = bulk_.at(&barrier);
    if (state.rounds % 2 != round) return;  // that one is over
    if (state.expected == 0 || state.expected != state.bytes) {
      throw std::logic_error("a device would wait for ever");
    }
    for (const auto& copy : state.copies) copy();
    state = {state.rounds + 1, 0, 0, {}};
  }

  // Products are done when they are waited for: what was written until then, they read.
  template <class Op, int kSteps, class AddressA, class AddressB, class FragmentC>
  void multiply_shared(int panel_bytes, AddressA&& a, AddressB&& b, FragmentC&& c) {
    products_.emplace_back();
    for (int group = 0; group < Body::kThreads / cuda::kWarpgroup; ++group) {
      for (int i = 0; i < kSteps; ++i) {
        const std::uint64_t left = cuda::operand_at(shared_offset(a(group, i)), panel_bytes);
        const std::uint64_t right = cuda::operand_at(shared_offset(b(i)), panel_bytes);
        products_.back().push_back([this, left, right, group, c] {
          multiply_group<Op>(left, right, [&](int thread) -> typename Op::C& {
            return c(regs_[static_cast<std::size_t>(group * cuda::kWarpgroup + thread)]);
          });
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
  };

  struct BulkState {
    unsigned rounds = 0;
    int expected = 0, bytes = 0;
    std::vector<std::function<void()>> copies;
  };

  std::uint32_t shared_offset(const void* pointer) const {
    return static_cast<std::uint32_t>(static_cast<const unsigned char*>(pointer) -
                                      reinterpret_cast<const unsigned char*>(&shared));
  }
  std::uint16_t& shared_word(std::uint32_t offset) {
    return *reinterpret_cast<std::uint16_t*>(reinterpret_cast<unsigned char*>(&shared) +
                                             cuda::swizzled(offset));
  }

  void copy_box(void* to, const cuda::BulkMap& map, const std::array<int, 5>& first) {
    std::uint32_t offset = shared_offset(to);
    int i[5];
    for (i[4] = 0; i[4] < map.box[4]; ++i[4]) {
      for (i[3] = 0; i[3] < map.box[3]; ++i[3]) {
        for (i[2] = 0; i[2] < map.box[2]; ++i[2]) {
          for (i[1] = 0; i[1] < map.box[1]; ++i[1]) {
            for (i[0] = 0; i[0] < map.box[0]; ++i[0], offset += 2) {
              bool inside = true;
              std::int64_t from = 0;
              for (std::size_t a = 0; a < 5; ++a) {
                const std::int64_t at = std::int64_t{first[a]} + i[a] * map.step[a];
                inside = inside && at >= 0 && at < map.extent[a];
                from += at * map.stride[a];
              }
              shared_word(offset) =
                  inside ? static_cast<const std::uint16_t*>(map.data)[from] : std::uint16_t{0};
            }
          }
        }
      }
    }
  }

  // Element (mn, k) of an operand, by what its descriptor says (wgmma.hpp).
  std::uint16_t operand_element(std::uint64_t operand, int mn, int k) {
    const auto field = [&](int bit) { return static_cast<int>(operand >> bit & 0x3fff) * 16; };
    const int offset =
        field(0) + mn / 64 * field(16) + mn % 64 * 2 + k / 8 * field(32) + k % 8 * cuda::kRowBytes;
    return shared_word(static_cast<std::uint32_t>(offset));
  }

  template <class Op, class FragmentC>
  void multiply_group(std::uint64_t a, std::uint64_t b, FragmentC&& c) {
    double left[Op::kM][Op::kK], right[Op::kK][Op::kN];
    for (int k = 0; k < Op::kK; ++k) {
      for (int m = 0; m < Op::kM; ++m) left[m][k] = Op::value(operand_element(a, m, k));
      for (int n = 0; n < Op::kN; ++n) right[k][n] = Op::value(operand_element(b, n, k));
    }
    for (int thread = 0; thread < cuda::kWarpgroup; ++thread) {
      for (int e = 0; e < Op::kElementsC; ++e) {
        int row, column;
        Op::c_place(thread, e, row, column);
        float& value = c(thread)[e];
        value = multiplied<Op>(
            value, [&](int k) { return left[row][k]; }, [&](int k) { return right[k][column]; });
      }
    }
  }

  Regs& lane_of(std::size_t warp, int lane) { return regs_[warp + static_cast<std::size_t>(lane)]; }

  std::vector<std::vector<Copy>>& queue(int thread) {
    if (copies_.empty()) copies_.resize(Body::kThreads, std::vector<std::vector<Copy>>(1));
    return copies_[static_cast<std::size_t>(thread)];
  }

  std::vector<Regs> regs_;
  bool backwards_;
  std::vector<std::vector<std::vector<Copy>>> copies_;  // [thread][group]
  std::map<const cuda::BulkBarrier*, BulkState> bulk_;
  std::vector<std::vector<std::function<void()>>> products_;  // [begin]
};

class EmulatedDevice {
 public:
  bool backwards = false;
  std::int64_t launches = 0, most_tasks = 0;

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
  void start_timer() {}
  double stop_timer() { return 0; }
  void cudnn(const WgradProblem&, std::int64_t, bool, const void*, const void*, void*) {
    throw Error(ErrorKind::unavailable, "no cuDNN is emulated");
  }

  template <class Body>
  void launch(const typename Body::Params& params, std::int64_t tasks) {
    using Shared = typename Body::Shared;
    ++launches;
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
  device.memory_bytes = std::int64_t{1} << 40;
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
inline std::vector<double> emulated_sums(const Plan& plan, const void* x, const void* dy,
                                         bool backwards = false) {
  EmulatedDevice device;
  device.backwards = backwards;
  cuda::DeviceAdder<EmulatedDevice> adder(plan, std::move(device));
  MemorySource source(x, dy);
  Timing timing;
  stream_blocks(
      plan, source, [&](const Block& block, std::int64_t i) { adder.add(block, i); }, timing);
  const double* dw = adder.finish(0);
  return {dw, dw + plan.problem.dw_count()};
}

}  // namespace convgrad::testing
