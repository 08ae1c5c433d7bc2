// amx_test.cpp - outer_product_amx on any processor: with the tile instructions' C++ in their
// place, and with the instructions trapped. Where there are some they run in kernels_test.cpp, too.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/integers.hpp"
#include "cpu/amx/amx_shape.hpp"
#include "cpu/isa/isa_set.hpp"
#include "cpu/kernels.hpp"
#include "support/amx_trap.hpp"
#include "support/cases.hpp"
#include "support/emulated_amx/emulated_amx.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

constexpr DType kAmxDTypes[] = {DType::bf16, DType::f16, DType::f32};

// Calls check(kernel) for both packings, as far as this processor has them, and AMX-FP16.
template <typename Check>
void for_each_kernel(const WgradProblem& problem, Check&& check) {
  for (const Kernel* kernel : emulated_amx_kernels()) {
    if (!kernel->why_not(problem, this_machine()).empty()) continue;
    CAPTURE(kernel->name);
    check(*kernel);
  }
}

// What the emulation multiplies, most of it nothing where groups are smaller than tiles: such
// problems would take minutes.
bool is_quick(const ProblemSpec& spec) {
  const WgradProblem problem = make(spec, DType::bf16, true);
  const std::int64_t tiles = ceil_div(problem.group_c(), 16) * ceil_div(problem.group_k(), 16);
  return problem.groups * tiles * 256 * problem.taps() * term_count(problem) < 30'000'000;
}

// basic_problems(), and shapes that this kernel packs in its own ways.
std::vector<ProblemSpec> problems() {
  std::vector<ProblemSpec> specs = basic_problems();
  std::erase_if(specs, [](const ProblemSpec& spec) { return !is_quick(spec); });
  specs.push_back({"two blocks each way", "conv2d", 2, 48, 80, 1, {{9, 3}, {10, 3}}});
  specs.push_back({"many small images", "conv2d", 70, 33, 17, 1, {{2, 3}, {3, 3}}});
  specs.push_back({"many pixels", "conv2d", 600, 17, 33, 1, {{1, 1}, {1, 1}}});
  specs.push_back({"rows shorter than a step", "conv2d", 3, 20, 40, 1, {{14, 5}, {14, 3}}});
  specs.push_back({"s2, all phases", "conv2d", 3, 18, 18, 1, {{15, 3, 2}, {17, 5, 2}}});
  specs.push_back({"s2, long lines", "conv2d", 1, 17, 18, 1, {{5, 3, 2}, {78, 3, 2}}});
  specs.push_back({"s4, some phases", "conv2d", 2, 18, 18, 1, {{21, 2, 4}, {23, 3, 4}}});
  specs.push_back({"taps far apart", "conv2d", 2, 18, 18, 1, {{40, 3, 1, 17}, {60, 3, 1, 25}}});
  specs.push_back({"wide, s2", "conv2d", 2, 3, 40, 1, {{15, 7, 2}, {17, 7, 2}}});
  specs.push_back({"wide, filter wider than x", "conv2d", 2, 5, 33, 1, {{3, 5}, {4, 9}}});
  specs.push_back({"wide, images", "conv3d", 3, 2, 20, 1, {{4, 3, 2}, {7, 3}, {9, 5}}});
  specs.push_back({"turned", "conv2d", 3, 40, 70, 1, {{9, 1}, {10, 1}}});
  specs.push_back({"turned, s2", "conv2d", 3, 17, 33, 1, {{9, 1, 2}, {11, 1, 2}}});
  specs.push_back({"turned, one image", "conv2d", 1, 40, 70, 1, {{30, 1}, {17, 1}}});
  specs.push_back(
      {"turned, padded", "conv2d", 1, 20, 33, 1, {{40, 1}, {12, 1}}, "EXPLICIT", {3, 2, 1, 2}});
  specs.push_back({"3-D, joined", "conv3d", 6, 20, 20, 1, {{3, 3}, {3, 3}, {4, 3}}});
  specs.push_back({"3-D, strides 2", "conv3d", 2, 20, 20, 1, {{7, 3, 2}, {7, 3, 2}, {8, 3, 2}}});
  return specs;
}

// Every thin-th spec, dtype and layout.
template <typename Check>
void for_each_case(Fill fill, unsigned thin, Check&& check) {
  testing::for_each_case(problems(), kAmxDTypes, fill, check, kThin > 1 ? kThin : thin);
}

