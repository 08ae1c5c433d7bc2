// outer_product_wgrad.cpp - a filter gradient is a sum of outer products over pixels:
// dw[tap][c][k] += x[pixel shifted by the tap][c] * dy[pixel][k]. No im2col is needed: a tap only
// changes where the runs of pixels begin.
//
// For each chunk of at most 512 pixels, dy is packed once into panels [pixel][n channels]. Then,
// for each filter row (t, r) and each block of at most max_m rows of the register tile, x is packed
// into a panel, and the register tile runs over all the chunk's pixels, whatever rows and images
// they lie in, before it is added to the float64 partial. Packing is also where layouts and dtypes
// end.
//
// A row of the register tile is one (s, c) of the filter row. Usually a block is some c of all s,
// and x is packed once for all of them: [input column][c]. Where C is small (a 7x7 stem has 21
// pairs of s and c), or where taps are so far apart that columns between them are never read, a
// block is a list of pairs and x is packed pair by pair: [output column][pair].
#include "cpu/outer_product_wgrad.hpp"

#include <algorithm>

#include "cpu/direct_wgrad.hpp"
#include "cpu/isa_set.hpp"
#include "cpu/pack.hpp"

namespace convgrad {
namespace {

// Limits of a tile. dy's panels of a chunk (512 x 256 floats) are half of a 1 MiB L2 cache.
constexpr std::int64_t kTileK = 256;
constexpr std::int64_t kTileC = 112;
constexpr std::int64_t kFewC = 8;  // fewer channels than this share a block with other taps
constexpr int kMostM = 16;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

// Pixels of a chunk's row; 1 when there is no output at all.
std::int64_t row_pixels(const WgradProblem& problem) {
  return std::clamp<std::int64_t>(problem.axis[2].out, 1, kMaxChunkPixels);
}

// Whether x is packed pair by pair: by the shape of the problem alone.
bool packs_pairs(const WgradProblem& problem) {
  const SpatialAxis& w = problem.axis[2];
  const std::int64_t pixels = row_pixels(problem);
  return w.taps == 1 || problem.group_c() < kFewC ||
         spanned_inputs(w, pixels) > 2 * pixels + 2 * w.taps;
}

// Rows of an x panel times its columns never exceed this (pixels of a chunk, spanned columns).
std::int64_t panel_pixels(const WgradProblem& problem) {
  if (packs_pairs(problem)) return kMaxChunkPixels;
  const std::int64_t pixels = row_pixels(problem);
  const std::int64_t rows = std::max<std::int64_t>(1, kMaxChunkPixels / pixels);
  return rows * spanned_inputs(problem.axis[2], pixels);
}

struct Steps {
  std::int64_t c, k;
};
Steps tile_steps(const WgradProblem& problem) {
  const std::int64_t c = problem.group_c(), k = problem.group_k();
  return {ceil_div(c, ceil_div(c, kTileC)), std::min(k, kTileK)};
}

std::int64_t workspace_elements(const WgradProblem& problem) {
  const Steps steps = tile_steps(problem);
  const std::int64_t dy = kMaxChunkPixels * round_up(steps.k, 32);
  return dy + (panel_pixels(problem) + 1) * kMostM;
}

// A part of a filter row: rows of the register tile with the same distance between their x.
struct Pair {
  std::int64_t s, c;
};

template <typename Scalar, typename Acc>
class OuterProductTile {
 public:
  OuterProductTile(const OuterProductIsa<Acc>& isa, const WgradProblem& problem, const Block& block,
                   const Tile& tile, Acc* workspace)
      : isa_(isa),
        pb_(problem),
        block_(block),
        tile_(tile),
        pairs_(packs_pairs(problem)),
        first_channel_(tile.k.begin / problem.group_k() * problem.group_c()),
        dy_panels_(workspace),
        x_panel_(workspace + kMaxChunkPixels * round_up(tile_steps(problem).k, 32)) {}

  // False if dy is not finite where x panels hold zeros for padding: 0 * Inf must not be added.
  bool add_chunk(const PixelBox& box, double* partial) {
    box_ = box;
    q_count_ = box[3].size();
    if (!pack_dy()) return false;
    const std::int64_t T = pb_.axis[0].taps, R = pb_.axis[1].taps;
    for (std::int64_t t = 0; t < T; ++t) {
      for (std::int64_t r = 0; r < R; ++r) {
        list_rows(t, r);
        if (row_count_ == 0) continue;
        double* filter_row = partial + (t * R + r) * pb_.axis[2].taps * pb_.group_c() * pb_.K;
        if (pairs_) {
          add_pairs(filter_row);
        } else {
          add_columns(filter_row);
        }
      }
    }
    return true;
  }

