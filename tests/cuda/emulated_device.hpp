// emulated_device.hpp - the processor standing in for a CUDA device, which has all kernels. They
// take a minute to compile: emulated_device.cpp does so for all tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/block_sum.hpp"
#include "engine/run.hpp"
#include "support/problems.hpp"
#include "support/tensors.hpp"

namespace convgrad::testing {

// How often a block agreed to go another way (any()): to sum a chunk once more, in all kernels.
inline std::int64_t agreements = 0;

// Launches of kernels, copies within a device, and the largest cluster of blocks in a launch.
inline std::int64_t launches = 0, device_copies = 0;
inline int most_blocks = 0;

// What a thread block can have.
inline constexpr int kSharedBytes = 99 * 1024;
inline int emulated_shared_bytes = kSharedBytes;
inline bool emulated_bulk_copies = true;

// A device that has everything.
inline Device emulated_device() {
  return {0, "emulated", 9, 0, std::int64_t{1} << 40, 100, std::int64_t{1} << 40};
}

// A problem's, of two seeds.
struct Tensors {
  std::vector<std::byte> x, dy;

  Tensors() = default;
  Tensors(const WgradProblem& problem, Fill fill, unsigned seed)
      : x(filled(problem.dtype, problem.x_count(), fill, seed)),
        dy(filled(problem.dtype, problem.dy_count(), fill, seed + 1)) {}
};

inline std::vector<ProblemSpec> joined(std::vector<ProblemSpec> some,
                                       const std::vector<ProblemSpec>& more) {
  some.insert(some.end(), more.begin(), more.end());
  return some;
}

inline bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

// For emulated_device(), from tensors in memory. Kernels go from one chunk of a slice to the next.
Plan plan_with(const WgradProblem& problem, std::string_view kernel, std::int64_t block_bytes = 0,
               std::int64_t least_chunks = 2);

// The sum of a plan made for emulated_device().
std::unique_ptr<DeviceSum> emulated_adder(const Plan& plan);

// The float64 sums in [tap][c][k] order of a plan made for emulated_device().
std::vector<double> emulated_sums(const Plan& plan, const void* x, const void* dy);
inline std::vector<double> emulated_sums(const Plan& plan, const Tensors& tensors) {
  return emulated_sums(plan, tensors.x.data(), tensors.dy.data());
}

}  // namespace convgrad::testing
