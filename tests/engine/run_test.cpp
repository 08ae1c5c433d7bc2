// run_test.cpp - whole runs from files in blocks: the bytes, and the memory they take.
#include "engine/run.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "base/integers.hpp"
#include "convgrad/gradient.hpp"
#include "support/errors.hpp"
#include "support/problems.hpp"
#include "support/temp_dir.hpp"
#include "support/tensors.hpp"

using namespace convgrad;
using namespace convgrad::testing;

TEST_CASE("files in blocks of any size give the bytes of the tensors in memory") {
  const ProblemSpec specs[] = {
      {"images", "conv2d", 7, 3, 5, 1, {{11, 3}, {9, 3}}},
      {"rows", "conv2d", 2, 3, 17, 1, {{80, 5, 2, 2}, {41, 3}}},
      {"padded rows", "depthwise", 1, 4, 8, 4, {{60, 3}, {30, 3}}, "EXPLICIT", {4, 0, 2, 7}},
      {"planes", "conv3d", 2, 3, 4, 1, {{12, 3}, {9, 3}, {30, 2}}},
      {"columns", "conv2d", 1, 3, 4, 1, {{3, 3}, {4001, 5, 2, 3}}},
      {"rows of planes", "conv3d", 1, 2, 4, 1, {{4, 3, 1, 2}, {50, 3, 2}, {40, 3}}}};
  TempDir folder;
  for (const ProblemSpec& spec : specs) {
    for (const bool channels_last : {true, false}) {
      const WgradProblem pb = make(spec, DType::f32, channels_last);
      const auto x = filled(DType::f32, pb.x_count(), Fill::normal, 3);
      const auto dy = filled(DType::f32, pb.dy_count(), Fill::normal, 4);
      const std::string x_file = folder.write("x.npy", npy_text(DType::f32, x_shape(pb), x));
      const std::string dy_file = folder.write("dy.npy", npy_text(DType::f32, dy_shape(pb), dy));
      for (const Kernel& kernel : kernels()) {
        if (!kernel.why_not(pb, this_machine()).empty()) continue;
        PlanOptions options{.algorithm = std::string(kernel.name), .threads = 2};
        const std::vector<double> want = sums_of(pb, x.data(), dy.data(), options);
        std::int64_t most_blocks = 0;
        for (const std::int64_t block_bytes : {1, 30000, 1 << 30}) {
          options.block_bytes = block_bytes;
          CAPTURE(spec.name);
          CAPTURE(kernel.name);
          CAPTURE(block_bytes);
          const Plan plan = make_plan(pb, this_machine(), options);
          most_blocks = std::max(most_blocks, plan.schedule.blocks.count);
          NpyReader x_reader(x_file), dy_reader(dy_file);
          NpySource source(x_reader, dy_reader);
          TaskPool pool(2);
          const std::unique_ptr<BlockSum> sum = make_sum(plan, pool);
          BlockMemory memory;
          for (std::int64_t i = 0; i < plan.schedule.blocks.count; ++i) {
            sum->add(source.load(plan, i, memory), i);
          }
          source.finish();
          const double* got = sum->finish();
          CHECK(std::memcmp(got, want.data(), want.size() * 8) == 0);
          // What the plan said it would hold.
          const std::int64_t copies = plan.schedule.blocks.count == 1 ? 1 : 2;
          CHECK(copies * (memory.x.size_bytes() + memory.dy.size_bytes()) <= plan.memory.blocks);
        }
        CHECK(most_blocks > 1);
      }
    }
  }
}

TEST_CASE("of few slices the long ones begin first") {
  static std::vector<std::int64_t> begun;
  Kernel kernel = find_kernel("direct");
  kernel.accumulate = [](const WgradProblem&, const ChunkGrid&, const Block&, const ChunkRun& run,
                         const Tile&, std::byte*,
                         TileSums&) { begun.push_back(ceil_div(run.end - run.begin, run.step)); };
  const WgradProblem pb = make({"", "conv2d", 28, 1, 1, 1, {{14, 3}, {14, 3}}}, DType::f32, true);
  const auto x = filled(DType::f32, pb.x_count(), Fill::normal, 3);
  const auto dy = filled(DType::f32, pb.dy_count(), Fill::normal, 4);
  sums_of(kernel, pb, x.data(), dy.data());
  CHECK(begun == std::vector<std::int64_t>{4, 4, 3, 3});
}

TEST_CASE("images of one pixel are one chunk, as images and as a row") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (std::int64_t n = 2; n <= kMaxChunkPixels; ++n) {
      const WgradProblem pb = make({"", "conv2d", n, 3, 5, 1, {{1, 1}, {1, 1}}}, dtype, n % 2 == 0);
      const WgradProblem row = seen_by_kernels(pb);
      REQUIRE(row.axis[2].out == n);
      for (const Kernel& kernel : kernels()) {
        if (!kernel.why_not(pb, this_machine()).empty()) continue;
        CHECK(kernel.chunks(pb).count == 1);
        CHECK(kernel.chunks(row).count == 1);
      }
    }
  }
}

TEST_CASE("a gradient in one call, from files of two dtypes or from memory") {
  WgradAttributes attributes;
  attributes.op = "conv2d";
  attributes.kernel = {3};
  attributes.padding = "SAME";
  const std::vector<std::int64_t> x_shape = {3, 6, 5, 4}, dy_shape = {3, 6, 5, 2};
  const WgradProblem pb =
      make_problem({"x", DType::f16, x_shape}, {"dy", DType::f32, dy_shape}, attributes);
  const auto halves = filled(DType::f16, pb.x_count(), Fill::small_integers, 7);
  const auto x = tensor_of(DType::f32, widened(DType::f16, halves));
  const auto dy = filled(DType::f32, pb.dy_count(), Fill::small_integers, 8);
  std::vector<std::byte> dw(static_cast<std::size_t>(pb.dw_count() * 4));
  filter_gradient(pb, x.data(), dy.data(), dw.data(), GradientOptions{.algorithm = "direct"});
  CHECK(dw == tensor_of(DType::f32, reference_of(pb, x.data(), dy.data()).values));

  const TempDir folder;
  const std::string x_file = folder.write("x.npy", npy_text(DType::f16, x_shape, halves));
  const std::string dy_file = folder.write("dy.npy", npy_text(DType::f32, dy_shape, dy));
  const auto from_files = [&](const GradientOptions& options) {
    NpyReader x_reader(x_file), dy_reader(dy_file);
    return filter_gradient(pb, x_reader, dy_reader, options);
  };
  CHECK(dw == tensor_of(DType::f32, from_files({.threads = 2})));
  const auto refused = [&](ErrorKind kind, const GradientOptions& options) {
    check_error(kind, "", "", [&] { from_files(options); });
  };
  refused(ErrorKind::usage, {.algorithm = "magic"});
  refused(ErrorKind::runtime, {.memory_limit_bytes = 1});
  refused(ErrorKind::unavailable, {.cuda_device = 1000});
}