void check_bound(const Kernel& kernel, const WgradProblem& problem, const void* x, const void* dy) {
  const Expected reference = reference_of(problem, x, dy);
  const Comparison comparison = compare_sums(problem, sums_of(kernel, problem, x, dy), reference);
  CAPTURE(comparison.rounding->worst.score());
  CHECK(comparison.match());
}

}  // namespace

TEST_CASE("the problems have every form of panels") {
  int wide = 0, turned = 0, apart = 0;
  std::array<int, 4> split = {};
  for (const ProblemSpec& spec : problems()) {
    const AmxPlan plan = amx_plan(make(spec, DType::bf16, true), 2);
    wide += plan.shape.sharing.wide;
    turned += plan.shape.turned;
    ++split[plan.shape.sharing.split];
    apart += !plan.shape.sharing.joined && plan.shape.extent[0] * plan.shape.extent[1] > 1;
  }
  CHECK(wide >= 3);
  CHECK(turned >= 3);
  CHECK(split[0] >= 5);
  CHECK(split[1] >= 1);
  CHECK(split[2] >= 3);
  CHECK(split[3] >= 1);
  CHECK(apart >= 3);
}

TEST_CASE("emulated AMX is bit-exact on small integers") {
  for_each_case(Fill::small_integers, 5,
                [](const WgradProblem& problem, const auto& x, const auto& dy) {
                  const Expected reference = reference_of(problem, x.data(), dy.data());
                  for_each_kernel(problem, [&](const Kernel& kernel) {
                    CHECK(sums_of(kernel, problem, x.data(), dy.data()) == reference.values);
                  });
                });
}

TEST_CASE("emulated AMX stays within the error bound on normal data") {
  for_each_case(Fill::normal, 7, [](const WgradProblem& problem, const auto& x, const auto& dy) {
    // The other packing gives the same bits.
    check_bound(kPortableEmulatedAmxKernel, problem, x.data(), dy.data());
    if (problem.dtype == DType::f16) {
      check_bound(kEmulatedAmxFp16Kernel, problem, x.data(), dy.data());
    }
  });
}

TEST_CASE("both packings give the same bits, for every number of threads and block size") {
  const ProblemSpec specs[] = {{"many chunks", "conv2d", 12, 5, 9, 1, {{13, 3}, {17, 3}}},
                               {"rows", "conv2d", 2, 3, 20, 1, {{67, 3, 2}, {90, 5}}},
                               {"3-D", "conv3d", 3, 4, 17, 1, {{9, 3}, {12, 3}, {11, 3}}},
                               {"wide", "conv2d", 1, 2, 16, 1, {{5, 3}, {2000, 3}}}};
  const auto check = [](const WgradProblem& problem, const auto& x, const auto& dy) {
    if (kThin > 1 && problem.dtype == DType::f16) return;
    for_each_kernel(problem, [&](const Kernel& kernel) {
      const bool fp16 = &kernel == &kEmulatedAmxFp16Kernel;
      const auto one =
          sums_of(fp16 ? kernel : kPortableEmulatedAmxKernel, problem, x.data(), dy.data());
      for (const std::int64_t block_bytes : {1, 20000}) {
        const auto got = sums_of(kernel, problem, x.data(), dy.data(), 3, block_bytes);
        CHECK(std::memcmp(got.data(), one.data(), got.size() * 8) == 0);
      }
    });
  };
  testing::for_each_case(specs, kAmxDTypes, Fill::normal, check);
}

