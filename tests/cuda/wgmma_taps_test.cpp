// wgmma_taps_test.cpp - cuda_wgmma and cuda_wgmma_bf16x3 on all kinds of layouts, emulated.
#include <doctest/doctest.h>

#include <algorithm>
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
const ProblemSpec kProblems[] = {
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

// So many chunks that there is one slice alone.
constexpr std::int64_t kAllChunks = std::int64_t{1} << 40;
constexpr std::string_view kWgmma = "cuda_wgmma", kBf16x3 = "cuda_wgmma_bf16x3";

// Rounded to float32, as results are: alone, a sum of two terms may be off by more than IEEE sums.
bool is_right(const WgradProblem& problem, std::vector<double> sums, const Tensors& tensors) {
  for (double& sum : sums) sum = static_cast<float>(sum);
  const Expected reference = device_reference_of(problem, tensors.x.data(), tensors.dy.data());
  return compare_gradients(problem, DType::f32, {}, sums, reference, {}).match();
}

}  // namespace

TEST_CASE("cuda_wgmma is exact in every layout") {
  std::set<std::pair<cuda::TapsKind, bool>> kinds;
  bool long_sums = false, apart = false;
  for (const ProblemSpec& spec : kProblems) {
    CAPTURE(spec.name);
    for (const bool channels_last : {true, false}) {
      const DType dtype = channels_last ? DType::bf16 : DType::f16;
      const WgradProblem problem = make(spec, dtype, channels_last);
      const cuda::TapsChoice choice = cuda::taps_choice(problem);
      kinds.emplace(choice.kind, choice.folds);
      apart = apart || choice.layout.x_copies > 4;
      const Tensors tensors(problem, Fill::small_integers, 1);
      const Expected reference = device_reference_of(problem, tensors.x.data(), tensors.dy.data());
      for (const std::int64_t least : {std::int64_t{1}, kAllChunks}) {
        const Plan plan = plan_with(problem, kWgmma, 0, least);
        long_sums = long_sums || cuda::with_slices(choice, plan.schedule.slices).has_totals;
        agreements = 0;
        CHECK(emulated_sums(plan, tensors) == reference.values);
        CHECK(agreements == 0);
      }
    }
  }
  CHECK(kinds.size() == 5);  // all variants, and the one of two panels for channels and for taps
  CHECK(long_sums);
  CHECK(apart);
}

TEST_CASE("cuda_wgmma_bf16x3 is right in every layout") {
  std::set<std::pair<cuda::TapsKind, bool>> kinds;
  std::set<int> together;
  bool channels_last = false;
  most_blocks = 0;
  for (const ProblemSpec& spec : kProblems) {
    CAPTURE(spec.name);
    channels_last = !channels_last;
    const WgradProblem problem = make(spec, DType::f32, channels_last);
    const cuda::TapsChoice choice = cuda::taps_choice(problem);
    kinds.emplace(choice.kind, choice.folds);
    together.insert(choice.layout.together);
    const Tensors tensors(problem, Fill::normal, 1);
    agreements = 0;
    CHECK(is_right(problem, emulated_sums(plan_with(problem, kBf16x3, 0, 1), tensors), tensors));
    CHECK(agreements == 0);
  }
  CHECK(kinds.size() == 4);  // all but 64 channels by three
  CHECK(together == std::set<int>{2, 3, 4});
  CHECK(most_blocks == 8);
}

TEST_CASE("cuda_wgmma_bf16x3 forms sums of numbers that three bfloat16 are not") {
  const ProblemSpec specs[] = {{"3x3", "conv2d", 2, 33, 20, 1, {{7, 3}, {9, 3}}},
                               {"colours", "conv2d", 2, 3, 10, 1, {{9, 5, 2}, {11, 3}}},
                               {"1x1", "conv2d", 2, 70, 70, 1, {{5, 1}, {6, 1}}}};
  struct Data {
    const char* name;
    double x_scale, dy_scale, some;  // every eleventh element of x
  };
  for (const Data& data :
       {Data{"below 2^-103", 0x1p-110, 0x1p100, 0x1p-120},
        Data{"subnormal dy", 0x1p120, 0x1p-140, 0x1p90}, Data{"some small", 1, 1, 0x1p-120},
        Data{"nearly too large", 0x1p90, 0x1p-115, 0x1.fffffep127}}) {
    CAPTURE(data.name);
    for (const ProblemSpec& spec : specs) {
      CAPTURE(spec.name);
      const WgradProblem problem = make(spec, DType::f32, true);
      Tensors tensors;
      tensors.x = scaled_normal(DType::f32, problem.x_count(), data.x_scale, 3);
      tensors.dy = scaled_normal(DType::f32, problem.dy_count(), data.dy_scale, 4);
      const auto some = static_cast<float>(data.some);
      for (std::size_t i = 20; i < tensors.x.size(); i += 44) std::memcpy(&tensors.x[i], &some, 4);
      agreements = 0;
      const auto one = emulated_sums(plan_with(problem, kBf16x3, 0, 1), tensors);
      CHECK(agreements > 0);
      CHECK(is_right(problem, one, tensors));
      const Plan cut = plan_with(problem, kBf16x3, 3000, 1);
      CHECK(cut.schedule.blocks.count > 1);
      CHECK(same_bits(emulated_sums(cut, tensors), one));
    }
  }
}

