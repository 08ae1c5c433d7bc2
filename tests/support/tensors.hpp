// tensors.hpp - fills tensors and compares gradients in tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "convgrad/compare.hpp"
#include "convgrad/reference.hpp"
#include "engine/run.hpp"

namespace convgrad::testing {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

enum class Fill { small_integers, normal };

// Makes count values of dtype. Integers in [-4, 4] make float32 sums of up to 2^20 products exact.
std::vector<std::byte> filled(DType dtype, std::int64_t count, Fill fill, unsigned seed);

// Round values to a tensor of dtype, and widen it again.
std::vector<std::byte> tensor_of(DType dtype, const std::vector<double>& values);
std::vector<double> widened(DType dtype, const std::vector<std::byte>& bytes);

// Makes the bytes of an npy file.
std::string npy_text(DType dtype, const std::vector<std::int64_t>& shape,
                     const std::vector<std::byte>& data);

// Makes normal numbers times a scale, rounded to the dtype.
std::vector<std::byte> scaled_normal(DType dtype, std::int64_t count, double scale, unsigned seed);

// Makes dy of small integers, but for the first pixel of every channel, which is `value`: where x
// is padded in front, tap 0 never sees it.
std::vector<std::byte> dy_with_first_pixel(const WgradProblem& problem, double value);

// The program's own kernels sum so: sums in the accumulator's type run over one chunk at most, and
// nothing is cut off.
inline constexpr Summation kOwnSums = {kMaxChunkPixels, Summation::Adders::ieee};

// Computes by the reference from whole tensors in memory, in [tap][c][k] order.
Expected reference_of(const WgradProblem& problem, const void* x, const void* dy, int threads = 2,
                      const Summation& summation = kOwnSums);

// Expects what kernels on a device give, whose adders may cut digits off.
Expected device_reference_of(const WgradProblem& problem, const void* x, const void* dy);

// Tells whether that is what plain_reference() expects: values to the bit, sums that are added up
// in eights here within their rounding.
bool is_plain(const Expected& fast, const WgradProblem& problem, const std::vector<std::byte>& x,
              const std::vector<std::byte>& dy, const Summation& summation = kOwnSums);

// Returns the kernel's float64 sums in [tap][c][k] order, from whole tensors in memory. A plan may
// name a kernel that is not in the table.
std::vector<double> sums_of(const Plan& plan, const void* x, const void* dy);
std::vector<double> sums_of(const WgradProblem& problem, const void* x, const void* dy,
                            PlanOptions options);

// Takes any kernel, also one that is not in the table.
std::vector<double> sums_of(const Kernel& kernel, const WgradProblem& problem, const void* x,
                            const void* dy, int threads = 1, std::int64_t block_bytes = 0);
// Plans for the kernel. Sources need not be in memory.
Plan plan_for(const Kernel& kernel, const WgradProblem& problem, int threads,
              std::int64_t block_bytes);

// Plans for the reference, and whole tensors in memory.
Plan reference_plan(const WgradProblem& problem, std::int64_t block_bytes = 0);

// Compares by rounding float64 sums, before they are rounded to a file's dtype.
Comparison compare_sums(const WgradProblem& problem, const std::vector<double>& got,
                        const Expected& reference);

}  // namespace convgrad::testing