 private:
  std::int64_t pixels() const {
    return box_[0].size() * box_[1].size() * box_[2].size() * q_count_;
  }
  std::int64_t panel_elements() const { return kMaxChunkPixels * isa_.n; }

  PackSource source(const void* data, std::int64_t offset, std::int64_t pixel_stride,
                    std::int64_t channel_stride) const {
    return {static_cast<const Scalar*>(data) + offset, static_cast<int>(pb_.dtype), pixel_stride,
            channel_stride};
  }

  // dy_panels_[k / n][pixel][k % n], zeros behind the last k.
  bool pack_dy() {
    const bool zeros_in_x = sees_padding(pb_.axis[2]);
    std::int64_t panel = 0;
    for (std::int64_t k = tile_.k.begin; k < tile_.k.end; k += isa_.n, ++panel) {
      const std::int64_t columns = std::min<std::int64_t>(isa_.n, tile_.k.end - k);
      Acc* out = dy_panels_ + panel * panel_elements();
      if (columns < isa_.n) std::fill_n(out, pixels() * isa_.n, Acc{0});
      for (std::int64_t n = box_[0].begin; n < box_[0].end; ++n) {
        for (std::int64_t z = box_[1].begin; z < box_[1].end; ++z) {
          for (std::int64_t p = box_[2].begin; p < box_[2].end; ++p) {
            const std::int64_t offset =
                dy_offset(block_, n, z, p, box_[3].begin) + k * block_.dy_strides.c;
            isa_.pack(source(block_.dy, offset, block_.dy_strides.spatial[2], block_.dy_strides.c),
                      q_count_, static_cast<int>(columns), isa_.n, out);
            out += q_count_ * isa_.n;
          }
        }
      }
      const Acc* begin = dy_panels_ + panel * panel_elements();
      if (zeros_in_x && !isa_.all_finite(begin, pixels() * isa_.n)) return false;
    }
    return true;
  }

  // The chunk's rows for which filter row (t, r) lies in x.
  void list_rows(std::int64_t t, std::int64_t r) {
    row_count_ = 0;
    std::int64_t pixel = 0;
    for (std::int64_t n = box_[0].begin; n < box_[0].end; ++n) {
      for (std::int64_t z = box_[1].begin; z < box_[1].end; ++z) {
        const std::int64_t d = input_position(pb_.axis[0], z, t);
        for (std::int64_t p = box_[2].begin; p < box_[2].end; ++p, pixel += q_count_) {
          const std::int64_t h = input_position(pb_.axis[1], p, r);
          if (d < 0 || d >= pb_.axis[0].in || h < 0 || h >= pb_.axis[1].in) continue;
          runs_[row_count_].dy = pixel * isa_.n;
          row_start_[row_count_++] = x_offset(block_, n, d, h, 0);
        }
      }
    }
  }

  // Blocks of c, each packed once for all s.
  void add_columns(double* filter_row) {
    const SpatialAxis& w = pb_.axis[2];
    const std::int64_t columns = spanned_inputs(w, q_count_);
    const std::int64_t blocks = ceil_div(tile_.c.size(), isa_.max_m);
    for (std::int64_t b = 0; b < blocks; ++b) {
      const Range c = {tile_.c.begin + tile_.c.size() * b / blocks,
                       tile_.c.begin + tile_.c.size() * (b + 1) / blocks};
      const std::int64_t m = c.size();
      for (std::int64_t row = 0; row < row_count_; ++row) {
        Acc* panel = x_panel_ + row * columns * m;
        runs_[row].x = row * columns * m;
        pack_columns(row_start_[row], box_[3].begin * w.stride - w.pad_before, columns, c, panel);
      }
      for (std::int64_t s = 0; s < w.taps; ++s) {
        for (std::int64_t i = 0; i < m; ++i) rows_[i] = {s, c.begin + i};
        multiply(m, x_panel_ + s * w.dilation * m, w.stride * m, filter_row);
      }
    }
  }

