// adjoint.cpp - see adjoint.hpp.
#include "check/adjoint.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <random>

#include "base/integers.hpp"

namespace convgrad {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kVectors = 8;
constexpr std::int64_t kBlockChannels = 16;
// Projected positions that are kept at a time; at least those of one group.
constexpr std::int64_t kProjectionBytes = std::int64_t{32} << 20;

std::int64_t blocks_of(std::int64_t channels) { return ceil_div(channels, kBlockChannels); }
Range block_range(std::int64_t block, std::int64_t channels) {
  return {block * kBlockChannels, std::min((block + 1) * kBlockChannels, channels)};
}

// With one channel on either side, every V is the same up to its sign.
int vector_count(const WgradProblem& pb) {
  return pb.group_c() == 1 && pb.group_k() == 1 ? 1 : kVectors;
}

// float64 data is summed in long double, so that this sum's own error stays below the gradient's.
std::int64_t acc_bytes(DType dtype) {
  return static_cast<std::int64_t>(dtype == DType::f64 ? sizeof(long double) : sizeof(double));
}

double evaluation_roundoff(DType dtype) {
  return dtype == DType::f64 ? static_cast<double>(std::numeric_limits<long double>::epsilon()) / 2
                             : unit_roundoff(DType::f64);
}

// Bytes of the projections of one group.
std::int64_t projection_bytes(const WgradProblem& pb, std::int64_t x_positions,
                              std::int64_t dy_positions) {
  const std::int64_t blocks =
      x_positions * blocks_of(pb.group_c()) + dy_positions * blocks_of(pb.group_k());
  return blocks * (vector_count(pb) + 1) * acc_bytes(pb.dtype);
}

// Groups whose projections are made at a time.
std::int64_t group_batch(const WgradProblem& pb, std::int64_t x_positions,
                         std::int64_t dy_positions) {
  const std::int64_t each = projection_bytes(pb, x_positions, dy_positions);
  return std::clamp<std::int64_t>(kProjectionBytes / std::max<std::int64_t>(each, 1), 1, pb.groups);
}

// One tensor's part of a block: images of positions of channels.
struct Part {
  const void* data;
  Strides strides;
  std::array<std::int64_t, 3> extent;
  std::int64_t channels;  // of a group
  std::int64_t positions() const { return extent[0] * extent[1] * extent[2]; }
};

// sums[position][group][block][v] = sum over the block's channels of sign[channel][v] * value, and
// the squares' sums, for some groups of one image.
template <typename Acc>
struct Projection {
  std::vector<Acc> sums, squares;
  std::int64_t blocks = 1, cells = 1;  // of a group, and of a position

  template <typename Scalar>
  void make(const Part& part, std::int64_t image, Range groups, const std::vector<Acc>& signs,
            int vectors, TaskPool& pool) {
    blocks = blocks_of(part.channels);
    cells = blocks * groups.size();
    sums.assign(static_cast<std::size_t>(part.positions() * cells * vectors), 0);
    squares.assign(static_cast<std::size_t>(part.positions() * cells), 0);
    const auto* base = static_cast<const Scalar*>(part.data) + image * part.strides.n;
    pool.run(part.extent[0] * part.extent[1], [&](std::int64_t row, int) {
      const Scalar* line = base + row / part.extent[1] * part.strides.spatial[0] +
                           row % part.extent[1] * part.strides.spatial[1];
      for (std::int64_t w = 0; w < part.extent[2]; ++w) {
        std::int64_t cell = (row * part.extent[2] + w) * cells;
        for (std::int64_t g = groups.begin; g < groups.end; ++g) {
          for (std::int64_t block = 0; block < blocks; ++block, ++cell) {
            const Range range = block_range(block, part.channels);
            Acc square = 0;
            for (std::int64_t c = range.begin; c < range.end; ++c) {
              const std::int64_t channel = g * part.channels + c;
              const Acc value = static_cast<Acc>(
                  to_double(line[w * part.strides.spatial[2] + channel * part.strides.c]));
              const Acc* sign = signs.data() + channel * vectors;
              Acc* sum = sums.data() + cell * vectors;
              for (int v = 0; v < vectors; ++v) sum[v] += sign[v] * value;
              square += value * value;
            }
            squares[static_cast<std::size_t>(cell)] = square;
          }
        }
      }
    });
  }
};

[[noreturn]] void cannot_tell(const std::string& why) {
  throw Error(ErrorKind::unavailable,
              cat("--reference adjoint: ", why, "; use --sample or --reference full"));
}

template <typename Acc>
class Sums {
 public:
  Sums(const WgradProblem& pb, TaskPool& pool, std::uint64_t seed)
      : pb_(pb),
        pool_(pool),
        vectors_(vector_count(pb)),
        c_blocks_(blocks_of(pb.group_c())),
        k_blocks_(blocks_of(pb.group_k())) {
    std::mt19937_64 random(seed);
    draw_signs(random, pb.C, x_signs_);
    draw_signs(random, pb.K, dy_signs_);
    const std::int64_t rows = pb.groups * pb.taps() * c_blocks_;
    right_.resize(static_cast<std::size_t>(rows * k_blocks_ * vectors_));
    x_squares_.resize(static_cast<std::size_t>(rows));
    dy_squares_.resize(static_cast<std::size_t>(rows * k_blocks_));
  }

