// streaming_wgrad.cpp - depthwise and small groups. A lane is an output channel; x is spread so
// that each lane has the value of its own group beside its dy, and no product is wasted on other
// groups.
//
// For each chunk of at most 512 pixels and a tile of `lanes` output channels, dy and the input rows
// that the chunk sees are packed once into panels [pixel][lane] (for each of the C/groups input
// channels of a group). Then, for each filter row, the sums of neighbouring taps stay in registers
// over all the chunk's pixels, and are added to the float64 partial at the end.
#include "cpu/streaming_wgrad.hpp"

#include <algorithm>
#include <cmath>

#include "cpu/direct_wgrad.hpp"
#include "cpu/isa_set.hpp"
#include "cpu/pack.hpp"

namespace convgrad {
namespace {

constexpr std::int64_t kMostLanes = 64;
constexpr int kMostTaps = 8;
// Input pixels that a chunk's panel may hold: more, and taps are too far apart for this kernel.
constexpr std::int64_t kMostPanelPixels = 8 * kMaxChunkPixels;
// Groups wider than this fill the lanes of outer_product.
constexpr std::int64_t kMostGroupC = 16;

// Input pixels in a chunk's panel: rows inside x only, but padding columns as zeros.
std::int64_t panel_pixels(const WgradProblem& problem) {
  const auto extent = chunk_extent(problem);
  std::int64_t rows = extent[0];
  for (std::size_t a = 0; a < 2; ++a) {
    const std::int64_t seen =
        std::min(problem.axis[a].in, spanned_inputs(problem.axis[a], extent[a + 1]));
    // Extents go up to 2^60: the product is only formed when it stays small.
    rows = seen > kMostPanelPixels ? kMostPanelPixels + 1 : rows * seen;
    if (rows > kMostPanelPixels) return rows;
  }
  return rows * std::min(spanned_inputs(problem.axis[2], extent[3]), kMostPanelPixels + 1);
}

template <typename Scalar, typename Acc>
class StreamingTile {
 public:
  StreamingTile(const IsaSet& set, const WgradProblem& problem, const Block& block,
                const Tile& tile, Acc* workspace)
      : packer_(outer_product_isa<Acc>(set)),
        isa_(streaming_isa<Acc>(set)),
        pb_(problem),
        block_(block),
        tile_(tile),
        dy_panel_(workspace),
        x_panel_(workspace + kMaxChunkPixels * kMostLanes) {}

  // False if dy is not finite where the x panel holds zeros for padding.
  bool add_chunk(const PixelBox& box, const PixelBox*, double* partial) {
    box_ = box;
    input_ = input_box(pb_, box);
    columns_ = spanned_inputs(pb_.axis[2], box[3].size());
    // The tile may be wider than the panels of this instruction set.
    for (std::int64_t k = tile_.k.begin; k < tile_.k.end; k += isa_.lanes) {
      k_ = {k, std::min<std::int64_t>(k + isa_.lanes, tile_.k.end)};
      if (!pack_dy()) return false;
      for (std::int64_t c = tile_.c.begin; c < tile_.c.end; ++c) {
        pack_x(c);
        add_taps(c, partial);
      }
    }
    return true;
  }

 private:
  PackSource source(const void* data, std::int64_t offset, std::int64_t pixel_stride,
                    std::int64_t channel_stride) const {
    return {static_cast<const Scalar*>(data) + offset, nullptr, static_cast<int>(pb_.dtype),
            pixel_stride, channel_stride};
  }

  template <typename Function>
  void for_each_row(Function&& function) const {
    for (std::int64_t n = box_[0].begin; n < box_[0].end; ++n) {
      for (std::int64_t z = box_[1].begin; z < box_[1].end; ++z) {
        for (std::int64_t p = box_[2].begin; p < box_[2].end; ++p) function(n, z, p);
      }
    }
  }

  bool pack_dy() {
    const std::int64_t q_count = box_[3].size(), lanes = isa_.lanes;
    Acc* out = dy_panel_;
    for_each_row([&](std::int64_t n, std::int64_t z, std::int64_t p) {
      const std::int64_t offset =
          dy_offset(block_, n, z, p, box_[3].begin) + k_.begin * block_.dy_strides.c;
      packer_.pack(source(block_.dy, offset, block_.dy_strides.spatial[2], block_.dy_strides.c),
                   q_count, k_.size(), {isa_.lanes, isa_.lanes, 0}, out);
      out += q_count * lanes;
    });
    return !sees_padding(pb_.axis[2]) || packer_.all_finite(dy_panel_, out - dy_panel_);
  }

