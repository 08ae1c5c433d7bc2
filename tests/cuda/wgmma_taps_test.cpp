// wgmma_taps_test.cpp - the code of cuda_wgmma (wgmma_taps.hpp) on all kinds of layouts, emulated.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "cuda/emulated_device.hpp"
#include "cuda/taps_choice.hpp"
#include "support/cases.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// Each is small, and of a kind of its own.
const std::vector<ProblemSpec>& problems() {
  static const std::vector<ProblemSpec> all = {
      {"three rows of taps", "conv2d", 2, 70, 72, 1, {{14, 3}, {14, 3}}},
      {"wide images", "conv2d", 9, 64, 64, 1, {{18, 3}, {18, 3}}},
      {"many tiles", "conv2d", 1, 64, 4300, 1, {{2, 3}, {2, 3}}},
      {"taps far apart", "conv2d", 1, 64, 64, 1, {{14, 3, 1, 3}, {14, 3, 1, 4}}},
      {"rows of x apart", "conv2d", 1, 40, 24, 1, {{30, 3, 1, 13}, {9, 3, 1, 2}}},
      {"stride 2", "conv2d", 2, 40, 24, 1, {{13, 3, 2}, {15, 3, 2}}},
      {"stride 3 of two taps", "conv2d", 2, 40, 24, 1, {{13, 2, 3}, {15, 2, 3}}},
      {"5x5", "conv2d", 1, 40, 40, 1, {{14, 5}, {14, 5, 2}}},
      {"pieces of rows", "conv2d", 1, 24, 40, 1, {{2, 3}, {300, 3}}},
      {"planes", "conv3d", 1, 16, 32, 1, {{4, 3, 2}, {9, 3}, {14, 3}}},
      {"1x1 of small images", "conv2d", 9, 64, 200, 1, {{7, 1}, {7, 1}}},
      {"1x1, two panels of channels", "conv2d", 2, 130, 72, 1, {{7, 1, 2}, {9, 1, 2}}},
      {"channels of no whole vectors", "conv2d", 2, 13, 30, 1, {{7, 1}, {9, 2}}},
      {"groups in a panel", "conv2d", 1, 64, 64, 16, {{14, 3}, {14, 3}}},
      {"groups of 30 to 45, some in a panel", "conv2d", 1, 32, 48, 16, {{14, 3, 2}, {14, 3}}},
      {"groups of panels", "conv2d", 1, 144, 208, 2, {{6, 1}, {7, 1}}},
      {"colours, 7x7", "conv2d", 2, 3, 24, 1, {{19, 7, 2}, {21, 7, 2}}},
      {"colours, 3x3", "conv2d", 2, 3, 70, 1, {{19, 3}, {21, 3}}},
      {"colours, stride 3", "conv2d", 1, 3, 24, 1, {{19, 5, 3}, {21, 3}}},
      {"colours, dilated", "conv2d", 1, 3, 24, 1, {{19, 9, 1, 2}, {21, 9, 1, 2}}},
      {"12 channels", "conv2d", 1, 12, 24, 1, {{19, 3, 2}, {21, 3, 2}}},
      {"colours in 3-D", "conv3d", 1, 3, 16, 1, {{5, 3, 2}, {9, 7, 2}, {11, 7, 2}}},
      {"more than a sum", "conv2d", 1, 8, 8, 1, {{80, 1}, {80, 1}}}};
  return all;
}

// So many chunks that there is one slice alone.
constexpr std::int64_t kAllChunks = std::int64_t{1} << 40;
constexpr std::string_view kWgmma = "cuda_wgmma";

}  // namespace

TEST_CASE("cuda_wgmma is exact in every layout") {
  std::set<std::pair<cuda::TapsKind, bool>> kinds;
  bool long_sums = false, apart = false;
  for (const ProblemSpec& spec : problems()) {
    CAPTURE(spec.name);
    for (const bool channels_last : {true, false}) {
      const DType dtype = channels_last ? DType::bf16 : DType::f16;
      const WgradProblem problem = make(spec, dtype, channels_last);
      const cuda::TapsChoice choice = cuda::taps_choice(problem);
      kinds.emplace(choice.kind, choice.folds);
      apart = apart || choice.layout.x_copies > 4;
      const auto x = filled(dtype, problem.x_count(), Fill::small_integers, 1);
      const auto dy = filled(dtype, problem.dy_count(), Fill::small_integers, 2);
      const Expected reference = device_reference_of(problem, x.data(), dy.data());
      for (const std::int64_t least : {std::int64_t{1}, kAllChunks}) {
        const Plan plan = plan_with(problem, kWgmma, 0, least);
        long_sums = long_sums || cuda::with_slices(choice, plan.schedule.slices).has_totals;
        agreements = 0;
        CHECK(emulated_sums(plan, x.data(), dy.data()) == reference.values);
        CHECK(agreements == 0);
      }
    }
  }
  CHECK(kinds.size() == 5);  // all variants, and the one of two panels for channels and for taps
  CHECK(long_sums);
  CHECK(apart);
}

