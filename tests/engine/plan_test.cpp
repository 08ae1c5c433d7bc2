// plan_test.cpp - memory before allocation, the choice of an algorithm, and the task pool.
#include "engine/plan.hpp"

#include <doctest/doctest.h>

#include <atomic>

#include "base/task_pool.hpp"
#include "support/errors.hpp"
#include "support/problems.hpp"
#include "support/tensors.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

WgradProblem large() {
  return make({"large", "conv2d", 4096, 64, 64, 1, {{56, 3}, {56, 3}}}, DType::f32, true);
}

Plan plan_with_limit(const WgradProblem& problem, std::int64_t mebibytes) {
  return make_plan(problem, this_machine(), {.threads = 2, .memory_limit_bytes = mebibytes << 20});
}

}  // namespace

TEST_CASE("a plan stays below the memory limit, and the schedule does not depend on it") {
  const Plan wide = plan_with_limit(large(), 1024), narrow = plan_with_limit(large(), 100);
  CHECK(wide.memory.total() <= std::int64_t{1024} << 20);
  CHECK(narrow.memory.total() <= std::int64_t{100} << 20);
  CHECK(narrow.schedule.blocks.step < wide.schedule.blocks.step);
  CHECK(narrow.schedule.slices.count() == wide.schedule.slices.count());
  CHECK(narrow.schedule.chunks.count == wide.schedule.chunks.count);
  CHECK(narrow.cpu()->kernel == wide.cpu()->kernel);
}

TEST_CASE("memory is flat in the batch") {
  WgradProblem more = large();
  more.N *= 1000;
  CHECK(plan_with_limit(more, 1024).memory.total() <=
        plan_with_limit(large(), 1024).memory.total() * 11 / 10);
}

TEST_CASE("an empty batch needs no memory for its images") {
  const WgradProblem wide =
      make({"wide", "conv2d", 0, 8, 8, 1, {{100000, 3}, {300000, 3}}}, DType::f32, true);
  for (const Kernel& kernel : kernels()) {
    if (!kernel.why_not(wide, this_machine()).empty()) continue;
    CAPTURE(kernel.name);
    CHECK(kernel.workspace_bytes(wide) <= std::int64_t{4} << 20);
  }
}

TEST_CASE("too little memory is said before anything is allocated") {
  CHECK_THROWS_WITH_AS(plan_with_limit(large(), 30),
                       doctest::Contains("--memory-limit is 30.0 MiB"), Error);
  const WgradProblem absurd =
      make({"absurd", "conv2d", 1, 1000, 1000, 1, {{9, 20000}, {9, 20000}}}, DType::f32, true);
  check_error(ErrorKind::runtime, "", "the machine has",
              [&] { make_plan(absurd, this_machine(), {}); });
}

