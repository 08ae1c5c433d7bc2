// outer_product_wgrad.cpp - sums a filter gradient without im2col as outer products over pixels,
// dw[tap][c][k] += x[pixel seen by the tap][c] * dy[pixel][k], from packed panels.
#include <algorithm>
#include <cmath>

#include "cpu/direct_wgrad.hpp"
#include "cpu/isa/isa_set.hpp"
#include "cpu/kernels.hpp"
#include "cpu/outer_product/outer_product_shape.hpp"
#include "cpu/outer_product/outer_product_tile.hpp"

namespace convgrad {
namespace {

template <typename Element>
TileSteps tile_steps(const WgradProblem& problem) {
  const OuterProductShape shape = outer_product_shape<Element>(problem);
  const std::int64_t wide = std::max(shape.groups * shape.k, shape.wide_k);
  return {problem.taps(), shape.c, shape.k, shape.groups > 1, wide};
}

// Elements are of the type of the sums, also for bfloat16 pairs, which are as large.
template <typename Element>
std::int64_t workspace_bytes(const WgradProblem& problem) {
  const OuterProductShape shape = outer_product_shape<Element>(problem);
  // direct_chunk() works in the same space when dy is not finite.
  return std::max(shape.dy_elements() + shape.x_elements(), kMaxChunkPixels * (shape.c + shape.k)) *
         dtype_bytes(accumulator_dtype(problem.dtype));
}

template <const IsaSet& set>
void accumulate(const WgradProblem& problem, const ChunkGrid& grid, const Block& block,
                const ChunkRun& run, const Tile& tile, std::byte* workspace, TileSums& sums) {
  with_scalar(problem.dtype, [&](auto scalar) {
    using Scalar = decltype(scalar);
    using Acc = AccumulatorOf<Scalar>;
    OuterProductTile<Scalar, Acc> work(isa_table<Acc>(set).outer_product, problem, block, tile,
                                       reinterpret_cast<Acc*>(workspace), sums);
    add_chunks(work, problem, grid, block, run, tile, workspace, sums.partial);
  });
}

// Estimates seconds on one core with `peak` vector multiply-adds of float a second; double takes as
// long for half as many. Packing moves x once or more for each tile of k, dy for each tile of c,
// and finds out where each pixel is, but where rows are copied. Joined tiles have fewer filter rows
// to go through; rows that are broadcast to wide vectors are turned round, which takes a third.
template <typename Element>
double seconds(const WgradProblem& problem, const OuterProductIsa<Element>& isa, double peak) {
  const OuterProductShape shape = outer_product_shape<Element>(problem);
  const XPanels& panels = shape.x;
  const std::int64_t c = problem.group_c(), k = problem.group_k();
  const std::int64_t rows = panels.joined ? problem.axis[2].taps * c : c;
  const std::int64_t lanes = isa.max_columns / 2;
  const double cost = std::min(register_tile(isa, rows, k, lanes).cost,
                               std::floor(register_tile(isa, k, rows, lanes).cost * 4 / 3));
  const double filter_rows = static_cast<double>(problem.taps()) /
                             static_cast<double>(panels.joined ? problem.axis[2].taps : 1);
  const double moves =
      static_cast<double>(k * ceil_div(c, shape.c)) +
      static_cast<double>(c * ceil_div(k, shape.k)) *
          (panels.reuse == Reuse::tap ? filter_rows : std::max(1.5, inputs_of_output(problem)));
  const double tiles = static_cast<double>(ceil_div(c, shape.c) * ceil_div(k, shape.k)) /
                       static_cast<double>(shape.groups);
  const double products = cost * filter_rows / peak;
  const bool copies = panels.joined && problem.groups == 1 && dtype_bytes(problem.dtype) >= 4;
  // Floats of groups that are not fetched ahead come twice as slowly.
  const bool waits = problem.dtype == DType::f32 && problem.groups > 1 &&
                     shape.groups * shape.c * 4 < RunList::kLeastPiece;
  double packing = moves * (waits ? 0.6e-9 : 0.3e-9) + tiles * (copies ? 3e-9 : 15e-9);
  // In place, few channels cost little more. (More were compared with AMX only when packed.)
  if (c <= kFewChannels && tile_form(isa, problem, panels, {{}, {0, c}, {0, shape.k}}).in_place) {
    packing = products / 4;
  }
  const double all = static_cast<double>(term_count(problem)) * static_cast<double>(problem.groups);
  return kIsPair<Element> ? all * (products + packing) / 2 + 2.5e-6 : all * (products + packing);
}

template <const IsaSet& set, std::string (*lacks)(const Machine&)>
constexpr Kernel kernel(std::string_view name, std::string_view summary) {
  return {.name = name,
          .summary = summary,
          .why_not = [](const WgradProblem&, const Machine& machine) { return lacks(machine); },
          .estimated_seconds =
              [](const WgradProblem& problem) {
                return problem.dtype == DType::f64
                           ? seconds(problem, set.f64.outer_product, set.peak)
                           : seconds(problem, set.f32.outer_product, set.peak);
              },
          .tile_steps = tile_steps<float>,
          .workspace_bytes = workspace_bytes<float>,
          .accumulate = accumulate<set>,
          .stores = true,
          .stores_result = true};
}

#ifdef __x86_64__
// Pairs have one dtype, one instruction set, and start slowly. A pair is as large as a float,
// so panels take the memory that they take for float32, though they hold twice as many pixels.
void accumulate_pairs(const WgradProblem& problem, const ChunkGrid& grid, const Block& block,
                      const ChunkRun& run, const Tile& tile, std::byte* workspace, TileSums& sums) {
  OuterProductTile<BFloat16, BFloat16Pair> work(kAvx512Bf16Isa, problem, block, tile,
                                                reinterpret_cast<BFloat16Pair*>(workspace), sums);
  add_chunks(work, problem, grid, block, run, tile, workspace, sums.partial);
}

std::string why_not_pairs(const WgradProblem& problem, const Machine& machine) {
  if (problem.dtype != DType::bf16) {
    return cat("it multiplies bfloat16, not ", dtype_name(problem.dtype));
  }
  return lacks_avx512_bf16(machine);
}
#endif

}  // namespace

#if defined(__x86_64__)

constinit const Kernel kOuterProductBf16Kernel = {
    .name = "outer_product_avx512_bf16",
    .summary = "sums of outer products of bfloat16 pairs, 14 x 32 in registers; AVX512-BF16",
    .why_not = why_not_pairs,
    .estimated_seconds =
        [](const WgradProblem& pb) { return seconds(pb, kAvx512Bf16Isa, kAvx512Isa.peak); },
    .tile_steps = tile_steps<BFloat16Pair>,
    .workspace_bytes = workspace_bytes<BFloat16Pair>,
    .accumulate = accumulate_pairs,
    .chunk_pixels =
        [](const WgradProblem& pb) { return outer_product_shape<BFloat16Pair>(pb).pixels; },
    .stores = true,
    .stores_result = true,
    .slow_beside_amx = true};

constinit const Kernel kOuterProductAvx512Kernel = kernel<kAvx512Isa, lacks_avx512>(
    "outer_product_avx512",
    "sums of outer products from packed panels, 14 x 32 in registers; AVX-512");

constinit const Kernel kOuterProductAvx2Kernel = kernel<kAvx2Isa, lacks_avx2>(
    "outer_product_avx2", "sums of outer products, 6 x 16 in registers; AVX2 and FMA");

#elif defined(__aarch64__)

constinit const Kernel kOuterProductNeonKernel = kernel<kNeonIsa, lacks_neon>(
    "outer_product_neon", "sums of outer products from packed panels, 12 x 8 in registers; NEON");

#endif

constinit const Kernel kOuterProductKernel = kernel<kPortableIsa, lacks_nothing>(
    "outer_product", "sums of outer products, 6 x 8 in registers; any processor");

}  // namespace convgrad