  // x_panel_[input row][column][lane]: column 0 is what tap 0 of the first output sees.
  void pack_x(std::int64_t c) {
    const std::int64_t lanes = isa_.lanes;
    const std::int64_t first = box_[3].begin * pb_.axis[2].stride - pb_.axis[2].pad_before;
    const Range inside = intersect({first, first + columns_}, {0, pb_.axis[2].in});
    const std::int64_t before = std::clamp<std::int64_t>(inside.begin - first, 0, columns_);
    const std::int64_t count = std::max<std::int64_t>(inside.size(), 0);
    for (std::int64_t k = k_.begin; k < k_.end; ++k) {
      channel_[k - k_.begin] =
          static_cast<int>((k / pb_.group_k() - k_.begin / pb_.group_k()) * pb_.group_c() + c);
    }
    const std::int64_t base = k_.begin / pb_.group_k() * pb_.group_c() * block_.x_strides.c;
    Acc* row = x_panel_;
    for (std::int64_t n = box_[0].begin; n < box_[0].end; ++n) {
      for (std::int64_t d = input_[0].begin; d < input_[0].end; ++d) {
        for (std::int64_t h = input_[1].begin; h < input_[1].end; ++h) {
          std::fill_n(row, before * lanes, Acc{0});
          if (count > 0) {
            pack_row(base + x_offset(block_, n, d, h, inside.begin), count, row + before * lanes);
          }
          std::fill_n(row + (before + count) * lanes, (columns_ - before - count) * lanes, Acc{0});
          row += columns_ * lanes;
        }
      }
    }
  }

  void pack_row(std::int64_t offset, std::int64_t pixels, Acc* panel) const {
    const PackSource from =
        source(block_.x, offset, block_.x_strides.spatial[2], block_.x_strides.c);
    const int count = static_cast<int>(k_.size());
    if (pb_.group_c() == 1 && pb_.group_k() == 1) {
      packer_.pack(from, pixels, count, {isa_.lanes, isa_.lanes, 0}, panel);
    } else {
      isa_.spread(from, pixels, channel_, count, panel);
    }
  }

  void add_taps(std::int64_t c, double* partial) {
    const SpatialAxis &ad = pb_.axis[0], &ah = pb_.axis[1], &aw = pb_.axis[2];
    const std::int64_t lanes = isa_.lanes;
    for (std::int64_t t = 0; t < ad.taps; ++t) {
      for (std::int64_t r = 0; r < ah.taps; ++r) {
        const std::int64_t runs = list_runs(t, r);
        if (runs == 0) continue;
        for (std::int64_t s = 0; s < aw.taps; s += isa_.max_taps) {
          const std::int64_t taps = std::min<std::int64_t>(isa_.max_taps, aw.taps - s);
          double* out[kMostTaps];
          for (std::int64_t i = 0; i < taps; ++i) {
            const std::int64_t tap = (t * ah.taps + r) * aw.taps + s + i;
            out[i] = partial + (tap * pb_.group_c() + c) * pb_.K + k_.begin;
          }
          isa_.stream(static_cast<int>(taps), static_cast<int>(k_.size()),
                      x_panel_ + s * aw.dilation * lanes, aw.dilation * lanes, aw.stride * lanes,
                      dy_panel_, lanes, runs_, runs, out);
        }
      }
    }
  }

  // The chunk's rows for which filter row (t, r) lies in x.
  std::int64_t list_runs(std::int64_t t, std::int64_t r) {
    const std::int64_t lanes = isa_.lanes, row = columns_ * lanes;
    std::int64_t count = 0, dy = 0;
    for_each_row([&](std::int64_t n, std::int64_t z, std::int64_t p) {
      const std::int64_t d = input_position(pb_.axis[0], z, t);
      const std::int64_t h = input_position(pb_.axis[1], p, r);
      if (d >= 0 && d < pb_.axis[0].in && h >= 0 && h < pb_.axis[1].in) {
        const std::int64_t image = (n - box_[0].begin) * input_[0].size() + d - input_[0].begin;
        runs_[count++] = {(image * input_[1].size() + h - input_[1].begin) * row, dy,
                          box_[3].size(), nullptr, 0};
      }
      dy += box_[3].size() * lanes;
    });
    return count;
  }