// Where the processor has AMX-BF16 but not AMX-FP16, the trap would know nothing of its tiles.
TEST_CASE("the tile instructions give the bits of their emulation") {
  const Machine& machine = this_machine();
  if (!lacks_avx512(machine).empty()) return;
  const bool has_amx = lacks(machine, {"amx_tile", "amx_bf16"}).empty();
  const bool has_fp16 = lacks(machine, {"amx_tile", "amx_fp16"}).empty();
  std::optional<AmxTrap> trap;
  if (!has_amx) trap.emplace();
  const long before = AmxTrap::multiplications();
  const ProblemSpec specs[] = {{"one tile", "conv2d", 2, 7, 9, 1, {{6, 3}, {5, 3}}},
                               {"2 x 1 tiles", "conv2d", 2, 20, 16, 1, {{6, 3}, {5, 3}}},
                               {"1 x 2 tiles", "conv2d", 2, 16, 17, 1, {{6, 3}, {5, 3}}},
                               {"all of them", "conv2d", 3, 81, 81, 1, {{9, 3, 2}, {9, 3, 2}}},
                               {"groups", "conv2d", 2, 6, 66, 2, {{6, 3}, {5, 3}}}};
  for (const ProblemSpec& spec : specs) {
    for (const DType dtype : kAmxDTypes) {
      CAPTURE(spec.name);
      const WgradProblem problem = make(spec, dtype, true);
      const auto x = filled(dtype, problem.x_count(), Fill::normal, 21);
      const auto dy = filled(dtype, problem.dy_count(), Fill::normal, 22);
      const auto want = sums_of(kEmulatedAmxKernel, problem, x.data(), dy.data());
      const Kernel& kernel =
          dtype == DType::f32 ? kOuterProductAmxBf16x3Kernel : kOuterProductAmxKernel;
      const auto got = sums_of(kernel, problem, x.data(), dy.data(), 2);
      CHECK(std::memcmp(got.data(), want.data(), got.size() * 8) == 0);
      if (dtype == DType::f16 && (has_fp16 || !has_amx)) {
        CHECK(sums_of(kOuterProductAmxFp16Kernel, problem, x.data(), dy.data(), 2) ==
              sums_of(kEmulatedAmxFp16Kernel, problem, x.data(), dy.data()));
      }
    }
  }
  if (!trap) return;
  CHECK(AmxTrap::multiplications() > before);
  CHECK(AmxTrap::released());
}

TEST_CASE("with emulated AMX, x that is not finite only reaches the taps that see it") {
  // Panels hold rows and columns between those that a chunk's taps see: of the second, chunks of 5
  // output rows end with x's row 9, and their panels with row 10.
  const std::pair<ProblemSpec, std::int64_t> cases[] = {
      {{"a corner", "conv2d", 1, 18, 16, 1, {{9, 3, 2}, {9, 3, 2}}}, 0},
      {{"behind a chunk", "conv2d", 1, 3, 20, 1, {{67, 3, 2}, {90, 5}}}, 10 * 90}};
  for (const auto& [problem_spec, pixel] : cases) {
    const ProblemSpec& spec = problem_spec;
    for (const DType dtype : kAmxDTypes) {
      const WgradProblem problem = make(spec, dtype, true);
      auto values = widened(dtype, filled(dtype, problem.x_count(), Fill::small_integers, 6));
      values[static_cast<std::size_t>(pixel * problem.C)] = kInf;
      const auto x = tensor_of(dtype, values);
      const auto dy =
          tensor_of(dtype, std::vector<double>(static_cast<std::size_t>(problem.dy_count()), 1.0));
      const Expected reference = reference_of(problem, x.data(), dy.data());
      for_each_kernel(problem, [&](const Kernel& kernel) {
        CAPTURE(spec.name);
        CHECK(sums_of(kernel, problem, x.data(), dy.data()) == reference.values);
      });
    }
  }
}

TEST_CASE("of long chunks, those that are not finite are left to kernels with short ones") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const WgradProblem problem =
        make({"rows", "conv2d", 2, 5, 9, 1, {{130, 3}, {140, 2}}}, dtype, true);
    REQUIRE(kPortableEmulatedAmxKernel.chunks(problem).count < chunk_grid(problem).count);
    auto values = widened(dtype, filled(dtype, problem.x_count(), Fill::small_integers, 6));
    values[static_cast<std::size_t>(problem.x_count() / 3)] = kInf;
    const auto x = tensor_of(dtype, values);
    const auto dy = filled(dtype, problem.dy_count(), Fill::small_integers, 7);
    const Expected reference = reference_of(problem, x.data(), dy.data());
    for_each_kernel(problem, [&](const Kernel& kernel) {
      const auto got = sums_of(kernel, problem, x.data(), dy.data());
      int wrong = 0, finite = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const bool both_nan = std::isnan(got[i]) && std::isnan(reference.values[i]);
        wrong += got[i] == reference.values[i] || both_nan ? 0 : 1;
        finite += std::isfinite(got[i]) ? 1 : 0;
      }
      CHECK(wrong == 0);
      CHECK(finite > 0);
    });
  }
}

