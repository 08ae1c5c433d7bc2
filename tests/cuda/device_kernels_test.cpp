// device_kernels_test.cpp - the code of the device kernels, run by the processor
// (emulated_device.hpp). What only a device can show is in gpu_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cuda/choices.hpp"
#include "cuda/emulated_device.hpp"
#include "cuda/emulated_instructions.hpp"
#include "support/cases.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// The shared problems, and those that are special for device kernels.
std::vector<ProblemSpec> all_problems() {
  const std::vector<ProblemSpec> more = {
      {"wide tiles", "conv2d", 1, 120, 250, 1, {{5, 1}, {7, 1}}},
      {"wide tiles, channels of no whole vectors", "conv2d", 1, 125, 131, 1, {{3, 2}, {3, 1}}},
      {"many slices of several chunks", "conv2d", 23, 9, 10, 1, {{16, 1}, {17, 1}}},
      {"many slices, 3x3", "conv2d", 5, 12, 17, 1, {{24, 3}, {21, 3, 2}}},
      {"many slices, depthwise", "depthwise", 11, 35, 35, 35, {{30, 3}, {17, 3}}},
      {"groups of 8 to 16", "conv2d", 2, 24, 48, 3, {{6, 3}, {7, 3}}},
      {"rows of 600", "conv2d", 1, 8, 8, 1, {{3, 2, 2}, {600, 3, 1, 2}}},
      {"strips, depthwise", "depthwise", 2, 9, 18, 9, {{21, 5, 1, 2}, {61, 3, 2}}},
      {"strips, stride above the filter", "depthwise", 1, 33, 33, 33, {{31, 2, 3}, {67, 2}}},
      {"taps far apart, and none", "depthwise", 1, 5, 5, 5, {{9, 2, 1, 100000}, {9, 3}}},
      {"a dilation of one tap", "depthwise", 2, 5, 5, 5, {{4, 1, 1, 400000000}, {9, 7}}}};
  return joined(joined(basic_problems(), more), depthwise_problems());
}

// Calls check(kernel) for each that is emulated and computes the problem.
template <typename Check>
void for_each_kernel(const WgradProblem& problem, Check&& check) {
  for (const DeviceKernel& kernel : device_kernels()) {
    if (kernel.name.starts_with("cudnn")) continue;
    if (!kernel.why_not(problem, emulated_device()).empty()) continue;
    CAPTURE(kernel.name);
    check(kernel);
  }
}

// The float64 instruction of compute capability 8.0.
struct SmallMmaF64 : cuda::MmaSums {
  static constexpr int kM = 8, kN = 8, kK = 4;
  static constexpr int kElementsA = 1, kElementsB = 1, kElementsC = 2;
  static void a_place(int lane, int, int& row, int& k) {
    row = lane / 4;
    k = lane % 4;
  }
  static void b_place(int lane, int, int& k, int& column) { a_place(lane, 0, column, k); }
  static double a_value(double a, int) { return a; }
  static double b_value(double b, int) { return b; }
};

PixelBox pixels_of(const cuda::Box& box) {
  PixelBox result;
  for (std::size_t a = 0; a < 4; ++a) {
    const std::int64_t begin = a == 0 ? box.n : box.begin[a - 1];
    result[a] = {begin, begin + box.size[a]};
  }
  return result;
}

// Pixel number i of a box, q fastest.
void pixel_of(const cuda::Box& box, int i, std::int64_t& image, int (&at)[3]) {
  for (int a = 2; a >= 0; --a) {
    at[a] = box.begin[a] + i % box.size[a + 1];
    i /= box.size[a + 1];
  }
  image = box.n + i;
}

}  // namespace

TEST_CASE("every device kernel is bit-exact on small integers") {
  std::vector<int> ran(device_kernels().size(), 0);
  const auto check = [&](const WgradProblem& problem, const auto& x, const auto& dy) {
    const Expected reference = device_reference_of(problem, x.data(), dy.data());
    for_each_kernel(problem, [&](const DeviceKernel& kernel) {
      if (!kernel.is_exact || !is_quick(problem, kernel)) return;
      agreements = 0;
      const Plan plan = plan_with(problem, kernel.name);
      CHECK(emulated_sums(plan, x.data(), dy.data()) == reference.values);
      CHECK(agreements == 0);  // what was not written is NaN, and would be seen here
      ++ran[static_cast<std::size_t>(&kernel - device_kernels().data())];
    });
  };
  for_each_case(all_problems(), kDTypes, Fill::small_integers, check, std::max(3u, kThin));
  for (std::size_t i = 0; i < ran.size(); ++i) {
    CAPTURE(device_kernels()[i].name);
    CHECK((ran[i] >= (kThin > 1 ? 2 : 16) || !device_kernels()[i].is_exact));
  }
}

