// kernels_test.cpp - every algorithm on every problem, in some dtypes and layouts each.
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <thread>
#include <utility>

#include "base/buffer.hpp"
#include "engine/kernel.hpp"
#include "engine/run.hpp"
#include "support/cases.hpp"
#include "support/emulated_amx/emulated_amx.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// This machine's, and AMX in emulation.
std::vector<const Kernel*> all_kernels() {
  const std::span<const Kernel* const> emulated = emulated_amx_kernels();
  std::vector<const Kernel*> all(emulated.begin(), emulated.end());
  for (const Kernel& kernel : kernels()) all.push_back(&kernel);
  return all;
}

PlanOptions with_algorithm(std::string_view name) {
  return {.algorithm = std::string(name), .threads = 2};
}

// x with a value in the place of all that no tap of any output sees.
std::vector<std::byte> with_unseen(const WgradProblem& problem, const std::vector<std::byte>& x,
                                   double value) {
  const auto seen = [&](std::size_t axis, std::int64_t position) {
    const SpatialAxis& a = problem.axis[axis];
    for (std::int64_t out = 0; out < a.out; ++out) {
      for (std::int64_t tap = 0; tap < a.taps; ++tap) {
        if (out * a.stride - a.pad_before + tap * a.dilation == position) return true;
      }
    }
    return false;
  };
  std::vector<double> values = widened(problem.dtype, x);
  const std::int64_t D = problem.axis[0].in, H = problem.axis[1].in, W = problem.axis[2].in;
  for (std::int64_t i = 0; i < problem.x_count(); ++i) {
    const std::int64_t pixel = problem.channels_last ? i / problem.C : i;
    if (seen(0, pixel / (W * H) % D) && seen(1, pixel / W % H) && seen(2, pixel % W)) continue;
    values[static_cast<std::size_t>(i)] = value;
  }
  return tensor_of(problem.dtype, values);
}

// One slice of all chunks, on top of what the partial holds; what a kernel stores in the result is
// taken from there.
std::vector<double> added_to(double before, bool fresh, const Kernel& kernel,
                             const WgradProblem& problem, const void* x, const void* dy,
                             int* tiles_in_result = nullptr) {
  const Plan plan = plan_for(kernel, problem, 1, 0);
  MemorySource source(x, dy);
  BlockMemory memory;
  const Block block = source.load(plan, 0, memory);
  const std::int64_t bytes = std::max<std::int64_t>(kernel.workspace_bytes(problem), 1);
  const Buffer workspace(bytes);
  std::memset(workspace.data(), fresh ? 0xff : 0, static_cast<std::size_t>(bytes));
  std::vector<double> partial(static_cast<std::size_t>(problem.dw_count()), before);
  const ChunkGrid& grid = plan.schedule.chunks;
  const DType type = problem.out_dtype;
  for (const Tile& tile : tiles_of(problem, kernel.tile_steps(problem))) {
    TileSums sums = {partial.data(), fresh};
    std::vector<std::byte> result(static_cast<std::size_t>(problem.dw_count() * dtype_bytes(type)));
    if (tiles_in_result != nullptr && grid.count == 1) sums.result = result.data();
    kernel.accumulate(problem, grid, block, {0, grid.count, 1}, tile, workspace.data(), sums);
    if (!sums.are_in_result) continue;
    const std::vector<double> sums_there = widened(type, result);
    for_each_row(problem, tile, [&](std::int64_t first, std::int64_t count) {
      std::copy_n(&sums_there[static_cast<std::size_t>(first)], count,
                  &partial[static_cast<std::size_t>(first)]);
    });
    ++*tiles_in_result;
  }
  return partial;
}

}  // namespace