TEST_CASE("cuda_wgmma has the same bits for all blocks, with Inf where nothing sees it, too") {
  Thinned thinned;
  for (const ProblemSpec& spec : problems()) {
    CAPTURE(spec.name);
    if (thinned.skips()) continue;
    const WgradProblem problem = make(spec, DType::bf16, true);
    const auto x = filled(DType::bf16, problem.x_count(), Fill::normal, 3);
    auto dy = filled(DType::bf16, problem.dy_count(), Fill::normal, 4);
    const auto sums = [&](std::uint16_t first, std::int64_t block_bytes) {
      // Of the first pixel, which some taps see beside x.
      std::fill_n(reinterpret_cast<std::uint16_t*>(dy.data()), problem.K, first);
      return emulated_sums(plan_with(problem, kWgmma, block_bytes, 1), x.data(), dy.data());
    };
    const bool pads = problem.axis[1].pad_before > 0 || problem.axis[2].pad_before > 0;
    const std::uint16_t infinity = 0x7f80;
    const auto zero = sums(0, 0), one = sums(infinity, 0);
    // Without padding all sums see the pixel.
    const auto again = sums(pads ? infinity : 0, 4000);
    CHECK(std::memcmp((pads ? one : zero).data(), again.data(), one.size() * 8) == 0);
    // What does not see the pixel has the bits that it has where the pixel is 0.
    int wrong = 0, finite = 0;
    for (std::size_t i = 0; i < one.size(); ++i) {
      if (!std::isfinite(one[i])) continue;
      ++finite;
      wrong += std::memcmp(&one[i], &zero[i], 8) == 0 ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK((finite > 0) == pads);
  }
}

TEST_CASE("cuda_wgmma writes what the tree would, rounded, where there is one slice") {
  const WgradProblem problem =
      make({"3x3", "conv2d", 2, 40, 70, 1, {{9, 3}, {9, 3}}}, DType::bf16, true);
  const auto x = filled(DType::bf16, problem.x_count(), Fill::normal, 5);
  const auto dy = filled(DType::bf16, problem.dy_count(), Fill::normal, 6);
  const Plan one = plan_with(problem, kWgmma, 0, kAllChunks),
             cut = plan_with(problem, kWgmma, 3000, kAllChunks);
  CHECK(cut.schedule.blocks.count > 1);  // in which the tree writes
  const auto sums = emulated_sums(one, x.data(), dy.data());
  CHECK(emulated_sums(cut, x.data(), dy.data()) == sums);
  std::vector<std::uint16_t> want(sums.size()), got(sums.size());
  round_to(DType::bf16, sums.data(), std::ssize(sums), want.data());
  const auto adder = emulated_adder(one);
  CHECK(adder->round_to_result(got.data()));
  MemorySource source(x.data(), dy.data());
  sum_blocks(one, source, *adder);
  CHECK(adder->finish(0) == nullptr);
  CHECK(got == want);
}

TEST_CASE("cuda_wgmma says what it cannot copy") {
  const auto reason = [](const ProblemSpec& spec) {
    for (const DeviceKernel& kernel : device_kernels()) {
      if (kernel.name == "cuda_wgmma") {
        return kernel.why_not(make(spec, DType::bf16, true), emulated_device());
      }
    }
    return std::string("no kernel");
  };
  CHECK(reason({"stride 8", "conv2d", 1, 32, 8, 1, {{90, 3, 8}, {90, 3, 8}}}) == "");
  CHECK(reason({"stride 9", "conv2d", 1, 32, 8, 1, {{90, 3, 9}, {90, 3, 9}}}) != "");
  CHECK(reason({"groups of 8", "conv2d", 1, 80, 80, 10, {{9, 3}, {9, 3}}}) == "");
  CHECK(reason({"odd groups", "conv2d", 1, 333, 333, 9, {{9, 3}, {9, 3}}}) != "");
}

TEST_CASE("numbers are divided by products") {
  for (const std::int64_t value : {1, 2, 3, 5, 7, 64, 113, 127, 128, 129, 1000, 65537, 1 << 20}) {
    const cuda::Divisor by = cuda::divisor(value);
    int wrong = 0;
    for (const std::uint32_t near : {0u, 1u, 1000u, 65536u, 1u << 20, (1u << 31) - 70000u}) {
      for (std::uint32_t n = near; n < near + 70000u; ++n) {
        wrong += by.quotient(n) == n / static_cast<std::uint32_t>(value) ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
  }
}