TEST_CASE("blocks do not change a bit on a device") {
  const ProblemSpec specs[] = {{"many chunks", "conv2d", 14, 5, 9, 1, {{13, 2}, {17, 1}}},
                               {"rows", "conv2d", 1, 3, 20, 1, {{27, 3, 2}, {90, 1}}},
                               {"depthwise", "depthwise", 7, 17, 17, 17, {{20, 3}, {21, 3}}},
                               {"3-D", "conv3d", 1, 4, 17, 1, {{9, 2}, {12, 1}, {11, 1}}},
                               {"wide", "conv2d", 1, 2, 16, 1, {{3, 2}, {1100, 1}}}};
  Thinned thinned;
  bool channels_last = false;
  for (const ProblemSpec& spec : specs) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      if (thinned.skips()) continue;
      channels_last = !channels_last;
      const WgradProblem problem = make(spec, dtype, channels_last);
      const Tensors tensors(problem, Fill::normal, 11);
      CAPTURE(spec.name);
      for_each_kernel(problem, [&](const DeviceKernel& kernel) {
        const bool slow =
            kernel.name.starts_with("cuda_mma") || kernel.name.starts_with("cuda_wgmma");
        if (slow && spec.name != "many chunks" && spec.name != "3-D") return;
        const auto one = emulated_sums(plan_with(problem, kernel.name), tensors);
        for (const std::int64_t block_bytes : {3000, 40000}) {
          CAPTURE(block_bytes);
          const Plan plan = plan_with(problem, kernel.name, block_bytes);
          CHECK((block_bytes > 3000 || plan.schedule.blocks.count > 1));
          CHECK(same_bits(emulated_sums(plan, tensors), one));
        }
      });
    }
  }
}

TEST_CASE("what only meets padding contributes nothing on a device") {
  const auto check = [](const WgradProblem& problem, const auto& x, const auto&) {
    const auto dy = dy_with_first_pixel(problem, problem.channels_last ? kInf : kNan);
    const Expected reference = device_reference_of(problem, x.data(), dy.data());
    CHECK(std::isfinite(reference.values[0]));
    CHECK_FALSE(std::isfinite(reference.values.back()));
    for_each_kernel(problem, [&](const DeviceKernel& kernel) {
      const auto got = emulated_sums(plan_with(problem, kernel.name), x.data(), dy.data());
      const Comparison comparison = compare_gradients(problem, DType::f64, {}, got, reference,
                                                      {.criterion = Criterion::bitwise});
      CHECK(comparison.mismatches == 0);
    });
  };
  for_each_case(padded_problems(), kDTypes, Fill::small_integers, check);
}

TEST_CASE("six products of bfloat16 err no more than float32 multiply-adds") {
  const WgradProblem problem =
      make({"1x1", "conv2d", 4, 16, 24, 1, {{16, 1}, {32, 1}}}, DType::f32, true);
  const auto tensor = [&](std::int64_t count, unsigned seed, auto&& change) {
    auto values = widened(DType::f32, filled(DType::f32, count, Fill::normal, seed));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = change(values[i], i);
    return tensor_of(DType::f32, values);
  };
  const auto check = [&](const char* data, auto&& of_x, auto&& of_dy) {
    const auto x = tensor(problem.x_count(), 1, of_x), dy = tensor(problem.dy_count(), 2, of_dy);
    const Expected reference = device_reference_of(problem, x.data(), dy.data());
    const auto mean_error = [&](std::string_view kernel) {  // root mean square
      const auto got = emulated_sums(plan_with(problem, kernel), x.data(), dy.data());
      double squares = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        squares += std::pow((got[i] - reference.values[i]) / reference.magnitudes[i], 2);
      }
      return std::sqrt(squares / static_cast<double>(got.size()));
    };
    const double plain = mean_error("cuda_simt_gemm"), six = mean_error("cuda_wgmma_bf16x3");
    CAPTURE(data);
    CAPTURE(plain);
    CAPTURE(six);
    CHECK(six < plain);
  };
  const auto as_is = [](double value, std::size_t) { return value; };
  const auto uniform = [](double value, std::size_t) { return std::erfc(value) / 2; };
  const auto wide = [](double value, std::size_t i) {
    return std::ldexp(value, static_cast<int>(i * 7 % 29) - 14);
  };
  check("normal", as_is, as_is);
  check("in [0, 1]", uniform, uniform);
  check(
      "rectified", [](double value, std::size_t) { return std::max(value, 0.0); }, as_is);
  check("of many sizes", wide, as_is);
}