  template <typename Scalar>
  void add(const Block& block, const std::function<void(std::int64_t, std::int64_t)>& progress) {
    const std::int64_t images = block.pixels[0].size();
    const auto& [d, h, w] = block.input;
    const auto& out = block.pixels;
    const Part x = {block.x, block.x_strides, {d.size(), h.size(), w.size()}, pb_.group_c()};
    const Part dy = {
        block.dy, block.dy_strides, {out[1].size(), out[2].size(), out[3].size()}, pb_.group_k()};
    const std::int64_t step = group_batch(pb_, x.positions(), dy.positions());
    for (std::int64_t image = 0; image < images; ++image) {
      for (std::int64_t g = 0; g < pb_.groups; g += step) {
        const Range groups = {g, std::min(g + step, pb_.groups)};
        x_.template make<Scalar>(x, image, groups, x_signs_, vectors_, pool_);
        dy_.template make<Scalar>(dy, image, groups, dy_signs_, vectors_, pool_);
        const std::int64_t rows = pb_.taps() * c_blocks_;
        pool_.run(groups.size() * rows,
                  [&](std::int64_t row, int) { add_row(block, groups, g * rows + row); });
      }
      if (progress) progress(image + 1, images);
    }
  }

  AdjointVerdict judge(std::span<const double> got, const ErrorModel& model) const;

 private:
  // One tap and block; row counts groups, taps and blocks of c.
  struct Cell {
    std::int64_t group, tap, row;
    Range c, k;  // within a group, over all
    std::int64_t k_block;
  };

  void draw_signs(std::mt19937_64& random, std::int64_t channels, std::vector<Acc>& signs) const {
    signs.resize(static_cast<std::size_t>(channels * vectors_));
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      const std::uint64_t bits = random() >> 7;
      for (int v = 0; v < vectors_; ++v) {
        signs[static_cast<std::size_t>(channel * vectors_ + v)] = (bits >> v & 1) != 0 ? -1 : 1;
      }
    }
  }

  // The signs of a channel as bits: 1 where they are negative.
  std::uint32_t pattern(const std::vector<Acc>& signs, std::int64_t channel) const {
    std::uint32_t bits = 0;
    for (int v = 0; v < vectors_; ++v) {
      const Acc sign = signs[static_cast<std::size_t>(channel * vectors_ + v)];
      bits |= sign < 0 ? std::uint32_t{1} << v : 0;
    }
    return bits;
  }

  Cell cell(std::int64_t row, std::int64_t k_block) const {
    Cell result;
    result.row = row;
    result.k_block = k_block;
    result.c = block_range(row % c_blocks_, pb_.group_c());
    result.tap = row / c_blocks_ % pb_.taps();
    result.group = row / c_blocks_ / pb_.taps();
    const Range k = block_range(k_block, pb_.group_k());
    result.k = {result.group * pb_.group_k() + k.begin, result.group * pb_.group_k() + k.end};
    return result;
  }