TEST_CASE("auto takes what suits the shape and the processor") {
  Machine machine;
  const auto chosen = [&](const ProblemSpec& spec, DType dtype = DType::f32) {
    return find_kernel(make(spec, dtype, true), machine).or_throw()->name;
  };
  const ProblemSpec dense = {"3x3", "conv2d", 16, 64, 64, 1, {{56, 3}, {56, 3}}};
  const ProblemSpec few = {"3x3 of few channels", "conv2d", 4, 3, 16, 1, {{64, 3}, {64, 3}}};
  const ProblemSpec depthwise = {"3x3", "depthwise", 16, 144, 144, 144, {{56, 3}, {56, 3}}};
  const ProblemSpec narrow = {"3x3, narrow",           "depthwise", 128, 24, 24, 24,
                              {{56, 3, 2}, {56, 3, 2}}};
  // Portable kernels have 128-bit vectors, which on aarch64 are all that there is.
#if defined(__aarch64__)
  CHECK(chosen(dense) == "outer_product");
#else
  CHECK(chosen(dense) == "im2col_gemm");
#endif
  CHECK(chosen(depthwise) == "streaming");
  CHECK_THROWS_WITH_AS(find_kernel(make(dense, DType::f32, true), machine, "streaming").or_throw(),
                       doctest::Contains("channels are too wide"), Error);
  CHECK_THROWS_WITH_AS(find_kernel("im2col_gem"), doctest::Contains("did you mean 'im2col_gemm'?"),
                       Error);
#if defined(__x86_64__)
  machine.instruction_sets = {"avx2", "fma", "f16c"};
  CHECK(chosen(dense) == "outer_product_avx2");
  CHECK(chosen(depthwise) == "streaming_avx2");
  CHECK_THROWS_WITH_AS(
      find_kernel(make(dense, DType::f32, true), machine, "outer_product_avx512").or_throw(),
      doctest::Contains("the processor has no avx512f"), Error);
  machine.instruction_sets = {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"};
  CHECK(chosen(dense) == "outer_product_avx512");
  CHECK(chosen(few) == "outer_product_avx512");
  CHECK(chosen(depthwise) == "streaming_avx512");
  CHECK(chosen(narrow) == "streaming_avx512");
  CHECK(chosen(narrow, DType::bf16) == "streaming_avx2");  // 24 are no two vectors of 16
#elif defined(__aarch64__)
  machine.instruction_sets = {"neon"};
  CHECK(chosen(dense) == "outer_product_neon");
  CHECK(chosen(depthwise) == "streaming_neon");
#endif
}

TEST_CASE("extents near the end of the range are estimated without overflow") {
  // 2^57 taps of one channel: bytes still fit an int64, products with a vector's interleave do not.
  const std::int64_t taps = std::int64_t{1} << 29;
  const WgradProblem huge =
      make({"huge", "conv2d", 1, 1, 1, 1, {{1, taps / 2}, {1, taps}}}, DType::f32, true);
  for (const Kernel& kernel : kernels()) {
    CAPTURE(kernel.name);
    CHECK(kernel.estimated_seconds(huge) > 1e6);
    if (!kernel.why_not(huge, this_machine()).empty()) continue;
    const PlanOptions options{.algorithm = std::string(kernel.name)};
    CHECK_THROWS_WITH_AS(make_plan(huge, this_machine(), options), doctest::Contains("memory"),
                         Error);
    CHECK(kernel.workspace_bytes(huge) >= 0);
  }
}

TEST_CASE("the pool runs every task once and passes the first exception on") {
  for (const int threads : {1, 2, 5}) {
    TaskPool pool(threads);
    for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      pool.run(count, [&](std::int64_t task, int worker) {
        CHECK(worker < threads);
        ++seen[static_cast<std::size_t>(task)];
      });
      for (const auto& times : seen) CHECK(times == 1);
    }
    CHECK_THROWS_WITH_AS(pool.run(50,
                                  [](std::int64_t task, int) {
                                    if (task == 7) throw Error(ErrorKind::runtime, "seven");
                                  }),
                         "seven", Error);
    std::atomic<int> after{0};
    pool.run(10, [&](std::int64_t, int) { ++after; });
    CHECK(after == 10);
  }
}

TEST_CASE("the list of tiles is memory too") {
  const std::int64_t groups = 1 << 20;
  const WgradProblem problem =
      make({"groups", "conv2d", 1, groups, groups, groups, {{1, 1}, {1, 1}}}, DType::f32, true);
  // GEMM has a tile for each group.
  const Plan plan = make_plan(problem, this_machine(), {.algorithm = "im2col_gemm", .threads = 1});
  const TileSteps steps = plan.cpu()->kernel->tile_steps(problem);
  CHECK(plan.tiles() == groups);
  CHECK(std::ssize(tiles_of(problem, steps)) == groups);
  CHECK(plan.memory.program >= groups * static_cast<std::int64_t>(sizeof(Tile)));
}

TEST_CASE("few threads take wide tiles, many narrow ones") {
  const WgradProblem problem =
      make({"wide", "depthwise", 128, 1152, 1152, 1152, {{7, 3}, {7, 3}}}, DType::f32, true);
  const auto tiles_of_threads = [&](int threads) {
    return make_plan(problem, this_machine(), {.algorithm = "streaming", .threads = threads})
        .tiles();
  };
  CHECK(tiles_of_threads(2) == 1);
  CHECK(tiles_of_threads(7) == 3);   // 3 slices
  CHECK(tiles_of_threads(64) == 6);  // 5 of 3 slices are an odd number of tasks
}
