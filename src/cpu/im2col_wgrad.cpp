// im2col_wgrad.cpp - makes im2col of one chunk at a time and multiplies by OpenBLAS.
//
// For a tile (taps x input channels of one group, output channels) and a chunk of at most 512
// pixels: columns[pixel][tap, c] is built (or x used in place for 1x1), dy is used in place where
// its layout allows, and one GEMM gives the products, which are added to the float64 partial.
#include <algorithm>

#include "base/integers.hpp"
#include "cpu/blas.hpp"
#include "cpu/direct_wgrad.hpp"
#include "cpu/isa/isa_set.hpp"
#include "cpu/kernels.hpp"
#include "cpu/shared/pack.hpp"

namespace convgrad {
namespace {

// These limit a tile: the columns of a chunk (512 x 384 floats, 768 KiB) stay in a 1 MiB second
// cache, from where OpenBLAS packs them once more.
constexpr std::int64_t kMaxM = 384;
constexpr std::int64_t kMaxN = 512;

// Cuts evenly, so that no tile is a thin remainder, on which GEMM is slow: input channels first, as
// those of a pixel are neighbours in x, then taps.
TileSteps tile_steps(const WgradProblem& problem) {
  const std::int64_t c = problem.group_c(), k = problem.group_k(), taps = problem.taps();
  const std::int64_t c_step = ceil_div(c, ceil_div(c, kMaxM));
  const std::int64_t tap_most = std::max<std::int64_t>(1, c_step < c ? 1 : kMaxM / c);
  return {ceil_div(taps, ceil_div(taps, tap_most)), c_step, ceil_div(k, ceil_div(k, kMaxN))};
}

// If so, x as the file has it is the matrix of columns, and nothing is copied.
bool is_pointwise(const WgradProblem& problem) {
  return std::ranges::all_of(problem.axis, [](const SpatialAxis& axis) {
    return axis.taps == 1 && axis.stride == 1 && axis.pad_before == 0 && axis.in == axis.out;
  });
}

template <typename Scalar, typename Acc>
class Im2colTile {
 public:
  Im2colTile(const WgradProblem& problem, const Block& block, const Tile& tile, Acc* workspace)
      : pb_(problem),
        block_(block),
        tile_(tile),
        m_(tile.tap.size() * tile.c.size()),
        first_channel_(tile.k.begin / problem.group_k() * problem.group_c() + tile.c.begin),
        columns_(workspace),
        dy_pack_(workspace + kMaxChunkPixels * m_),
        product_(dy_pack_ + kMaxChunkPixels * tile.k.size()) {}

  // Returns false if dy is not finite where taps see padding: 0 * Inf must not be added.
  bool add_chunk(const PixelBox& box, const PixelBox*, double* partial) {
    const bool padded = !x_operand(box);
    dy_operand(box);
    if (padded && !finite_dy(pixel_count(box))) return false;
    const std::int64_t depth = pixel_count(box), n = tile_.k.size();
    double* cell =
        partial + (tile_.tap.begin * pb_.group_c() + tile_.c.begin) * pb_.K + tile_.k.begin;
    // GEMM cannot add floats to doubles. A product of 512 pixels is one chunk's: float32 sums end
    // with it, whatever OpenBLAS does inside. Consecutive rows of the tile are K apart in partial:
    // all c of each tap, or one tap only.
    gemm(m_, n, depth, x_, dy_, product_);
    for (std::int64_t row = 0; row < m_; ++row) {
      for (std::int64_t j = 0; j < n; ++j) {
        cell[row * pb_.K + j] += static_cast<double>(product_[row * n + j]);
      }
    }
    return true;
  }

 private:
  static constexpr bool kSameType = std::is_same_v<Scalar, Acc>;

  // In channels-first files a chunk's pixels are side by side only within one image, and then only
  // if the chunk splits nothing inside its split axis, which chunks never do.
  bool in_place(const PixelBox& box, std::int64_t channel_stride) const {
    return kSameType && fits_blas(channel_stride) && (pb_.channels_last || box[0].size() == 1);
  }

  // Sets x_; returns false if zeros stand in it for positions outside x.
  bool x_operand(const PixelBox& box) {
    const Scalar* x = static_cast<const Scalar*>(block_.x);
    const std::int64_t channel = first_channel_ * block_.x_strides.c;
    const std::int64_t ld = pb_.channels_last ? block_.x_strides.spatial[2] : block_.x_strides.c;
    if constexpr (kSameType) {
      if (is_pointwise(pb_) && in_place(box, ld)) {
        x_ = {
            x + channel + x_offset(block_, box[0].begin, box[1].begin, box[2].begin, box[3].begin),
            ld, pb_.channels_last};
        return true;
      }
    }
    x_ = {columns_, m_, true};
    return im2col(box, x + channel);
  }

  void dy_operand(const PixelBox& box) {
    const Scalar* dy = static_cast<const Scalar*>(block_.dy) + tile_.k.begin * block_.dy_strides.c;
    const std::int64_t ld = pb_.channels_last ? block_.dy_strides.spatial[2] : block_.dy_strides.c;
    if constexpr (kSameType) {
      if (in_place(box, ld)) {
        dy_ = {dy + dy_offset(block_, box[0].begin, box[1].begin, box[2].begin, box[3].begin), ld,
               !pb_.channels_last};
        return;
      }
    }
    const std::int64_t n = tile_.k.size(), q_count = box[3].size();
    Acc* row = dy_pack_;
    for_each_row(box, [&](std::int64_t image, std::int64_t z, std::int64_t p) {
      pack_pixels(dy + dy_offset(block_, image, z, p, box[3].begin), q_count,
                  block_.dy_strides.spatial[2], n, block_.dy_strides.c, row, n);
      row += q_count * n;
    });
    dy_ = {dy_pack_, n, false};
  }

