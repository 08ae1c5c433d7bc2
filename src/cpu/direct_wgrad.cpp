// direct_wgrad.cpp - for each output row and tap, sums over the row's pixels with 16 output
// channels of a group in registers, in plain C++.
#include "cpu/direct_wgrad.hpp"

#include <algorithm>

#include "cpu/kernels.hpp"
#include "cpu/shared/pack.hpp"

namespace convgrad {
namespace {

// Sums in registers are four SSE2 vectors of floats or eight of doubles, which leave half or more
// of the 16 registers for operands.
constexpr std::int64_t kLanes = 16;
// A tile's output channels are eight cache lines of the partial for each tap and input channel.
constexpr std::int64_t kTileK = 64;
// A tile's elements of dw are 128 KiB of float64 sums, which every row of pixels visits, so that
// they should stay in the second cache.
constexpr std::int64_t kTileCells = 16384;

// The pixels of one run have x[i*pixel + c*channel].
template <typename Acc>
struct Run {
  const Acc* x;
  std::int64_t x_pixel, x_channel;
  const Acc* dy;
  std::int64_t dy_pixel;
  std::int64_t pixels;
};

// Adds a run to a tile of partial, 16 channels at a time: sums of more would not fit the registers.
// It passes once for each of them, from a cache after the first time. With all 16 the number is
// known to the compiler, which then keeps the sums in registers.
template <typename Acc>
void add_run(const Run<Acc>& run, std::int64_t c_count, std::int64_t k_count, std::int64_t K,
             double* partial) {
  for (std::int64_t c = 0; c < c_count; ++c) {
    for (std::int64_t k = 0; k < k_count; k += kLanes) {
      const Acc* const x = run.x + c * run.x_channel;
      Acc sum[kLanes] = {};
      const auto add = [&sum, x, dy = run.dy + k, run](auto lanes) {
        for (std::int64_t i = 0; i < run.pixels; ++i) {
          for (std::int64_t j = 0; j < lanes; ++j) {
            sum[j] += x[i * run.x_pixel] * dy[i * run.dy_pixel + j];
          }
        }
      };
      const std::int64_t lanes = std::min(kLanes, k_count - k);
      if (lanes == kLanes) {
        add(std::integral_constant<std::int64_t, kLanes>());
      } else {
        add(lanes);
      }
      double* const cells = partial + c * K + k;
      for (std::int64_t j = 0; j < lanes; ++j) cells[j] += static_cast<double>(sum[j]);
    }
  }
}

// Does one tile's work on one chunk, for one storage type. dy is packed once for a row and serves
// all taps; x is packed for each tap, since taps of a row see it from different pixels on.
template <typename Scalar, typename Acc>
class DirectTile {
 public:
  DirectTile(const WgradProblem& problem, const Block& block, const Tile& tile, Acc* workspace)
      : pb_(problem),
        block_(block),
        tile_(tile),
        x_pack_(workspace),
        dy_pack_(workspace + kMaxChunkPixels * tile.c.size()) {}

  void add_row(std::int64_t n, std::int64_t z, std::int64_t p, Range q, double* partial) {
    const Scalar* dy = static_cast<const Scalar*>(block_.dy) + dy_offset(block_, n, z, p, q.begin) +
                       tile_.k.begin * block_.dy_strides.c;
    run_.dy_pixel = tile_.k.size();
    pack_pixels(dy, q.size(), block_.dy_strides.spatial[2], tile_.k.size(), block_.dy_strides.c,
                dy_pack_, run_.dy_pixel);
    for (std::int64_t tap = tile_.tap.begin; tap < tile_.tap.end; ++tap) {
      const auto [t, r, s] = tap_index(pb_, tap);
      const std::int64_t d = input_position(pb_.axis[0], z, t);
      const std::int64_t h = input_position(pb_.axis[1], p, r);
      if (!is_inside(pb_.axis[0], d) || !is_inside(pb_.axis[1], h)) continue;
      const Range inside = intersect(q, outputs_inside(pb_.axis[2], s));
      if (inside.size() <= 0) continue;
      const std::int64_t w = input_position(pb_.axis[2], inside.begin, s);
      load_x(x_offset(block_, n, d, h, w), inside.size());
      run_.dy = dy_pack_ + (inside.begin - q.begin) * run_.dy_pixel;
      double* cell = partial + (tap * pb_.group_c() + tile_.c.begin) * pb_.K + tile_.k.begin;
      add_run(run_, tile_.c.size(), tile_.k.size(), pb_.K, cell);
    }
  }

