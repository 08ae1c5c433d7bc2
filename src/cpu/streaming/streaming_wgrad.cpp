// streaming_wgrad.cpp - computes depthwise and small groups. A lane is an output channel, and has
// the x of its own group beside its dy (streaming_tile.hpp); or it is an input channel that meets
// the outputs of its group (group_tile.hpp), for which tensors of 16 bits or with channels first
// are copied (converted_tile.hpp).
#include <algorithm>
#include <cmath>

#include "cpu/direct_wgrad.hpp"
#include "cpu/isa/isa_set.hpp"
#include "cpu/kernels.hpp"
#include "cpu/streaming/converted_tile.hpp"
#include "cpu/streaming/group_tile.hpp"
#include "cpu/streaming/stream_shape.hpp"
#include "cpu/streaming/streaming_tile.hpp"

namespace convgrad {
namespace {

TileSteps tile_steps(const WgradProblem& problem) {
  return {problem.taps(), problem.group_c(), stream_tile_k(problem), true, stream_wide_k(problem)};
}

// Tells whether GroupTile reads the tensors once they are copied.
template <typename Acc>
bool is_converted(const StreamingIsa<Acc>& isa, const WgradProblem& problem) {
  return !is_in_layout(problem) && ConvertedShape(problem).fits() &&
         GroupTile<Acc>::fits(isa, converted_problem(problem));
}

// Returns the most of what any instruction set may need, as plans are made before one is chosen.
std::int64_t workspace_bytes(const WgradProblem& problem) {
  // The last tile may have too few lanes to be read in place.
  std::int64_t elements = stream_sum_elements(problem) +
                          (kMaxChunkPixels + seen_pixels(problem, kMostPanelPixels)) * kMostLanes;
  if (!is_depthwise(problem)) {
    const std::int64_t tile_c = stream_wide_k(problem) / problem.group_k() * problem.group_c();
    std::int64_t of_groups = problem.taps() * problem.group_k() * (tile_c + 64);
    const ConvertedShape copies(problem);
    if (!is_in_layout(problem) && copies.fits()) {
      of_groups += round_up(copies.x, 16) + copies.dy;
    }
    elements = std::max(elements, of_groups);
  }
  return elements * dtype_bytes(accumulator_dtype(problem.dtype));
}

// Reads in place where x and dy allow it. Else groups are copied, if the copies can be read in
// place: each value is moved once. Else they are packed in panels, for which x is moved once for
// each channel of a group, as every lane needs its own.
template <const IsaSet& set>
void accumulate(const WgradProblem& problem, const ChunkGrid& grid, const Block& block,
                const ChunkRun& run, const Tile& tile, std::byte* workspace, TileSums& sums) {
  with_scalar(problem.dtype, [&](auto scalar) {
    using Scalar = decltype(scalar);
    using Acc = AccumulatorOf<Scalar>;
    const IsaTable<Acc>& isa = isa_table<Acc>(set);
    const auto add = [&]<typename Work>(std::type_identity<Work>) {
      Work work(isa, problem, block, tile, reinterpret_cast<Acc*>(workspace));
      add_chunks(work, problem, grid, block, run, tile, workspace, sums.partial);
    };
    if (is_converted(isa.streaming, problem)) {
      add(std::type_identity<ConvertedTile<Scalar>>());
    } else if (GroupTile<Acc>::fits(isa.streaming, problem)) {
      add(std::type_identity<GroupTile<Acc>>());
    } else {
      add(std::type_identity<StreamingTile<Scalar, Acc>>());
    }
  });
}

// Estimates seconds on one core. A multiply-add waits a little for its operands, half as long
// again, or as long in groups of 8 and more, or twice that where AVX2 picks outputs from two
// vectors; a packed value takes as long as a few, as 32 where its pixel fills no vector. 16 for
// each channel of a group is for spreading, lane by lane. One group has few lanes.
template <const IsaSet& set>
double seconds(const WgradProblem& problem) {
  const bool is_double = problem.dtype == DType::f64;
  const double lanes = is_double ? set.f64.streaming.lanes : set.f32.streaming.lanes;
  const auto K = static_cast<double>(problem.K);
  const double tiles = std::ceil(K / static_cast<double>(stream_wide_k(problem)));
  const double vectors = tiles * std::ceil(K / tiles / lanes);
  const double c = static_cast<double>(problem.group_c());
  const auto copied = [&]<typename Acc>(const StreamingIsa<Acc>& isa) {
    const InPlace reads = reads_in_place(problem);
    const bool in_place = reads.x || reads.pairs;
    if (in_place && K < lanes * (reads.pairs ? 2 : 1)) return 32.;
    if (in_place || GroupTile<Acc>::fits(isa, problem)) return 4.;
    return is_depthwise(problem) || is_converted(isa, problem) ? 8. : 6 + c * 16;
  };
  const bool picks = !is_double && set.f32.streaming.wide_outputs == 1 && c > 4 &&
                     problem.group_k() > set.f32.streaming.lanes;
  const double packing = is_double ? copied(set.f64.streaming) : copied(set.f32.streaming);
  const double wait = picks ? 3 : c < 8 ? 1.5 : 2;
  return static_cast<double>(term_count(problem)) * vectors * (problem.groups == 1 ? 4 : 1) *
         (static_cast<double>(problem.taps()) * c * wait + packing) / set.peak;
}

// Larger filters are left to kernels that sum a tap at a time. The sums of a tile's taps must fit a
// cache, and their count an int64.
constexpr std::int64_t kMostFilterTaps = 4096;

std::string why_not_shape(const WgradProblem& problem) {
  if (problem.group_c() > kMostGroupC || problem.group_k() > kMostLanes) {
    return cat("groups of ", problem.group_c(), " to ", problem.group_k(),
               " channels are too wide, expected at most ", kMostGroupC, " to ", kMostLanes);
  }
  if (problem.taps() > kMostFilterTaps) {
    return cat("a filter of ", problem.taps(), " taps is too large, expected at most ",
               kMostFilterTaps);
  }
  if (seen_pixels(problem, kMostPanelPixels) > kMostPanelPixels)
    return "its taps are too far apart";
  return "";
}

template <const IsaSet& set, std::string (*lacks)(const Machine&)>
constexpr Kernel kernel(std::string_view name, std::string_view summary) {
  return {.name = name,
          .summary = summary,
          .why_not =
              [](const WgradProblem& problem, const Machine& machine) {
                return first_of(lacks(machine), why_not_shape(problem));
              },
          .estimated_seconds = seconds<set>,
          .tile_steps = tile_steps,
          .workspace_bytes = workspace_bytes,
          .accumulate = accumulate<set>};
}

}  // namespace

#if defined(__x86_64__)

constinit const Kernel kStreamingAvx512Kernel = kernel<kAvx512Isa, lacks_avx512>(
    "streaming_avx512",
    "depthwise and small groups: up to 28 vectors of 16 sums in registers; AVX-512");

constinit const Kernel kStreamingAvx2Kernel = kernel<kAvx2Isa, lacks_avx2>(
    "streaming_avx2", "depthwise, small groups: up to 12 vectors of 8 sums; AVX2 and FMA");

#elif defined(__aarch64__)

constinit const Kernel kStreamingNeonKernel = kernel<kNeonIsa, lacks_neon>(
    "streaming_neon", "depthwise and small groups: up to 24 vectors of 4 sums in registers; NEON");

#endif

constinit const Kernel kStreamingKernel = kernel<kPortableIsa, lacks_nothing>(
    "streaming", "depthwise, small groups: up to 12 vectors of 4 sums; any processor");

}  // namespace convgrad