  void add_row(const Block& block, Range groups, std::int64_t row);
  std::vector<Acc> left_sides(std::span<const double> got, const Cell& cell, double& norm) const;
  double sizes(const Cell& cell) const {
    const auto x = static_cast<std::size_t>(cell.row);
    const auto dy = static_cast<std::size_t>(cell.row * k_blocks_ + cell.k_block);
    return std::sqrt(static_cast<double>(x_squares_[x])) *
           std::sqrt(static_cast<double>(dy_squares_[dy]));
  }
  double bound(const Cell& cell, double norm, const ErrorModel& model) const;
  void judge_cell(const Cell& cell, std::span<const double> got, const ErrorModel& model,
                  AdjointVerdict& verdict) const;
  void add_suspects(const Cell& cell, const std::vector<double>& errors, double bound,
                    AdjointVerdict& verdict) const;

  const WgradProblem& pb_;
  TaskPool& pool_;
  const int vectors_;
  const std::int64_t c_blocks_, k_blocks_;  // of a group
  std::vector<Acc> x_signs_, dy_signs_;     // [channel][v]
  std::vector<Acc> right_;                  // [row][k_block][v]
  // Sums of squares of what a tap sees: [row] and [row][k_block].
  std::vector<Acc> x_squares_, dy_squares_;
  Projection<Acc> x_, dy_;
};

template <typename Acc>
void Sums<Acc>::add_row(const Block& block, Range groups, std::int64_t row) {
  const auto& [ad, ah, aw] = pb_.axis;
  const Cell at = cell(row, 0);
  const std::int64_t t = at.tap / aw.taps / ah.taps, r = at.tap / aw.taps % ah.taps,
                     s = at.tap % aw.taps;
  Acc* right = right_.data() + row * k_blocks_ * vectors_;
  Acc* dy_squares = dy_squares_.data() + row * k_blocks_;
  const auto& [in_d, in_h, in_w] = block.input;
  const auto& out = block.pixels;
  const std::int64_t x_cell = (at.group - groups.begin) * c_blocks_ + row % c_blocks_;
  const std::int64_t dy_cell = (at.group - groups.begin) * k_blocks_;
  std::int64_t pixel = -1;
  for (std::int64_t z = out[1].begin; z < out[1].end; ++z) {
    for (std::int64_t p = out[2].begin; p < out[2].end; ++p) {
      for (std::int64_t q = out[3].begin; q < out[3].end; ++q) {
        ++pixel;
        const std::int64_t d = z * ad.stride - ad.pad_before + t * ad.dilation;
        const std::int64_t h = p * ah.stride - ah.pad_before + r * ah.dilation;
        const std::int64_t w = q * aw.stride - aw.pad_before + s * aw.dilation;
        if (d < 0 || d >= ad.in || h < 0 || h >= ah.in || w < 0 || w >= aw.in) continue;
        const std::int64_t position =
            ((d - in_d.begin) * in_h.size() + h - in_h.begin) * in_w.size() + w - in_w.begin;
        const std::int64_t x_at = position * x_.cells + x_cell;
        const std::int64_t dy_at = pixel * dy_.cells + dy_cell;
        const Acc* x = x_.sums.data() + x_at * vectors_;
        const Acc* dy = dy_.sums.data() + dy_at * vectors_;
        for (std::int64_t b = 0; b < k_blocks_; ++b) {
          for (int v = 0; v < vectors_; ++v) right[b * vectors_ + v] += x[v] * dy[b * vectors_ + v];
          dy_squares[b] += dy_.squares[static_cast<std::size_t>(dy_at + b)];
        }
        x_squares_[static_cast<std::size_t>(row)] += x_.squares[static_cast<std::size_t>(x_at)];
      }
    }
  }
}

// <dW, V> for each V, and the norm of that part of dW.
template <typename Acc>
std::vector<Acc> Sums<Acc>::left_sides(std::span<const double> got, const Cell& cell,
                                       double& norm) const {
  const auto vectors = static_cast<std::size_t>(vectors_);
  std::vector<Acc> left(vectors), inner(vectors);
  long double squares = 0;  // of what float64 holds, they fit in its exponents
  for (std::int64_t c = cell.c.begin; c < cell.c.end; ++c) {
    std::fill(inner.begin(), inner.end(), Acc{0});
    for (std::int64_t k = cell.k.begin; k < cell.k.end; ++k) {
      const std::int64_t index = (cell.tap * pb_.group_c() + c) * pb_.K + k;
      const Acc value = got[static_cast<std::size_t>(index)];
      const Acc* sign = dy_signs_.data() + k * vectors_;
      for (std::size_t v = 0; v < vectors; ++v) inner[v] += sign[v] * value;
      squares += static_cast<long double>(value) * value;
    }
    const Acc* sign = x_signs_.data() + (cell.group * pb_.group_c() + c) * vectors_;
    for (std::size_t v = 0; v < vectors; ++v) left[v] += sign[v] * inner[v];
  }
  norm = static_cast<double>(std::sqrt(squares));
  return left;
}