TEST_CASE("operands in shared memory are described as the PTX manual says") {
  // The address and both offsets in 16 bytes; 1 for the 128-byte swizzle, 2 for that of 64 bytes.
  CHECK(cuda::operand_at(0x12800, 128, 0x2000) == 0x4000004002001280u);
  CHECK(cuda::operand_at(0x12840, 64, 0x40) == 0x8000002000041284u);
  CHECK(cuda::operand_after(cuda::operand_at(0x12800, 128, 0x2000), 0x21800) ==
        cuda::operand_at(0x34000, 128, 0x2000));
  CHECK(cuda::swizzled(0x0400, 128) == 0x0400);
  CHECK(cuda::swizzled(0x0490, 128) == 0x0480);  // piece 1 of row 1 is the first
  CHECK(cuda::swizzled(0x07f2, 128) == 0x0782);  // piece 7 of row 7, too
  CHECK(cuda::swizzled(0x0050, 64) == 0x0050);   // rows 0 and 1 are as they are
  CHECK(cuda::swizzled(0x0092, 64) == 0x0082);   // piece 1 of row 2 is the first
  CHECK(cuda::swizzled(0x03f0, 64) == 0x03c0);   // piece 3 of row 15, too
}

TEST_CASE("eight small float64 instructions compute the bits of a large one") {
  using Op = cuda::MmaF64;
  Op::A a[cuda::kWarp];
  Op::B b[cuda::kWarp];
  Op::C whole[cuda::kWarp], parts[cuda::kWarp];
  const auto values = filled(DType::f64, cuda::kWarp * 16, Fill::normal, 3);
  const double* next = reinterpret_cast<const double*>(values.data());
  for (int lane = 0; lane < cuda::kWarp; ++lane) {
    for (double& value : a[lane].value) value = *next++;
    for (double& value : b[lane].value) value = *next++;
    for (int e = 0; e < Op::kElementsC; ++e) whole[lane][e] = parts[lane][e] = *next++;
  }
  multiply_warp<Op>([&](int lane) { return a[lane]; }, [&](int lane) { return b[lane]; },
                    [&](int lane) { return whole[lane]; });
  for (int e = 0; e < Op::kElementsA; ++e) {  // as MmaF64::multiply() has them
    multiply_warp<SmallMmaF64>([&](int lane) { return a[lane].value[e]; },
                               [&](int lane) { return b[lane].value[e / 2]; },
                               [&](int lane) { return parts[lane] + e % 2 * 2; });
  }
  CHECK(std::memcmp(whole, parts, sizeof(whole)) == 0);
}

