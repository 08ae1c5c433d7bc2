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

template <const AmxTiles& amx>
double estimated_seconds(const WgradProblem& problem) {
  constexpr double kStart = 3e-6;  // of the tiles
  const AmxPlan plan = amx_plan(problem, amx.f16_terms);
  const auto tiles =
      static_cast<double>(tile_count(problem, {problem.taps(), plan.steps.c, plan.steps.k}));
  return static_cast<double>(chunk_grid(problem).count) * tiles * plan.chunk_seconds + kStart;
}

std::string why_not_dtype(const WgradProblem& problem) {
  if (problem.dtype == DType::bf16 || problem.dtype == DType::f16) return "";
  return cat("it multiplies bfloat16 and float16, not ", dtype_name(problem.dtype));
}
std::string why_not(const WgradProblem& problem, const Machine& machine) {
  std::string reason = why_not_dtype(problem);
  if (reason.empty()) reason = lacks(machine, {"amx_tile", "amx_bf16"});
  return reason.empty() ? lacks_avx512(machine) : reason;
}
std::string why_not_fp16_dtype(const WgradProblem& problem, const Machine&) {
  if (problem.dtype == DType::f16) return "";
  return cat("it multiplies float16, not ", dtype_name(problem.dtype));
}
std::string why_not_fp16(const WgradProblem& problem, const Machine& machine) {
  std::string reason = why_not_fp16_dtype(problem, machine);
  if (reason.empty()) reason = lacks(machine, {"amx_tile", "amx_fp16"});
  return reason.empty() ? lacks_avx512(machine) : reason;
}
std::string why_not_emulated(const WgradProblem& problem, const Machine& machine) {
  const std::string reason = why_not_dtype(problem);
  return reason.empty() ? lacks_avx512(machine) : reason;
}
std::string why_not_portable(const WgradProblem& problem, const Machine&) {
  return why_not_dtype(problem);
}

}  // namespace

const Kernel kOuterProductAmxKernel = {
    "outer_product_amx",
    "sums of outer products, 32 x 32 in tiles; bfloat16, float16 as two of them; AMX-BF16",
    why_not,
    estimated_seconds<kAmxTiles>,
    tile_steps<kAmxTiles>,
    workspace_bytes<kAmxTiles>,
    accumulate<kAmxTiles, kAvx512AmxVectors>};

const Kernel kOuterProductAmxFp16Kernel = {"outer_product_amx_fp16",
                                           "the same for float16 as they are; AMX-FP16",
                                           why_not_fp16,
                                           estimated_seconds<kAmxFp16Tiles>,
                                           tile_steps<kAmxFp16Tiles>,
                                           workspace_bytes<kAmxFp16Tiles>,
                                           accumulate<kAmxFp16Tiles, kAvx512AmxVectors>};

const Kernel kEmulatedAmxKernel = {"outer_product_amx_emulated",
                                   "outer_product_amx without AMX, to test it",
                                   why_not_emulated,
                                   estimated_seconds<kEmulatedAmxTiles>,
                                   tile_steps<kEmulatedAmxTiles>,
                                   workspace_bytes<kEmulatedAmxTiles>,
                                   accumulate<kEmulatedAmxTiles, kAvx512AmxVectors>};

const Kernel kPortableEmulatedAmxKernel = {"outer_product_amx_emulated_portable",
                                           "outer_product_amx without AMX and AVX-512, to test it",
                                           why_not_portable,
                                           estimated_seconds<kEmulatedAmxTiles>,
                                           tile_steps<kEmulatedAmxTiles>,
                                           workspace_bytes<kEmulatedAmxTiles>,
                                           accumulate<kEmulatedAmxTiles, kPortableAmxVectors>};

const Kernel kEmulatedAmxFp16Kernel = {"outer_product_amx_fp16_emulated",
                                       "outer_product_amx_fp16 without AMX and AVX-512, to test it",
                                       why_not_fp16_dtype,
                                       estimated_seconds<kEmulatedAmxFp16Tiles>,
                                       tile_steps<kEmulatedAmxFp16Tiles>,
                                       workspace_bytes<kEmulatedAmxFp16Tiles>,
                                       accumulate<kEmulatedAmxFp16Tiles, kPortableAmxVectors>};

}  // namespace convgrad