template <typename Acc>
double Sums<Acc>::bound(const Cell& cell, double norm, const ErrorModel& model) const {
  const double terms = static_cast<double>(model.terms), size = sizes(cell);
  const double C = static_cast<double>(cell.c.size()), K = static_cast<double>(cell.k.size());
  const double underflow =
      0.5 * smallest_subnormal(model.out) + terms * smallest_subnormal(model.accumulator);
  const double gradient = unit_roundoff(model.out) * norm +
                          std::sqrt(terms) * unit_roundoff(model.accumulator) * size +
                          std::sqrt(C * K) * underflow;
  const double u = evaluation_roundoff(pb_.dtype);  // first, so that nothing overflows
  const double evaluation =
      u * (std::sqrt(C) + std::sqrt(K) + std::sqrt(terms)) * std::sqrt(C * K) * size +
      u * C * K * norm;
  return kBoundFactor * (gradient + evaluation);
}

// If every V is off by the same amount, one wrong entry can be the reason: the signs tell which.
template <typename Acc>
void Sums<Acc>::add_suspects(const Cell& cell, const std::vector<double>& errors, double bound,
                             AdjointVerdict& verdict) const {
  double least = kInfinity, most = 0;
  std::uint32_t signs = 0;
  for (std::size_t v = 0; v < errors.size(); ++v) {
    least = std::min(least, std::fabs(errors[v]));
    most = std::max(most, std::fabs(errors[v]));
    signs |= errors[v] < 0 ? std::uint32_t{1} << v : 0;
  }
  if (!(least > bound && most - least <= 2 * bound)) return;
  const std::uint32_t all = (std::uint32_t{1} << vectors_) - 1;
  for (std::int64_t c = cell.c.begin; c < cell.c.end; ++c) {
    const std::uint32_t of_c = pattern(x_signs_, cell.group * pb_.group_c() + c);
    for (std::int64_t k = cell.k.begin; k < cell.k.end; ++k) {
      const std::uint32_t difference = of_c ^ pattern(dy_signs_, k) ^ signs;
      if (difference != 0 && difference != all) continue;
      if (verdict.suspects.size() == kMaxAdjointSuspects) return;
      verdict.suspects.push_back((cell.tap * pb_.group_c() + c) * pb_.K + k);
    }
  }
}

template <typename Acc>
void Sums<Acc>::judge_cell(const Cell& cell, std::span<const double> got, const ErrorModel& model,
                           AdjointVerdict& verdict) const {
  if (!std::isfinite(sizes(cell))) cannot_tell("x or dy hold NaN or Inf, or sums overflow");
  if (verdict.nonfinite.inf > 0 && !(sizes(cell) < largest_finite(model.out))) {
    cannot_tell("the gradient holds infinities, which may be overflows that are due");
  }
  double norm = 0;
  const std::vector<Acc> left = left_sides(got, cell, norm);
  const double limit = bound(cell, norm, model);
  if (norm < kInfinity && !(limit < kInfinity)) cannot_tell("the error bound overflows float64");
  const Acc* right = right_.data() + (cell.row * k_blocks_ + cell.k_block) * vectors_;
  AdjointTap& tap = verdict.taps[static_cast<std::size_t>(cell.tap)];
  std::vector<double> errors;
  std::int64_t failures = 0;
  for (std::size_t v = 0; v < left.size(); ++v) {
    auto error = static_cast<double>(left[v] - right[v]);
    if (std::isnan(error)) error = kInfinity;  // maxima would lose it
    const double ratio = error == 0 ? 0 : limit < kInfinity ? std::fabs(error) / limit : kInfinity;
    const bool pass = ratio <= 1;
    errors.push_back(error);
    failures += pass ? 0 : 1;
    ++verdict.equalities;
    verdict.all_zero = verdict.all_zero && right[v] == 0;
    tap.max_error = std::max(tap.max_error, std::fabs(error));
    tap.max_ratio = std::max(tap.max_ratio, ratio);
    if (verdict.equalities == 1 || !(ratio <= verdict.worst_ratio)) {
      verdict.worst_ratio = ratio;
      verdict.worst = {
          cell.tap, cell.c, cell.k, static_cast<double>(left[v]), static_cast<double>(right[v]),
          limit};
    }
  }
  tap.failures += failures;
  verdict.failures += failures;
  verdict.certain_error = std::max(verdict.certain_error, 2 * limit);
  if (failures > 0) add_suspects(cell, errors, limit, verdict);
}