// Before the others, which load OpenBLAS too.
TEST_CASE("OpenBLAS leaves no thread behind") {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  std::thread([] {}).join();  // the thread sanitizer starts one of its own with the first
  const auto before = threads();
  CHECK(blas_info().config.starts_with("OpenBLAS "));
  // A thread that has been waited for is listed for a moment more.
  for (int i = 0; i < 1000 && threads() > before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(threads() == before);
}

TEST_CASE("every kernel is bit-exact on small integers") {
  std::vector<int> ran(kernels().size(), 0);
  const auto check = [&](const WgradProblem& problem, const auto& x, const auto& dy) {
    const Expected reference = reference_of(problem, x.data(), dy.data());
    for (std::size_t i = 0; i < kernels().size(); ++i) {
      const Kernel& kernel = kernels()[i];
      if (!kernel.why_not(problem, this_machine()).empty()) continue;
      CAPTURE(kernel.name);
      CHECK(sums_of(problem, x.data(), dy.data(), with_algorithm(kernel.name)) == reference.values);
      ++ran[i];
    }
  };
  for_each_case(basic_problems(), kDTypes, Fill::small_integers, check, 3);
  // A kernel must not fall out of testing unseen.
  for (std::size_t i = 0; i < kernels().size(); ++i) {
    CAPTURE(kernels()[i].name);
    CHECK((ran[i] > 0 || !lacking(kernels()[i]).empty()));
  }
}

TEST_CASE("first sums are stored over anything, with the bits of those added to 0") {
  constexpr double kAnything = std::numeric_limits<double>::quiet_NaN();
  int ran = 0, tiles_in_result = 0;
  const auto check = [&](const WgradProblem& problem, const auto& x, const auto& dy) {
    if (term_count(problem) == 0) return;
    // -0, of which sums that begin at 0 have none, and infinity, which is left to another kernel.
    const auto zeros = tensor_of(
        problem.dtype, std::vector<double>(static_cast<std::size_t>(problem.dy_count()), -0.0));
    for (const Kernel* kernel : all_kernels()) {
      if (!kernel->stores || !kernel->why_not(problem, this_machine()).empty()) continue;
      CAPTURE(kernel->name);
      for (const auto& any_dy : {dy, zeros, dy_with_first_pixel(problem, INFINITY)}) {
        const auto want = added_to(0.0, false, *kernel, problem, x.data(), any_dy.data());
        const auto got = added_to(kAnything, true, *kernel, problem, x.data(), any_dy.data());
        CHECK(std::memcmp(got.data(), want.data(), want.size() * 8) == 0);
        ++ran;
        if (!kernel->stores_result || kernel->chunks(problem).count > 1) continue;
        for (const DType type : {accumulator_dtype(problem.dtype), DType::bf16}) {
          if (type == DType::bf16 && problem.dtype == DType::f64) continue;
          WgradProblem to = problem;
          to.out_dtype = type;
          auto direct =
              added_to(kAnything, true, *kernel, to, x.data(), any_dy.data(), &tiles_in_result);
          auto rounded_sums = want;
          for (auto* values : {&direct, &rounded_sums}) {
            for (double& value : *values) value = rounded(type, value);
          }
          CHECK(std::memcmp(direct.data(), rounded_sums.data(), want.size() * 8) == 0);
        }
      }
    }
  };
  for_each_case(basic_problems(), kDTypes, Fill::normal, check, 7);
  for_each_case(padded_problems(), kDTypes, Fill::normal, check, 3);
  CHECK(ran > 300);
  CHECK(tiles_in_result > 100);
}

TEST_CASE("what only meets padding contributes nothing, also when it is not finite") {
  const auto check = [](const WgradProblem& problem, const auto& x, const auto&) {
    for (const double poison : {kInf, kNan}) {
      const auto dy = dy_with_first_pixel(problem, poison);
      const Expected reference = reference_of(problem, x.data(), dy.data());
      const auto cells = static_cast<std::size_t>(problem.group_c() * problem.K);
      for (std::size_t i = 0; i < cells; ++i) CHECK(std::isfinite(reference.values[i]));
      CHECK_FALSE(std::isfinite(reference.values.back()));
      for (const Kernel* kernel : all_kernels()) {
        if (!kernel->why_not(problem, this_machine()).empty()) continue;
        CAPTURE(kernel->name);
        const auto got = sums_of(*kernel, problem, x.data(), dy.data(), 2);
        const Comparison comparison = compare_gradients(problem, DType::f64, {}, got, reference,
                                                        {.criterion = Criterion::bitwise});
        // An infinity may become NaN where another infinity meets it, in any order alike.
        CHECK(comparison.mismatches == 0);
      }
    }
  };
  for_each_case(padded_problems(), kDTypes, Fill::small_integers, check);
}

TEST_CASE("x that no output sees contributes nothing, also when it is not finite") {
  // Odd numbers of output columns, with more of x behind the last: kernels of pairs read on.
  const ProblemSpec specs[] = {
      {"columns behind", "conv2d", 1, 3, 4, 1, {{5, 2, 3}, {16, 2, 3}}, "VALID"},
      {"one output", "conv2d", 1, 20, 18, 1, {{7, 1, 2}, {4, 2, 3}}, "VALID"},
      {"between", "conv2d", 1, 17, 33, 1, {{8, 1, 3}, {23, 1, 3}}, "VALID"},
      {"none seen", "conv2d", 1, 3, 2, 1, {{1, 2}, {1, 2, 3}}, "EXPLICIT", {5, 0, 3, 0}},
      {"dilated", "conv2d", 1, 8, 16, 2, {{9, 2, 2, 3}, {16, 2, 5, 4}}, "VALID"},
      {"depthwise", "depthwise", 1, 5, 10, 5, {{9, 3, 4}, {16, 3, 5}}, "VALID"},
      {"3-D", "conv3d", 1, 2, 19, 1, {{5, 2, 2}, {6, 1, 4}, {13, 2, 4}}, "VALID"}};
  const auto check = [](const WgradProblem& problem, const auto& whole, const auto& dy) {
    const auto x = with_unseen(problem, whole, kNan);
    const Expected reference = reference_of(problem, whole.data(), dy.data());
    CHECK(x != whole);
    for_each_kernel_here(problem, [&](const Kernel& kernel) {
      for (const std::int64_t block_bytes : {0, 256}) {
        PlanOptions options = with_algorithm(kernel.name);
        options.block_bytes = block_bytes;
        CHECK(sums_of(problem, x.data(), dy.data(), options) == reference.values);
      }
    });
  };
  for_each_case(specs, kDTypes, Fill::small_integers, check);
}

TEST_CASE("the error does not grow with the batch") {
  // A mean different from 0 makes sums grow, the hard case for float32 accumulators.
  double previous = 0;
  for (const std::int64_t images : {8, 512}) {
    const WgradProblem problem =
        make({"1x1", "conv2d", images, 8, 16, 1, {{16, 1}, {16, 1}}}, DType::f32, true);
    auto x = widened(DType::f32, filled(DType::f32, problem.x_count(), Fill::normal, 1));
    auto dy = widened(DType::f32, filled(DType::f32, problem.dy_count(), Fill::normal, 2));
    std::vector<float> xf(x.size()), dyf(dy.size());
    for (std::size_t i = 0; i < x.size(); ++i) xf[i] = static_cast<float>(std::fabs(x[i]));
    for (std::size_t i = 0; i < dy.size(); ++i) dyf[i] = static_cast<float>(std::fabs(dy[i]));
    const Expected reference = reference_of(problem, xf.data(), dyf.data());
    for_each_kernel_here(problem, [&](const Kernel& kernel) {
      const auto got = sums_of(problem, xf.data(), dyf.data(), with_algorithm(kernel.name));
      double worst = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        worst = std::max(worst, std::fabs(got[i] - reference.values[i]) / reference.magnitudes[i]);
      }
      CHECK(worst <= 4 * std::sqrt(512.0) * 0x1p-24);
      if (images == 512 && &kernel == &kernels().front()) CHECK(worst <= 2 * previous);
      if (&kernel == &kernels().front()) previous = worst;
    });
  }
}

TEST_CASE("data near the ends of bfloat16's range") {
  // Products of pairs treat subnormal numbers as zeros: such chunks must take another way.
  const WgradProblem problem =
      make({"3x3", "conv2d", 3, 18, 33, 1, {{9, 3}, {7, 3}}}, DType::bf16, true);
  for (const auto& scales : {std::pair{0x1p-130, 1.0},
                             {1.0, 0x1p-130},
                             {0x1p-70, 0x1p-60},
                             {0x1p-50, 0x1p-55},
                             {0x1p-120, 0x1p+20},
                             {0x1p+60, 0x1p+60}}) {
    const double x_scale = scales.first, dy_scale = scales.second;
    const auto x = scaled_normal(DType::bf16, problem.x_count(), x_scale, 1);
    const auto dy = scaled_normal(DType::bf16, problem.dy_count(), dy_scale, 2);
    const Expected reference = reference_of(problem, x.data(), dy.data());
    CAPTURE(x_scale);
    CAPTURE(dy_scale);
    for_each_kernel_here(problem, [&](const Kernel& kernel) {
      const auto got = sums_of(problem, x.data(), dy.data(), with_algorithm(kernel.name));
      CHECK(compare_sums(problem, got, reference).mismatches == 0);
    });
  }
}