TEST_CASE("numbers that AMX would flush or overflow are left to plain multiply-adds") {
  // By 2^x and 2^dy: subnormal bfloat16, subnormal products, terms of float32, sums of products.
  struct Scales {
    DType dtype;
    int x, dy;
  };
  for (const Scales& scales :
       {Scales{DType::bf16, -130, 60}, Scales{DType::bf16, -70, -70}, Scales{DType::f32, -105, 60},
        Scales{DType::f32, 30, -120}, Scales{DType::f32, -40, -45}, Scales{DType::f32, 60, 60}}) {
    for (const bool channels_last : {true, false}) {
      const WgradProblem problem =
          make({"3x3", "conv2d", 2, 17, 20, 1, {{6, 3}, {7, 3}}}, scales.dtype, channels_last);
      const auto x = scaled_normal(scales.dtype, problem.x_count(), std::ldexp(1.0, scales.x), 1);
      const auto dy =
          scaled_normal(scales.dtype, problem.dy_count(), std::ldexp(1.0, scales.dy), 2);
      for_each_kernel(problem, [&](const Kernel& kernel) {
        check_bound(kernel, problem, x.data(), dy.data());
        // In the place of the values, zeros would be within the bound's underflow.
        const auto got = sums_of(kernel, problem, x.data(), dy.data());
        const bool avx512 = kernel.name == "outer_product_amx_emulated";
        const PlanOptions plain{.algorithm = avx512 ? "outer_product_avx512" : "outer_product"};
        CHECK(got == sums_of(problem, x.data(), dy.data(), plain));
      });
    }
  }
}