  // Input columns [first, first + count) of one row, channels c: zeros outside x.
  void pack_columns(std::int64_t row_start, std::int64_t first, std::int64_t count, Range c,
                    Acc* panel) const {
    const std::int64_t m = c.size();
    const Range inside = intersect({first, first + count}, {0, pb_.axis[2].in});
    const std::int64_t before = std::min(std::max<std::int64_t>(inside.begin - first, 0), count);
    std::fill_n(panel, before * m, Acc{0});
    if (inside.size() > 0) {
      const std::int64_t stride = block_.x_strides.spatial[2];
      const std::int64_t offset =
          row_start + inside.begin * stride + (first_channel_ + c.begin) * block_.x_strides.c;
      isa_.pack(source(block_.x, offset, stride, block_.x_strides.c), inside.size(),
                static_cast<int>(m), static_cast<int>(m), panel + before * m);
    }
    const std::int64_t done = before + std::max<std::int64_t>(inside.size(), 0);
    std::fill_n(panel + done * m, (count - done) * m, Acc{0});
  }

  // Blocks of (s, c) pairs, c fastest.
  void add_pairs(double* filter_row) {
    const std::int64_t S = pb_.axis[2].taps, c_count = tile_.c.size(), total = S * c_count;
    const std::int64_t blocks = ceil_div(total, isa_.max_m);
    for (std::int64_t b = 0; b < blocks; ++b) {
      const Range range = {total * b / blocks, total * (b + 1) / blocks};
      const std::int64_t m = range.size();
      for (std::int64_t i = 0; i < m; ++i) {
        rows_[i] = {(range.begin + i) / c_count, tile_.c.begin + (range.begin + i) % c_count};
      }
      for (std::int64_t row = 0; row < row_count_; ++row) {
        runs_[row].x = row * q_count_ * m;
        pack_pairs(row_start_[row], m, x_panel_ + row * q_count_ * m);
      }
      multiply(m, x_panel_, m, filter_row);
    }
  }

  void pack_pairs(std::int64_t row_start, std::int64_t m, Acc* panel) const {
    const SpatialAxis& w = pb_.axis[2];
    const std::int64_t stride = block_.x_strides.spatial[2];
    for (std::int64_t i = 0, next = 0; i < m; i = next) {
      while (next < m && rows_[next].s == rows_[i].s) ++next;  // neighbouring c of one tap
      const Range inside = intersect(box_[3], outputs_inside(w, rows_[i].s));
      zero_pairs(panel + i, m, next - i, {0, inside.begin - box_[3].begin});
      zero_pairs(panel + i, m, next - i, {inside.end - box_[3].begin, q_count_});
      if (inside.size() <= 0) continue;
      const std::int64_t offset = row_start + input_position(w, inside.begin, rows_[i].s) * stride +
                                  (first_channel_ + rows_[i].c) * block_.x_strides.c;
      isa_.pack(source(block_.x, offset, stride * w.stride, block_.x_strides.c), inside.size(),
                static_cast<int>(next - i), static_cast<int>(m),
                panel + (inside.begin - box_[3].begin) * m + i);
    }
  }

  static void zero_pairs(Acc* panel, std::int64_t m, std::int64_t count, Range q) {
    for (std::int64_t i = q.begin; i < q.end; ++i) std::fill_n(panel + i * m, count, Acc{0});
  }

  // rows_[0 .. m) of the register tile against every dy panel.
  void multiply(std::int64_t m, const Acc* x, std::int64_t x_pixel, double* filter_row) {
    double* out[kMostM];
    std::int64_t panel = 0;
    for (std::int64_t k = tile_.k.begin; k < tile_.k.end; k += isa_.n, ++panel) {
      for (std::int64_t i = 0; i < m; ++i) {
        out[i] = filter_row + (rows_[i].s * pb_.group_c() + rows_[i].c) * pb_.K + k;
      }
      const auto columns = static_cast<int>(std::min<std::int64_t>(isa_.n, tile_.k.end - k));
      isa_.multiply(static_cast<int>(m), columns, x, x_pixel, dy_panels_ + panel * panel_elements(),
                    runs_, row_count_, q_count_, out);
    }
  }

