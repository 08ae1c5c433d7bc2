// tensors.hpp - filling tensors and comparing gradients in tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "convgrad/compare.hpp"
#include "convgrad/reference.hpp"
#include "convgrad/run.hpp"

namespace convgrad::testing {

enum class Fill { small_integers, normal };

// count values of dtype. Integers in [-4, 4] make float32 sums of up to 2^20 products exact.
std::vector<std::byte> filled(DType dtype, std::int64_t count, Fill fill, unsigned seed);

std::vector<double> widened(DType dtype, const std::vector<std::byte>& bytes);

// Sums of the reference, from whole tensors in memory, in [tap][c][k] order.
struct Reference {
  std::vector<double> values, magnitudes;
};
Reference reference_of(const WgradProblem& problem, const void* x, const void* dy, int threads = 2);

// The kernel's float64 sums in [tap][c][k] order.
std::vector<double> sums_of(const WgradProblem& problem, const void* x, const void* dy,
                            const PlanOptions& options);

}  // namespace convgrad::testing
