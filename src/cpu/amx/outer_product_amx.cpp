// outer_product_amx.cpp - bfloat16, float16 and float32 filter gradients in AMX tiles, without
// im2col.
//
// One instruction adds the products of 16 channels of x and 16 of dy over 16 pairs of pixels to a
// tile of 16 x 16 sums. To fill it, the sum runs across rows (and images): x is packed by channel
// with the columns and lines between output rows in place (amx_shape.hpp), dy with zeros there, and
// every tap reads the same panels, x's from another position on. The sums of 16 channels of x, seen
// by three taps, and 32 of dy stay in six tiles over all pixels of a chunk and are then added to
// the float64 partial. A float16 is the sum of two bfloat16 exactly: its products are four of
// theirs. AMX-FP16 multiplies float16 as they are. A float32 is the sum of three, and six of their
// nine products make one of its (docs/numerics.md).
#include "cpu/amx/outer_product_amx.hpp"

#include "cpu/amx/amx_chunk.hpp"
#include "cpu/kernels.hpp"

namespace convgrad {
namespace {

template <const AmxTiles& amx>
TileSteps tile_steps(const WgradProblem& problem) {
  const AmxSteps steps = amx_plan(problem, amx.f16_terms).steps;
  return {problem.taps(), steps.c, steps.k};
}

template <const AmxTiles& amx, const Kernel& otherwise>
std::int64_t workspace_bytes(const WgradProblem& problem) {
  return std::max(amx_workspace(problem, amx_plan(problem, amx.f16_terms), nullptr).bytes,
                  otherwise.workspace_bytes(problem));
}

// One chunk by another kernel, whose tiles and chunks may be smaller.
void accumulate_chunk(const Kernel& kernel, const WgradProblem& problem, const ChunkGrid& grid,
                      const Block& block, std::int64_t chunk, const Tile& tile,
                      std::byte* workspace, double* partial) {
  TileSums sums = {partial};
  const ChunkGrid fine = kernel.chunks(problem);
  const BlockGrid chunks = {fine,      {0, grid.extent[0]}, grid.axis,
                            grid.step, grid.pieces,         grid.count};
  const Range its = chunks.chunk_range(chunk);
  const TileSteps steps = kernel.tile_steps(problem);
  for (std::int64_t k = tile.k.begin; k < tile.k.end; k += steps.k) {
    for (std::int64_t c = tile.c.begin; c < tile.c.end; c += steps.c) {
      const Tile part = {
          tile.tap, {c, std::min(c + steps.c, tile.c.end)}, {k, std::min(k + steps.k, tile.k.end)}};
      kernel.accumulate(problem, fine, block, {its.begin, its.end, 1}, part, workspace, sums);
    }
  }
}

// `otherwise` multiplies and adds the chunks whose numbers are too small or too large for AMX.
template <const AmxTiles& amx, const AmxVectors& vectors, const Kernel& otherwise>
void accumulate(const WgradProblem& problem, const ChunkGrid& grid, const Block& block,
                const ChunkRun& run, const Tile& tile, std::byte* workspace, TileSums& sums) {
  AmxChunks work(amx, vectors, problem, block, tile, workspace, sums.fresh);
  for (std::int64_t chunk = run.begin; chunk < run.end; chunk += run.step) {
    if (work.add_chunk(grid.box(chunk), sums.partial)) continue;
    accumulate_chunk(otherwise, problem, grid, block, chunk, tile, workspace, sums.partial);
  }
}

// All tiles and chunks alike: the last ones are smaller, but groups and channels that fill no tile
// cost as much as those that do, which is what keeps small problems from being given to AMX.
template <const AmxTiles& amx>
double estimated_seconds(const WgradProblem& problem) {
  constexpr double kStart = 3e-6;  // of the tiles
  const AmxPlan& plan = amx_plan(problem, amx.f16_terms);
  const auto tiles =
      static_cast<double>(tile_count(problem, {problem.taps(), plan.steps.c, plan.steps.k}));
  return static_cast<double>(chunk_grid(problem, plan.chunk_pixels).count) * tiles *
             plan.chunk_seconds +
         kStart;
}

template <const AmxTiles& amx, const AmxVectors& vectors, const Kernel& otherwise>
constexpr Kernel amx_kernel(std::string_view name, std::string_view summary,
                            decltype(Kernel::why_not) why_not) {
  return {name,
          summary,
          why_not,
          estimated_seconds<amx>,
          tile_steps<amx>,
          workspace_bytes<amx, otherwise>,
          accumulate<amx, vectors, otherwise>,
          [](const WgradProblem& problem) { return amx_plan(problem, amx.f16_terms).chunk_pixels; },
          true};
}

// The dtypes of AMX-FP16, and of the emulation.
std::string why_not_fp16(const WgradProblem& problem, const Machine&) {
  if (problem.dtype == DType::f16) return "";
  return cat("it multiplies float16, not ", dtype_name(problem.dtype));
}
std::string why_not_f64(const WgradProblem& problem, const Machine&) {
  return problem.dtype == DType::f64 ? "it does not multiply float64" : "";
}

template <const AmxTiles& amx>
constexpr auto avx512_kernel = amx_kernel<amx, kAvx512AmxVectors, kOuterProductAvx512Kernel>;

// The dtypes of AMX-BF16.
std::string why_not_16_bits(const WgradProblem& problem, const Machine&) {
  if (problem.dtype == DType::bf16 || problem.dtype == DType::f16) return "";
  return cat("it multiplies bfloat16 and float16, not ", dtype_name(problem.dtype));
}
std::string why_not_f32(const WgradProblem& problem, const Machine&) {
  if (problem.dtype == DType::f32) return "";
  return cat("it multiplies float32, not ", dtype_name(problem.dtype));
}
std::string lacks_amx(const Machine& machine, const char* instructions) {
  return first_of(lacks(machine, {"amx_tile", instructions}), lacks_avx512(machine));
}

}  // namespace

constinit const Kernel kOuterProductAmxKernel = avx512_kernel<kAmxTiles>(
    "outer_product_amx",
    "sums of outer products, 48 x 32 in tiles; bfloat16, float16 as two of them; AMX-BF16",
    [](const WgradProblem& problem, const Machine& machine) {
      return first_of(why_not_16_bits(problem, machine), lacks_amx(machine, "amx_bf16"));
    });

constinit const Kernel kOuterProductAmxFp16Kernel = avx512_kernel<kAmxFp16Tiles>(
    "outer_product_amx_fp16", "the same for float16 as they are; AMX-FP16",
    [](const WgradProblem& problem, const Machine& machine) {
      return first_of(why_not_fp16(problem, machine), lacks_amx(machine, "amx_fp16"));
    });

constinit const Kernel kOuterProductAmxBf16x3Kernel = avx512_kernel<kAmxTiles>(
    "outer_product_amx_bf16x3", "the same for float32 as three bfloat16, in six products; AMX-BF16",
    [](const WgradProblem& problem, const Machine& machine) {
      return first_of(why_not_f32(problem, machine), lacks_amx(machine, "amx_bf16"));
    });

constinit const Kernel kEmulatedAmxKernel = avx512_kernel<kEmulatedAmxTiles>(
    "outer_product_amx_emulated", "outer_product_amx without AMX, to test it",
    [](const WgradProblem& problem, const Machine& machine) {
      return first_of(why_not_f64(problem, machine), lacks_avx512(machine));
    });

constinit const Kernel kPortableEmulatedAmxKernel =
    amx_kernel<kEmulatedAmxTiles, kPortableAmxVectors, kOuterProductKernel>(
        "outer_product_amx_emulated_portable",
        "outer_product_amx without AMX and AVX-512, to test it", why_not_f64);

constinit const Kernel kEmulatedAmxFp16Kernel =
    amx_kernel<kEmulatedAmxFp16Tiles, kPortableAmxVectors, kOuterProductKernel>(
        "outer_product_amx_fp16_emulated",
        "outer_product_amx_fp16 without AMX and AVX-512, to test it", why_not_fp16);

std::span<const Kernel* const> emulated_amx_kernels() {
  static constexpr const Kernel* kAll[] = {&kEmulatedAmxKernel, &kPortableEmulatedAmxKernel,
                                           &kEmulatedAmxFp16Kernel};
  return kAll;
}

}  // namespace convgrad