template <typename Acc>
AdjointVerdict Sums<Acc>::judge(std::span<const double> got, const ErrorModel& model) const {
  AdjointVerdict verdict;
  verdict.vectors = vectors_;
  verdict.taps.resize(static_cast<std::size_t>(pb_.taps()));
  long double squares = 0;
  for (const double value : got) {
    verdict.nonfinite.nan += std::isnan(value) ? 1 : 0;
    verdict.nonfinite.inf += std::isinf(value) ? 1 : 0;
    if (std::isfinite(value)) squares += static_cast<long double>(value) * value;
  }
  const auto count = static_cast<long double>(got.size());
  verdict.rms_entry = static_cast<double>(std::sqrt(squares / count));
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(x_squares_.size()); ++row) {
    for (std::int64_t k_block = 0; k_block < k_blocks_; ++k_block) {
      judge_cell(cell(row, k_block), got, model, verdict);
    }
  }
  return verdict;
}

}  // namespace

struct AdjointSum::State {
  const WgradProblem problem;
  std::unique_ptr<Sums<double>> narrow;     // of float16, bfloat16 and float32 data
  std::unique_ptr<Sums<long double>> wide;  // of float64 data
};

AdjointSum::AdjointSum(const WgradProblem& problem, TaskPool& pool, std::uint64_t seed)
    : state_(new State{problem, nullptr, nullptr}) {
  if (problem.dtype == DType::f64) {
    state_->wide = std::make_unique<Sums<long double>>(state_->problem, pool, seed);
  } else {
    state_->narrow = std::make_unique<Sums<double>>(state_->problem, pool, seed);
  }
}

AdjointSum::~AdjointSum() = default;

void AdjointSum::add(const Block& block, std::int64_t, const Progress& progress) {
  if (state_->wide) return state_->wide->add<double>(block, progress);
  switch (state_->problem.dtype) {
    case DType::f16:
      return state_->narrow->add<Float16>(block, progress);
    case DType::bf16:
      return state_->narrow->add<BFloat16>(block, progress);
    default:
      return state_->narrow->add<float>(block, progress);
  }
}

AdjointVerdict AdjointSum::judge(std::span<const double> got, const ErrorModel& model) const {
  return state_->wide ? state_->wide->judge(got, model) : state_->narrow->judge(got, model);
}

std::int64_t AdjointSum::memory_bytes(const Plan& plan) {
  const WgradProblem& pb = plan.problem;
  std::int64_t x = 1, dy = 1;
  const int split =
      plan.schedule.blocks.axis - 1;  // the spatial axis that blocks cut, -1 for images
  for (int a = 0; a < 3; ++a) {
    const SpatialAxis& axis = pb.axis[static_cast<std::size_t>(a)];
    const std::int64_t out = a < split ? 1 : a == split ? plan.schedule.blocks.step : axis.out;
    const std::int64_t reach = (out - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1;
    dy *= out;
    x *= a > split ? axis.in : std::min(axis.in, reach);
  }
  const std::int64_t vectors = vector_count(pb), acc = acc_bytes(pb.dtype);
  const std::int64_t rows = pb.groups * pb.taps() * blocks_of(pb.group_c());
  const std::int64_t kept = rows * (blocks_of(pb.group_k()) * (vectors + 1) + 1) * acc;
  return projection_bytes(pb, x, dy) * group_batch(pb, x, dy) + kept +
         (pb.C + pb.K) * vectors * acc;
}

}  // namespace convgrad