  const OuterProductIsa<Acc>& isa_;
  const WgradProblem& pb_;
  const Block& block_;
  const Tile& tile_;
  const bool pairs_;
  const std::int64_t first_channel_;
  Acc* dy_panels_;
  Acc* x_panel_;
  PixelBox box_;
  std::int64_t q_count_ = 0;
  std::int64_t row_count_ = 0;
  PanelRun runs_[kMaxChunkPixels];
  std::int64_t row_start_[kMaxChunkPixels];
  Pair rows_[kMostM];
};

std::vector<Tile> tiles(const WgradProblem& problem) {
  const Steps steps = tile_steps(problem);
  const Range taps = {0, problem.taps()};
  std::vector<Tile> result;
  for (std::int64_t g = 0; g < problem.groups; ++g) {
    const std::int64_t g_end = (g + 1) * problem.group_k();
    for (std::int64_t k = g * problem.group_k(); k < g_end; k += steps.k) {
      for (std::int64_t c = 0; c < problem.group_c(); c += steps.c) {
        result.push_back({taps,
                          {c, std::min(c + steps.c, problem.group_c())},
                          {k, std::min(k + steps.k, g_end)}});
      }
    }
  }
  return result;
}

std::int64_t workspace_bytes(const WgradProblem& problem) {
  const Steps steps = tile_steps(problem);
  // direct_chunk() works in the same space when dy is not finite.
  return std::max(workspace_elements(problem), kMaxChunkPixels * (steps.c + steps.k)) *
         dtype_bytes(accumulator_dtype(problem.dtype));
}

template <const OuterProductSet& set>
void accumulate(const WgradProblem& problem, const ChunkGrid& grid, const Block& block,
                const ChunkRun& run, const Tile& tile, std::byte* workspace, double* partial) {
  with_scalar(problem.dtype, [&](auto scalar) {
    using Scalar = decltype(scalar);
    using Acc = std::conditional_t<std::is_same_v<Scalar, double>, double, float>;
    OuterProductTile<Scalar, Acc> work(isa_of<Acc>(set), problem, block, tile,
                                       reinterpret_cast<Acc*>(workspace));
    add_chunks(work, problem, grid, block, run, tile, workspace, partial);
  });
}

// Multiply-adds a second of a full register tile on one core.
double seconds(const WgradProblem& problem, double peak, std::int64_t max_m, std::int64_t lanes) {
  if (problem.dtype == DType::f64) {
    peak /= 2;
    lanes /= 2;
  }
  const std::int64_t k = problem.group_k();
  const double k_used = static_cast<double>(k) / static_cast<double>(round_up(k, lanes));
  const std::int64_t rows =
      packs_pairs(problem) ? problem.axis[2].taps * problem.group_c() : problem.group_c();
  // A tile of few rows waits for its own sums: 8 of them hide the latency of a multiply-add.
  const double m = static_cast<double>(rows) / static_cast<double>(ceil_div(rows, max_m));
  const double m_used = m / (m + 1);
  const double pixels = static_cast<double>(term_count(problem));
  const double cells = static_cast<double>(problem.dw_count());
  const double packing = packs_pairs(problem) ? 1 : 1 / static_cast<double>(problem.axis[2].taps);
  return pixels * cells / (peak * k_used * m_used) +
         pixels * cells / static_cast<double>(k) * packing * 0.3e-9;
}

std::string why_not_avx512(const WgradProblem&, const Machine& machine) {
  return lacks_avx512(machine);
}
std::string why_not_avx2(const WgradProblem&, const Machine& machine) {
  return lacks_avx2(machine);
}
std::string why_not_portable(const WgradProblem&, const Machine&) { return ""; }

}  // namespace

const Kernel kOuterProductAvx512Kernel = {
    "outer_product_avx512",
    "sums of outer products from packed panels, 14 x 32 in registers; AVX-512",
    why_not_avx512,
    [](const WgradProblem& pb) { return seconds(pb, 60e9, 14, 32); },
    tiles,
    workspace_bytes,
    accumulate<kOuterProductAvx512>};

const Kernel kOuterProductAvx2Kernel = {
    "outer_product_avx2",
    "the same, 6 x 16 in registers; AVX2 and FMA",
    why_not_avx2,
    [](const WgradProblem& pb) { return seconds(pb, 35e9, 6, 16); },
    tiles,
    workspace_bytes,
    accumulate<kOuterProductAvx2>};

const Kernel kOuterProductKernel = {"outer_product",
                                    "the same, 6 x 8 in registers; any processor",
                                    why_not_portable,
                                    [](const WgradProblem& pb) { return seconds(pb, 9e9, 6, 8); },
                                    tiles,
                                    workspace_bytes,
                                    accumulate<kOuterProductPortable>};

}  // namespace convgrad
