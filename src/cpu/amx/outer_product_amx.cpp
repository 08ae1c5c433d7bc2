// outer_product_amx.cpp - bfloat16 and float16 filter gradients in AMX tiles, without im2col.
//
// One instruction adds the products of 16 channels of x and 16 of dy over 32 pixels to a tile of
// 16 x 16 sums. To fill it, the sum runs across rows (and images): x is packed by channel with the
// columns and lines between output rows in place (amx_shape.hpp), dy with zeros there, and every
// tap reads the same panels, x's from another position on. 32 x 32 sums stay in four tiles over
// all pixels of a chunk and are then added to the float64 partial. A float16 is the sum of two
// bfloat16 exactly: its products are four of theirs. AMX-FP16 multiplies float16 as they are.
#include "cpu/amx/outer_product_amx.hpp"

#include "cpu/amx/amx_chunk.hpp"
#include "cpu/direct_wgrad.hpp"

namespace convgrad {
namespace {

template <const AmxTiles& amx>
TileSteps tile_steps(const WgradProblem& problem) {
  const AmxSteps steps = amx_plan(problem, amx.f16_terms).steps;
  return {problem.taps(), steps.c, steps.k};
}

template <const AmxTiles& amx>
std::int64_t workspace_bytes(const WgradProblem& problem) {
  const AmxPlan plan = amx_plan(problem, amx.f16_terms);
  // direct_chunk() works in the same space.
  const Tile largest = {{0, 1}, {0, plan.steps.c}, {0, plan.steps.k}};
  return std::max(amx_workspace(problem, plan, nullptr).bytes,
                  direct_workspace_elements(largest) * std::int64_t{sizeof(float)});
}

template <const AmxTiles& amx, const AmxVectors& vectors>
void accumulate(const WgradProblem& problem, const ChunkGrid& grid, const Block& block,
                const ChunkRun& run, const Tile& tile, std::byte* workspace, double* partial) {
  AmxChunks work(amx, vectors, problem, block, tile, workspace);
  add_chunks(work, problem, grid, block, run, tile, workspace, partial);
}

// All tiles and chunks alike: the last ones are smaller, but groups and channels that fill no tile
// cost as much as those that do, which is what keeps small problems from being given to AMX.
template <const AmxTiles& amx>
double estimated_seconds(const WgradProblem& problem) {
  constexpr double kStart = 3e-6;  // of the tiles
  const AmxPlan plan = amx_plan(problem, amx.f16_terms);
  const auto tiles =
      static_cast<double>(tile_count(problem, {problem.taps(), plan.steps.c, plan.steps.k}));
  return static_cast<double>(chunk_grid(problem).count) * tiles * plan.chunk_seconds + kStart;
}

template <const AmxTiles& amx, const AmxVectors& vectors>
constexpr Kernel amx_kernel(std::string_view name, std::string_view summary,
                            decltype(Kernel::why_not) why_not) {
  return {name,
          summary,
          why_not,
          estimated_seconds<amx>,
          tile_steps<amx>,
          workspace_bytes<amx>,
          accumulate<amx, vectors>};
}

std::string why_not_dtype(const WgradProblem& problem, const Machine&) {
  if (problem.dtype == DType::bf16 || problem.dtype == DType::f16) return "";
  return cat("it multiplies bfloat16 and float16, not ", dtype_name(problem.dtype));
}
std::string why_not_fp16_dtype(const WgradProblem& problem, const Machine&) {
  if (problem.dtype == DType::f16) return "";
  return cat("it multiplies float16, not ", dtype_name(problem.dtype));
}
std::string lacks_amx(const Machine& machine, const char* instructions) {
  return first_of(lacks(machine, {"amx_tile", instructions}), lacks_avx512(machine));
}

}  // namespace

constinit const Kernel kOuterProductAmxKernel = amx_kernel<kAmxTiles, kAvx512AmxVectors>(
    "outer_product_amx",
    "sums of outer products, 32 x 32 in tiles; bfloat16, float16 as two of them; AMX-BF16",
    [](const WgradProblem& problem, const Machine& machine) {
      return first_of(why_not_dtype(problem, machine), lacks_amx(machine, "amx_bf16"));
    });

constinit const Kernel kOuterProductAmxFp16Kernel = amx_kernel<kAmxFp16Tiles, kAvx512AmxVectors>(
    "outer_product_amx_fp16", "the same for float16 as they are; AMX-FP16",
    [](const WgradProblem& problem, const Machine& machine) {
      return first_of(why_not_fp16_dtype(problem, machine), lacks_amx(machine, "amx_fp16"));
    });

constinit const Kernel kEmulatedAmxKernel = amx_kernel<kEmulatedAmxTiles, kAvx512AmxVectors>(
    "outer_product_amx_emulated", "outer_product_amx without AMX, to test it",
    [](const WgradProblem& problem, const Machine& machine) {
      return first_of(why_not_dtype(problem, machine), lacks_avx512(machine));
    });

constinit const Kernel kPortableEmulatedAmxKernel =
    amx_kernel<kEmulatedAmxTiles, kPortableAmxVectors>(
        "outer_product_amx_emulated_portable",
        "outer_product_amx without AMX and AVX-512, to test it", why_not_dtype);

constinit const Kernel kEmulatedAmxFp16Kernel =
    amx_kernel<kEmulatedAmxFp16Tiles, kPortableAmxVectors>(
        "outer_product_amx_fp16_emulated",
        "outer_product_amx_fp16 without AMX and AVX-512, to test it", why_not_fp16_dtype);

}  // namespace convgrad