TEST_CASE("pixels of a chunk are located without divisions") {
  for (int divisor = 1; divisor < 5000; divisor += divisor < 1200 ? 1 : 31) {
    int wrong = 0;
    for (int i = 0; i < cuda::kLongChunkPixels; ++i) {
      wrong += cuda::quotient(i, cuda::reciprocal(divisor)) == i / divisor ? 0 : 1;
    }
    CAPTURE(divisor);
    CHECK(wrong == 0);
  }
  for (const ProblemSpec& spec : all_problems()) {
    CAPTURE(spec.name);
    const ChunkGrid grid = even_chunk_grid(make(spec, DType::f16, true), cuda::kLongChunkPixels);
    const cuda::Chunks chunks = cuda::chunks_of(grid);
    int wrong = 0;
    for (std::int64_t chunk = 0; chunk < grid.count; ++chunk) {
      const cuda::Box box = chunks.box(chunk);
      for (int i = 0; i < box.pixels(); ++i) {
        std::int64_t n;
        int image, at[3], out[3];
        pixel_of(box, i, n, at);
        chunks.pixel(box, i, image, out);
        wrong += box.n + image == n && std::ranges::equal(at, out) ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a walk has the chunks of a slice in turn, as the schedule cuts them") {
  const std::vector<ProblemSpec> more = {
      {"many images", "conv2d", 1000, 8, 8, 1, {{24, 3}, {31, 3}}},
      {"pieces of planes", "conv3d", 5, 8, 8, 1, {{7, 3}, {37, 3}, {41, 3}}},
      {"pieces of rows", "conv3d", 3, 8, 8, 1, {{5, 3}, {7, 3}, {1203, 3}}}};
  const auto problems = joined(joined(basic_problems(), many_block_problems()), more);
  for (const ProblemSpec& spec : problems) {
    CAPTURE(spec.name);
    const ChunkGrid grid = chunk_grid(make(spec, DType::f32, true));
    for (const std::int64_t wanted : {1, 2, 7, 60, 4096}) {
      CAPTURE(wanted);
      const SliceGrid slices =
          deal_slices(grid, std::min(wanted, std::max<std::int64_t>(grid.count, 1)), 8, 4096);
      const Range withins[] = {{0, grid.count}, {grid.count / 3, grid.count * 2 / 3}};
      for (const Range within : withins) {
        cuda::BlockParams work{};
        cuda::set_chunks(work, grid, slices, within);
        work.tiles = 1;
        for (std::int64_t slice = 0; slice < slices.count(); ++slice) {
          CAPTURE(slice);
          const ChunkRun run = slices.chunks_of(slice, within);
          cuda::ChunkWalker walk(work, slice);
          bool same = true;
          for (std::int64_t chunk = run.begin; chunk < run.end; chunk += run.step, walk.next()) {
            same = same && !walk.done() && pixels_of(walk.box()) == grid.box(chunk);
          }
          CHECK(same);
          CHECK(walk.done());
        }
      }
    }
  }
}

TEST_CASE("slices for a device have chunks each, and fill it") {
  const std::vector<ProblemSpec> more = {
      {"3x3", "conv2d", 16, 256, 256, 1, {{14, 3}, {14, 3}}},
      {"3x3, more images", "conv2d", 64, 256, 256, 1, {{14, 3}, {14, 3}}},
      {"large images", "conv2d", 9, 64, 64, 1, {{224, 3}, {224, 3}}},
      {"depthwise", "depthwise", 64, 512, 512, 512, {{28, 3}, {28, 3}}}};
  for (const ProblemSpec& spec : joined(all_problems(), more)) {
    const WgradProblem problem = make(spec, DType::f16, true);
    const ChunkGrid grid = chunk_grid(problem);
    CAPTURE(spec.name);
    for_each_kernel(problem, [&](const DeviceKernel& kernel) {
      if (kernel.schedule != nullptr) return;
      const DeviceTiles tiles = kernel.tiles(with_channels(problem));
      const SliceGrid slices = device_slice_grid(problem, grid, kernel, tiles);
      const std::int64_t count = slices.count();
      // Nobody sets the sums of a slice without chunks to zero.
      for (std::int64_t slice = 0; slice < count && grid.count > 0; ++slice) {
        const ChunkRun run = slices.chunks_of(slice, {0, grid.count});
        CHECK(run.begin < run.end);
      }
      if (count == 1) return;
      CHECK(count * problem.dw_count() * 8 <= std::int64_t{128} << 20);
      CHECK(count * tiles.count <= 4 * 132 * tiles.resident);
    });
  }
  // Of 36 tiles three slices run at a time, and more would wait for them; of 200 none does. Of 9,
  // four at a time, memory has room for 28, and for two chunks each 16 suffice.
  const WgradProblem problem = make(more[1], DType::f16, true);
  const ChunkGrid grid = chunk_grid(problem);
  CHECK(grid.count == 32);
  const DeviceKernel& kernel = device_kernels()[1];
  CHECK(device_slice_grid(problem, grid, kernel, {36, 1}).count() == 3);
  CHECK(device_slice_grid(problem, grid, kernel, {200, 1}).count() == 1);
  CHECK(device_slice_grid(problem, grid, kernel, {9, 4}).count() == 16);
}

TEST_CASE("a replay is many runs on copies of the block, within the memory") {
  const WgradProblem problem =
      make({"replay", "conv2d", 2, 8, 8, 1, {{4, 3}, {5, 3}}}, DType::f32, true);
  const Tensors tensors(problem, Fill::small_integers, 1);
  PlanOptions options{.backend = Backend::cuda,
                      .device = emulated_device(),
                      .algorithm = "cuda_simt_gemm",
                      .in_memory = true};
  const std::int64_t needs = make_plan(problem, this_machine(), options).cuda()->memory.total();
  for (const std::int64_t copies : {0, 1, 30}) {
    // x and dy have 1280 bytes each, and a sixteenth of what is free is not used.
    options.device.free_bytes = (needs + copies * 2560 + 100) * 16 / 15;
    const Plan plan = make_plan(problem, this_machine(), options);
    launches = device_copies = 0;
    const auto adder = emulated_adder(plan);
    MemorySource source(tensors.x.data(), tensors.dy.data());
    sum_blocks(plan, source, *adder);
    const std::int64_t once = launches;
    CAPTURE(copies);
    CHECK(adder->time_replay() == 0);  // the emulation has no clock
    CHECK(device_copies == 2 * copies);
    // Each run is the block's kernels and the tree's.
    CHECK(launches - once == std::max<std::int64_t>(20, copies + 1) * (once + 1));
    adder->time_replay();
    CHECK(device_copies == 2 * copies);
  }
}

TEST_CASE("choices for a device follow from the problem") {
  const auto name = [](const ProblemSpec& spec, DType dtype, const Device& device) {
    return find_device_kernel(make(spec, dtype, true), device).or_throw()->name;
  };
  constexpr std::string_view kWgmma = "cuda_wgmma", kLines = "cuda_streaming";
  const ProblemSpec dense = {"dense", "conv2d", 16, 256, 256, 1, {{56, 3}, {56, 3}}};
  const struct {
    ProblemSpec spec;
    std::string_view of_16_bits, of_f32, of_f64;
  } cases[] = {
      {dense, kWgmma, "cuda_simt_gemm", "cuda_mma_f64"},
      {{"narrow", "conv2d", 16, 64, 64, 1, {{56, 3}, {56, 3}}},
       kWgmma,
       "cuda_simt_gemm",
       "cuda_mma_f64"},
      {{"depthwise", "depthwise", 16, 256, 256, 256, {{56, 3}, {56, 3}}}, kLines, kLines, kLines},
      {{"stem", "conv2d", 16, 3, 64, 1, {{56, 7, 2}, {56, 7, 2}}}, kWgmma, kLines, kLines},
      {{"colours", "conv2d", 16, 3, 64, 1, {{56, 3}, {56, 3}}}, kWgmma, kLines, kLines}};
  for (const auto& c : cases) {
    CAPTURE(c.spec.name);
    CHECK(name(c.spec, DType::f16, emulated_device()) == c.of_16_bits);
    CHECK(name(c.spec, DType::bf16, emulated_device()) == c.of_16_bits);
    CHECK(name(c.spec, DType::f32, emulated_device()) == c.of_f32);
    CHECK(name(c.spec, DType::f64, emulated_device()) == c.of_f64);
  }
  Device other = emulated_device();
  other.has_90a = false;
  CHECK(name(dense, DType::f16, other) == "cuda_mma");
  Device old = emulated_device();
  old.major = 7;
  old.minor = 5;
  CHECK(name(dense, DType::f16, old) == "cuda_simt_gemm");
  CHECK_FALSE(find_device_kernel(make(dense, DType::f16, true), old, "cuda_mma"));
  CHECK_FALSE(device_rule(make(basic_problems().front(), DType::f32, true)).worth_it);
  const ProblemSpec large = {"large", "conv2d", 512, 512, 512, 1, {{56, 3}, {56, 3}}};
  CHECK(device_rule(make(large, DType::f32, true)).worth_it);
}

TEST_CASE("a device's memory is a bound") {
  const WgradProblem problem =
      make({"many", "conv2d", 4096, 64, 64, 1, {{56, 3}, {56, 3}}}, DType::f32, true);
  PlanOptions options{.backend = Backend::cuda, .device = emulated_device()};
  const Plan roomy = make_plan(problem, this_machine(), options);
  CHECK(roomy.schedule.blocks.count > 2);
  CHECK(roomy.cuda()->memory.buffers == 2);
  options.memory_limit_bytes = roomy.cuda()->memory.partials + (std::int64_t{40} << 20);
  const Plan tight = make_plan(problem, this_machine(), options);
  CHECK(tight.cuda()->memory.total() <= options.memory_limit_bytes);
  CHECK(tight.schedule.blocks.count > roomy.schedule.blocks.count);
  CHECK(tight.schedule.slices.count() == roomy.schedule.slices.count());
  options.memory_limit_bytes = roomy.cuda()->memory.partials;
  CHECK_THROWS_AS(make_plan(problem, this_machine(), options), Error);
  // What is free counts, not what there is.
  options.memory_limit_bytes = 0;
  options.device.free_bytes = tight.cuda()->memory.total() * 16 / 15 + 16;
  const Plan crowded = make_plan(problem, this_machine(), options);
  CHECK(crowded.cuda()->memory.total() <= tight.cuda()->memory.total());
  CHECK(crowded.schedule.blocks.count > roomy.schedule.blocks.count);
  options.device.free_bytes = 1 << 20;
  CHECK_THROWS_AS(make_plan(problem, this_machine(), options), Error);
}