// Not so if anything were flushed, or rounded at a fixed place.
TEST_CASE("a power of two in float32 data is one in the sums, bit for bit") {
  const WgradProblem problem =
      make({"3x3", "conv2d", 3, 17, 20, 1, {{16, 3}, {17, 3}}}, DType::f32, true);
  const auto x = filled(DType::f32, problem.x_count(), Fill::normal, 1);
  const auto dy = filled(DType::f32, problem.dy_count(), Fill::normal, 2);
  for_each_kernel(problem, [&](const Kernel& kernel) {
    const auto plain = sums_of(kernel, problem, x.data(), dy.data());
    for (const int exponent : {-45, 1, 100}) {
      CAPTURE(exponent);
      auto values = widened(DType::f32, dy);
      for (double& value : values) value = std::ldexp(value, exponent);
      const auto scaled = sums_of(kernel, problem, x.data(), tensor_of(DType::f32, values).data());
      int wrong = 0;
      for (std::size_t i = 0; i < plain.size(); ++i) {
        wrong += scaled[i] == std::ldexp(plain[i], exponent) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("subnormal float16 values are added exactly") {
  const WgradProblem problem =
      make({"3x3", "conv2d", 2, 17, 20, 1, {{6, 3}, {7, 3}}}, DType::f16, true);
  auto x_values =
      widened(DType::f16, filled(DType::f16, problem.x_count(), Fill::small_integers, 1));
  for (double& value : x_values) value *= 0x1p-24;
  const auto x = tensor_of(DType::f16, x_values);
  const auto dy = filled(DType::f16, problem.dy_count(), Fill::small_integers, 2);
  const Expected reference = reference_of(problem, x.data(), dy.data());
  for_each_kernel(problem, [&](const Kernel& kernel) {
    CHECK(sums_of(kernel, problem, x.data(), dy.data()) == reference.values);
  });
}

// Value i of 16 rows in tiles of 16 pairs of each row, of its halves, as the kernel has them.
std::size_t in_tiles(std::size_t i, std::size_t row) {
  const std::size_t half = i % row / (row / 2), pair = i % (row / 2);
  return pair / 16 * 512 + i / row * 32 + pair % 16 * 2 + half;
}

// Counts values that are not the sum of `terms` bfloat16, none of them subnormal.
template <typename Value>
int wrong_splits(const AmxPacking& packing, const std::vector<Value>& values, int terms) {
  const std::size_t row = values.size() / 16;
  std::vector<AmxBits> tiles(values.size() * static_cast<std::size_t>(terms));
  ExponentRange range = {};
  packing.tiles_from_rows(values.data(), static_cast<long>(row), static_cast<long>(row / 2),
                          tiles.data(), static_cast<long>(values.size()), range);
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    double sum = 0;
    bool subnormal = false;
    for (std::size_t t = 0; t < static_cast<std::size_t>(terms); ++t) {
      const float term = to_float(BFloat16{tiles[t * values.size() + in_tiles(i, row)]});
      subnormal = subnormal || (term != 0 && std::fabs(term) < 0x1p-126f);
      sum += to_double(term);
    }
    wrong += sum != to_double(values[i]) || subnormal;
  }
  return wrong;
}

TEST_CASE("values are sums of bfloat16: of two all of float16, of three float32 from 2^-103 on") {
  std::vector<Float16> halves;
  for (unsigned i = 0; i < 65536; ++i) {
    const bool finite = (i >> 10 & 31) != 31;
    halves.push_back({static_cast<std::uint16_t>(finite ? i : 0)});
  }
  std::vector<float> floats;
  std::uint32_t bits = 1;
  while (floats.size() < 65536) {
    bits = bits * 1664525 + 1013904223;
    // Of some only a few bits, so that terms lie halfway between others.
    const std::uint32_t some = bits >> 3 & 0x7fffff & (floats.size() % 3 == 0 ? ~0x3f3fu : ~0u);
    const std::uint32_t exponent = 127 - 103 + (bits >> 8) % (127 + 103);
    floats.push_back(std::bit_cast<float>((bits & 0x80000000u) | exponent << 23 | some));
  }
  const auto check = [&](const AmxVectors& vectors) {
    CHECK(wrong_splits(vectors.f16_as_two, halves, 2) == 0);
    CHECK(wrong_splits(vectors.f32_as_three, floats, 3) == 0);
  };
  check(kPortableAmxVectors);
  if (lacks_avx512(this_machine()).empty()) check(kAvx512AmxVectors);
}

TEST_CASE("dense layers choose AMX where there is, small and other ones do not") {
  Machine machine = this_machine();
  machine.instruction_sets = {"sse2",     "avx",      "f16c",     "fma",        "avx2",
                              "avx512f",  "avx512bw", "avx512dq", "avx512vl",   "avx512_bf16",
                              "amx_tile", "amx_bf16", "amx_int8", "avx512_fp16"};
  const auto chosen = [&](const ProblemSpec& spec, DType dtype) {
    return std::string(find_kernel(make(spec, dtype, true), machine).or_throw()->name);
  };
  const ProblemSpec dense[] = {{"3x3", "conv2d", 32, 16, 16, 1, {{32, 3}, {32, 3}}},
                               {"3x3 64", "conv2d", 32, 64, 64, 1, {{56, 3}, {56, 3}}},
                               {"3x3 512", "conv2d", 32, 512, 512, 1, {{7, 3}, {7, 3}}},
                               {"1x1", "conv2d", 32, 64, 256, 1, {{56, 1}, {56, 1}}},
                               {"1x1 down", "conv2d", 32, 256, 512, 1, {{56, 1, 2}, {56, 1, 2}}},
                               {"3-D", "conv3d", 4, 64, 64, 1, {{8, 3}, {28, 3}, {28, 3}}}};
  for (const ProblemSpec& spec : dense) {
    CAPTURE(spec.name);
    CHECK(chosen(spec, DType::bf16) == "outer_product_amx");
    CHECK(chosen(spec, DType::f16) == "outer_product_amx");
    // One tile of sums waits for itself.
    CHECK((chosen(spec, DType::f32) == "outer_product_amx_bf16x3") == (spec.C >= 32));
    machine.instruction_sets.emplace_back("amx_fp16");
    CHECK(chosen(spec, DType::bf16) == "outer_product_amx");
    CHECK(chosen(spec, DType::f16) == "outer_product_amx_fp16");
    machine.instruction_sets.pop_back();
  }
  for (const DType dtype : {DType::bf16, DType::f32}) {
    CHECK_FALSE(chosen({"small", "conv2d", 1, 4, 4, 1, {{3, 3}, {3, 3}}}, dtype)
                    .starts_with("outer_product_amx"));
    CHECK_FALSE(chosen({"depthwise", "depthwise", 8, 32, 32, 32, {{28, 3}, {28, 3}}}, dtype)
                    .starts_with("outer_product_amx"));
  }
}