 private:
  void load_x(std::int64_t offset, std::int64_t pixels) {
    const std::int64_t pixel_stride = block_.x_strides.spatial[2] * pb_.axis[2].stride;
    const std::int64_t channel_stride = block_.x_strides.c;
    const std::int64_t group = tile_.k.begin / pb_.group_k();
    const Scalar* source = static_cast<const Scalar*>(block_.x) + offset +
                           (group * pb_.group_c() + tile_.c.begin) * channel_stride;
    run_.pixels = pixels;
    if constexpr (std::is_same_v<Scalar, Acc>) {
      run_.x = source;
      run_.x_pixel = pixel_stride;
      run_.x_channel = channel_stride;
    } else {
      run_.x = x_pack_;
      run_.x_pixel = tile_.c.size();
      run_.x_channel = 1;
      pack_pixels(source, pixels, pixel_stride, tile_.c.size(), channel_stride, x_pack_,
                  run_.x_pixel);
    }
  }

  const WgradProblem& pb_;
  const Block& block_;
  const Tile& tile_;
  Acc* x_pack_;
  Acc* dy_pack_;
  Run<Acc> run_{};
};

TileSteps tile_steps(const WgradProblem& problem) {
  const std::int64_t k_step = std::min(kTileK, problem.group_k());
  const std::int64_t tap_step = std::clamp<std::int64_t>(kTileCells / k_step, 1, problem.taps());
  const std::int64_t c_step =
      std::clamp<std::int64_t>(kTileCells / k_step / tap_step, 1, problem.group_c());
  return {tap_step, c_step, k_step};
}

std::int64_t workspace_bytes(const WgradProblem& problem) {
  const TileSteps steps = tile_steps(problem);
  return kMaxChunkPixels * (steps.c + steps.k) * dtype_bytes(accumulator_dtype(problem.dtype));
}

// A vector has 16 lanes, however few output channels there are.
double estimated_seconds(const WgradProblem& problem) {
  const double pixels = static_cast<double>(term_count(problem));
  const double cells = static_cast<double>(problem.dw_count());
  const double lanes = static_cast<double>(std::min(problem.group_k(), kLanes));
  const double peak = problem.dtype == DType::f64 ? 3e9 : 5e9;  // multiply-adds a second
  return pixels * cells * (kLanes / lanes) / peak;
}

void accumulate(const WgradProblem& problem, const ChunkGrid& grid, const Block& block,
                const ChunkRun& run, const Tile& tile, std::byte* workspace, TileSums& sums) {
  for (std::int64_t chunk = run.begin; chunk < run.end; chunk += run.step) {
    direct_chunk(problem, block, grid.box(chunk), tile, workspace, sums.partial);
  }
}

}  // namespace

void direct_chunk(const WgradProblem& problem, const Block& block, const PixelBox& box,
                  const Tile& tile, std::byte* workspace, double* partial) {
  with_scalar(problem.dtype, [&](auto scalar) {
    using Scalar = decltype(scalar);
    using Acc = AccumulatorOf<Scalar>;
    DirectTile<Scalar, Acc> work(problem, block, tile, reinterpret_cast<Acc*>(workspace));
    for_each_row(box, [&](std::int64_t n, std::int64_t z, std::int64_t p) {
      work.add_row(n, z, p, box[3], partial);
    });
  });
}

const Kernel kDirectKernel = {
    .name = "direct",
    .summary = "sums over rows of pixels with 16 output channels in registers; no im2col",
    .why_not = [](const WgradProblem&, const Machine&) { return std::string(); },
    .estimated_seconds = estimated_seconds,
    .tile_steps = tile_steps,
    .workspace_bytes = workspace_bytes,
    .accumulate = accumulate};

}  // namespace convgrad