  // Fills columns_[pixel][tap][c] pixel by pixel, as a pixel's columns are neighbours. x points at
  // the tile's first channel. Returns false if any zero was filled in.
  bool im2col(const PixelBox& box, const Scalar* x) {
    bool complete = true;
    Acc* row = columns_;
    for_each_row(box, [&](std::int64_t n, std::int64_t z, std::int64_t p) {
      for (std::int64_t tap = tile_.tap.begin; tap < tile_.tap.end; ++tap) {
        Acc* column = row + (tap - tile_.tap.begin) * tile_.c.size();
        complete = im2col_row(x, n, z, p, box[3], tap, column) && complete;
      }
      row += box[3].size() * m_;
    });
    return complete;
  }

  bool im2col_row(const Scalar* x, std::int64_t n, std::int64_t z, std::int64_t p, Range q,
                  std::int64_t tap, Acc* column) {
    const auto [t, r, s] = tap_index(pb_, tap);
    const std::int64_t d = input_position(pb_.axis[0], z, t);
    const std::int64_t h = input_position(pb_.axis[1], p, r);
    const bool row_inside = is_inside(pb_.axis[0], d) && is_inside(pb_.axis[1], h);
    const Range inside =
        row_inside ? intersect(q, outputs_inside(pb_.axis[2], s)) : Range{q.begin, q.begin};
    for (std::int64_t i = q.begin; i < q.end; ++i) {
      if (!contains(inside, i)) std::fill_n(column + (i - q.begin) * m_, tile_.c.size(), Acc{0});
    }
    if (inside.size() > 0) {
      const std::int64_t w = input_position(pb_.axis[2], inside.begin, s);
      pack_pixels(x + x_offset(block_, n, d, h, w), inside.size(),
                  block_.x_strides.spatial[2] * pb_.axis[2].stride, tile_.c.size(),
                  block_.x_strides.c, column + (inside.begin - q.begin) * m_, m_);
    }
    return inside == q;
  }

  bool finite_dy(std::int64_t pixels) const {
    const std::int64_t rows = dy_.transposed ? tile_.k.size() : pixels;
    const std::int64_t columns = dy_.transposed ? pixels : tile_.k.size();
    const auto all_finite = isa_table<Acc>(kPortableIsa).outer_product.all_finite;
    bool finite = true;
    for (std::int64_t i = 0; i < rows && finite; ++i) {
      finite = all_finite(dy_.data + i * dy_.ld, columns);
    }
    return finite;
  }

  const WgradProblem& pb_;
  const Block& block_;
  const Tile& tile_;
  const std::int64_t m_;
  const std::int64_t first_channel_;
  Acc* columns_;
  Acc* dy_pack_;
  Acc* product_;
  GemmOperand<Acc> x_, dy_;
};

std::int64_t workspace_bytes(const WgradProblem& problem) {
  const TileSteps step = tile_steps(problem);
  const std::int64_t m = step.tap * step.c;
  const std::int64_t elements = kMaxChunkPixels * (m + step.k) + m * step.k;
  // direct_chunk() works in the same space when dy is not finite.
  return std::max(elements, kMaxChunkPixels * (step.c + step.k)) *
         dtype_bytes(accumulator_dtype(problem.dtype));
}

double estimated_seconds(const WgradProblem& problem) {
  const TileSteps step = tile_steps(problem);
  const double m = static_cast<double>(step.tap * step.c), n = static_cast<double>(step.k);
  const double pixels = static_cast<double>(term_count(problem));
  const double cells = static_cast<double>(problem.dw_count());
#ifdef __aarch64__
  constexpr double kPeak = 15e9;  // floats' multiply-adds a second: of NEON, half as wide as AVX2
#else
  constexpr double kPeak = 30e9;
#endif
  const double peak = problem.dtype == DType::f64 ? kPeak / 2 : kPeak;
  // GEMM loses on thin products; im2col costs a copy of each column for each block of k.
  const double products = pixels * cells / peak * (1 + 16 / m) * (1 + 16 / n);
  return products + pixels * cells / n * 0.5e-9;
}

void accumulate(const WgradProblem& problem, const ChunkGrid& grid, const Block& block,
                const ChunkRun& run, const Tile& tile, std::byte* workspace, TileSums& sums) {
  with_scalar(problem.dtype, [&](auto scalar) {
    using Scalar = decltype(scalar);
    using Acc = AccumulatorOf<Scalar>;
    Im2colTile<Scalar, Acc> work(problem, block, tile, reinterpret_cast<Acc*>(workspace));
    add_chunks(work, problem, grid, block, run, tile, workspace, sums.partial);
  });
}

}  // namespace

const Kernel kIm2colGemmKernel = {
    .name = "im2col_gemm",
    .summary = "im2col of at most 512 pixels at a time, multiplied by OpenBLAS; 1x1 in place",
    .why_not = [](const WgradProblem&, const Machine&) { return std::string(); },
    .estimated_seconds = estimated_seconds,
    .tile_steps = tile_steps,
    .workspace_bytes = workspace_bytes,
    .accumulate = accumulate,
    .by_blas = true};

}  // namespace convgrad