  const OuterProductIsa<Acc>& packer_;
  const StreamingIsa<Acc>& isa_;
  const WgradProblem& pb_;
  const Block& block_;
  const Tile& tile_;
  Acc* dy_panel_;
  Acc* x_panel_;
  PixelBox box_;
  std::array<Range, 3> input_;
  Range k_;
  std::int64_t columns_ = 0;
  int channel_[kMostLanes];
  PanelRun runs_[kMaxChunkPixels];
};

std::vector<Tile> tiles(const WgradProblem& problem) {
  std::vector<Tile> result;
  // Whole groups, so that direct_chunk() can take over any tile.
  const std::int64_t group_k = problem.group_k();
  const std::int64_t step = std::max<std::int64_t>(kMostLanes / group_k, 1) * group_k;
  for (std::int64_t k = 0; k < problem.K; k += step) {
    result.push_back(
        {{0, problem.taps()}, {0, problem.group_c()}, {k, std::min(k + step, problem.K)}});
  }
  return result;
}

std::int64_t workspace_bytes(const WgradProblem& problem) {
  const std::int64_t lanes = std::max(kMostLanes, problem.group_k());
  const std::int64_t panels = (kMaxChunkPixels + panel_pixels(problem)) * kMostLanes;
  const std::int64_t direct = kMaxChunkPixels * lanes * (problem.group_c() + 1);
  return std::max(panels, direct) * dtype_bytes(accumulator_dtype(problem.dtype));
}

template <const IsaSet& set>
void accumulate(const WgradProblem& problem, const ChunkGrid& grid, const Block& block,
                const ChunkRun& run, const Tile& tile, std::byte* workspace, double* partial) {
  with_scalar(problem.dtype, [&](auto scalar) {
    using Scalar = decltype(scalar);
    using Acc = std::conditional_t<std::is_same_v<Scalar, double>, double, float>;
    StreamingTile<Scalar, Acc> work(set, problem, block, tile, reinterpret_cast<Acc*>(workspace));
    add_chunks(work, problem, grid, block, run, tile, workspace, partial);
  });
}

// peak: multiply-adds a second of full lanes on one core.
double seconds(const WgradProblem& problem, double peak, std::int64_t lanes) {
  if (problem.dtype == DType::f64) {
    peak /= 2;
    lanes /= 2;
  }
  const double used_lanes = std::ceil(static_cast<double>(problem.K) / static_cast<double>(lanes)) *
                            static_cast<double>(lanes);
  const double cells =
      static_cast<double>(problem.taps()) * static_cast<double>(problem.group_c()) * used_lanes;
  const double pixels = static_cast<double>(term_count(problem));
  // A pixel of a panel costs about as much as four multiply-adds, and more when it is spread.
  const bool spreads = problem.group_c() != 1 || problem.group_k() != 1;
  const double packing = 4 + (spreads ? 8.0 : 4.0) * static_cast<double>(problem.group_c());
  return (pixels * cells + pixels * used_lanes * packing) / peak;
}

std::string why_not_shape(const WgradProblem& problem) {
  if (problem.group_c() > kMostGroupC || problem.group_k() > kMostLanes) {
    return cat("groups of ", problem.group_c(), " to ", problem.group_k(),
               " channels are too wide, expected at most ", kMostGroupC, " to ", kMostLanes);
  }
  if (panel_pixels(problem) > kMostPanelPixels) return "its taps are too far apart";
  return "";
}

}  // namespace

const Kernel kStreamingAvx512Kernel = {
    "streaming_avx512",
    "depthwise and small groups: up to 6 taps x 64 channels in registers; AVX-512",
    [](const WgradProblem& problem, const Machine& machine) {
      const std::string reason = lacks_avx512(machine);
      return reason.empty() ? why_not_shape(problem) : reason;
    },
    [](const WgradProblem& problem) { return seconds(problem, 40e9, 64); },
    tiles,
    workspace_bytes,
    accumulate<kAvx512Isa>};

const Kernel kStreamingAvx2Kernel = {
    "streaming_avx2",
    "the same, up to 5 taps x 16 channels; AVX2 and FMA",
    [](const WgradProblem& problem, const Machine& machine) {
      const std::string reason = lacks_avx2(machine);
      return reason.empty() ? why_not_shape(problem) : reason;
    },
    [](const WgradProblem& problem) { return seconds(problem, 20e9, 16); },
    tiles,
    workspace_bytes,
    accumulate<kAvx2Isa>};

const Kernel kStreamingKernel = {
    "streaming",
    "the same, up to 5 taps x 8 channels; any processor",
    [](const WgradProblem& problem, const Machine&) { return why_not_shape(problem); },
    [](const WgradProblem& problem) { return seconds(problem, 7e9, 8); },
    tiles,
    workspace_bytes,
    accumulate<kPortableIsa>};

}  // namespace convgrad