TEST_CASE("both have the same bits for all blocks, with Inf where nothing sees it, too") {
  Thinned thinned;
  bool of_terms = false;
  for (const ProblemSpec& spec : kProblems) {
    CAPTURE(spec.name);
    if (thinned.skips()) continue;
    of_terms = !of_terms;
    const DType dtype = of_terms ? DType::f32 : DType::bf16;
    const WgradProblem problem = make(spec, dtype, true);
    Tensors tensors(problem, Fill::normal, 3);
    const auto sums = [&](double first, std::int64_t block_bytes) {
      // Of the first pixel, which some taps see beside x.
      const auto pixel = tensor_of(dtype, std::vector(static_cast<std::size_t>(problem.K), first));
      std::ranges::copy(pixel, tensors.dy.begin());
      return emulated_sums(plan_with(problem, of_terms ? kBf16x3 : kWgmma, block_bytes, 1),
                           tensors);
    };
    const bool pads = problem.axis[1].pad_before > 0 || problem.axis[2].pad_before > 0;
    const auto zero = sums(0, 0), one = sums(kInf, 0);
    // Without padding all sums see the pixel.
    CHECK(same_bits(pads ? one : zero, sums(pads ? kInf : 0, 4000)));
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

TEST_CASE("clusters of slices write what the tree would, rounded") {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const WgradProblem problem =
        make({"3x3", "conv2d", 24, 16, 24, 1, {{4, 3}, {5, 3}}}, dtype, true);
    Tensors tensors(problem, Fill::normal, 5);
    tensors.dy.clear();
    for (int n = 0; n < 24; ++n) {  // of such sizes that another order of additions would show
      const auto image =
          scaled_normal(dtype, problem.dy_count() / 24, std::ldexp(1.0, n * 17 % 41), 6);
      tensors.dy.insert(tensors.dy.end(), image.begin(), image.end());
    }
    for (const int slices : {1, 7, 8, 24}) {
      CAPTURE(slices);
      const auto plan = [&](std::int64_t block_bytes) {
        Plan result = plan_with(problem, dtype == DType::f32 ? kBf16x3 : kWgmma, block_bytes, 1);
        result.schedule.slices = deal_slices(result.schedule.chunks, slices, slices, 1);
        result.schedule.nodes = {{0, slices}};
        std::get<CudaPlan>(result.backend).memory.partials =
            cuda::taps_partial_bytes(cuda::taps_choice(problem), result.schedule.slices);
        return result;
      };
      const Plan one = plan(0), cut = plan(6000);
      CHECK(cut.schedule.blocks.count > 1);
      most_blocks = 0;
      const auto sums = emulated_sums(cut, tensors);
      CHECK(most_blocks == 1);
      CHECK(same_bits(emulated_sums(one, tensors), sums));
      const bool apart = dtype != DType::f32 || slices == 9;
      CHECK(most_blocks == (apart ? 1 : std::min(slices, 8)));
      const auto want = tensor_of(dtype, sums);
      auto got = want;
      std::ranges::fill(got, std::byte{});
      const auto adder = emulated_adder(one);
      CHECK(adder->round_to_result(got.data()));
      MemorySource source(tensors.x.data(), tensors.dy.data());
      sum_blocks(one, source, *adder);
      CHECK(adder->finish(0) == nullptr);
      CHECK(got == want);
    }
  }
}

TEST_CASE("slices are clusters where these take no more waves than blocks") {
  const auto cluster = [](std::int64_t tiles, std::int64_t slices, std::int64_t chunks = 1) {
    cuda::TapsChoice choice{};
    choice.tiles = tiles;
    choice.layout.sums = cuda::divisor(4);
    return cuda::cluster_of(choice, {chunks * slices, 1, slices, 1});
  };
  CHECK(cluster(130, 1) == 1);
  CHECK(cluster(32, 4) == 4);
  CHECK(cluster(33, 4) == 0);
  CHECK(cluster(40, 4) == 4);
  CHECK(cluster(2, 64) == 8);
  CHECK(cluster(6, 22) == 0);
  CHECK(cluster(2, 8, 4) == 8);
  CHECK(cluster(2, 8, 5) == 0);  // more than a sum
}

TEST_CASE("a float32 is the sum of its terms, or kept as it is") {
  int wrong = 0, kept = 0;
  for (std::uint32_t i = 0; i < 1 << 22; ++i) {
    const std::uint32_t bits = i * 1021;
    const float value = std::abs(cuda::bits_float(bits));
    std::uint16_t terms[3];
    cuda::cut(bits, terms);
    const BFloat16 cut[3] = {{terms[0]}, {terms[1]}, {terms[2]}};
    const bool is_kept = std::isnan(cuda::convert<float>(cut[0]));
    kept += is_kept ? 1 : 0;
    wrong += is_kept == (value == 0 || (value >= 0x1p-103f && value < 0x1.ffp127f)) ? 1 : 0;
    wrong += value != 0 && cuda::float_bits(cuda::whole(cut)) != bits ? 1 : 0;
  }
  CHECK(wrong == 0);
  CHECK(kept > 1 << 18);
}

TEST_CASE("cuda_wgmma says what it cannot copy") {
  const auto computes = [](const ProblemSpec& spec) {
    const WgradProblem problem = make(spec, DType::bf16, true);
    return static_cast<bool>(find_device_kernel(problem, emulated_device(), kWgmma));
  };
  CHECK(computes({"stride 8", "conv2d", 1, 32, 8, 1, {{90, 3, 8}, {90, 3, 8}}}));
  CHECK_FALSE(computes({"stride 9", "conv2d", 1, 32, 8, 1, {{90, 3, 9}, {90, 3, 9}}}));
  CHECK(computes({"groups of 8", "conv2d", 1, 80, 80, 10, {{9, 3}, {9, 3}}}));
  CHECK_FALSE(computes({"odd groups", "conv2d", 1, 333, 333, 9, {{9, 3}, {9, 3}}}));
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
