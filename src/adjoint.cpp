// adjoint.cpp - see adjoint.hpp.
#include "convgrad/adjoint.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <random>

namespace convgrad {
namespace {

constexpr int kVectors = 16;
// Projected positions that are kept at a time; at least those of one group.
constexpr std::int64_t kProjectionBytes = std::int64_t{32} << 20;

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

// Groups whose projections are made at a time.
std::int64_t group_batch(const WgradProblem& pb, std::int64_t x_positions,
                         std::int64_t dy_positions) {
  const std::int64_t each =
      (x_positions + dy_positions) * (vector_count(pb) + 1) * acc_bytes(pb.dtype);
  return std::clamp<std::int64_t>(kProjectionBytes / std::max<std::int64_t>(each, 1), 1, pb.groups);
}

// One tensor's part of a block: images of positions of channels.
struct Part {
  const void* data;
  Strides strides;
  std::array<std::int64_t, 3> extent;
  std::int64_t positions() const { return extent[0] * extent[1] * extent[2]; }
};

// sums[position][group][v] = sum over the group's channels of sign[channel][v] * value, and the
// squares' sums, for some groups of one image.
template <typename Acc>
struct Projection {
  std::vector<Acc> sums, squares;

  template <typename Scalar>
  void make(const Part& part, std::int64_t image, Range groups, std::int64_t channels,
            const std::vector<Acc>& signs, int vectors, TaskPool& pool) {
    const auto cells = static_cast<std::size_t>(part.positions() * groups.size());
    sums.assign(cells * static_cast<std::size_t>(vectors), 0);
    squares.assign(cells, 0);
    const auto* base = static_cast<const Scalar*>(part.data) + image * part.strides.n;
    pool.run(part.extent[0] * part.extent[1], [&](std::int64_t row, int) {
      const Scalar* line = base + row / part.extent[1] * part.strides.spatial[0] +
                           row % part.extent[1] * part.strides.spatial[1];
      for (std::int64_t w = 0; w < part.extent[2]; ++w) {
        for (std::int64_t g = groups.begin; g < groups.end; ++g) {
          const std::int64_t cell = (row * part.extent[2] + w) * groups.size() + g - groups.begin;
          Acc* sum = sums.data() + cell * vectors;
          Acc square = 0;
          for (std::int64_t channel = g * channels; channel < (g + 1) * channels; ++channel) {
            const Acc value = static_cast<Acc>(
                to_double(line[w * part.strides.spatial[2] + channel * part.strides.c]));
            const Acc* sign = signs.data() + channel * vectors;
            for (int v = 0; v < vectors; ++v) sum[v] += sign[v] * value;
            square += value * value;
          }
          squares[static_cast<std::size_t>(cell)] = square;
        }
      }
    });
  }
};

// For one tap and one group: <dY, conv(X, V)> for each V, and the squares of all that it sees.
template <typename Acc>
struct TapSums {
  std::vector<Acc> right;
  Acc x_squares = 0, dy_squares = 0;
};

template <typename Acc>
class Sums {
 public:
  Sums(const WgradProblem& pb, TaskPool& pool, std::uint64_t seed)
      : pb_(pb), pool_(pool), vectors_(vector_count(pb)) {
    std::mt19937_64 random(seed);
    draw(random, pb.C, x_signs_);
    draw(random, pb.K, dy_signs_);
    taps_.resize(static_cast<std::size_t>(pb.groups * pb.taps()));
    for (TapSums<Acc>& tap : taps_) tap.right.resize(static_cast<std::size_t>(vectors_));
  }

  template <typename Scalar>
  void add(const Block& block, const std::function<void(std::int64_t, std::int64_t)>& progress) {
    const std::int64_t images = block.pixels[0].size();
    const auto& in = block.input;
    const Part x = {block.x, block.x_strides, {in[0].size(), in[1].size(), in[2].size()}};
    const auto& out = block.pixels;
    const Part dy = {block.dy, block.dy_strides, {out[1].size(), out[2].size(), out[3].size()}};
    const std::int64_t step = group_batch(pb_, x.positions(), dy.positions());
    for (std::int64_t image = 0; image < images; ++image) {
      for (std::int64_t g = 0; g < pb_.groups; g += step) {
        const Range groups = {g, std::min(g + step, pb_.groups)};
        x_.template make<Scalar>(x, image, groups, pb_.group_c(), x_signs_, vectors_, pool_);
        dy_.template make<Scalar>(dy, image, groups, pb_.group_k(), dy_signs_, vectors_, pool_);
        const std::int64_t taps = pb_.taps();
        pool_.run(groups.size() * taps, [&](std::int64_t task, int) {
          add_tap(block, groups, groups.begin + task / taps, task % taps);
        });
      }
      if (progress) progress(image + 1, images);
    }
  }

  AdjointVerdict judge(std::span<const double> got, const ErrorModel& model) const;

 private:
  void draw(std::mt19937_64& random, std::int64_t channels, std::vector<Acc>& signs) const {
    signs.resize(static_cast<std::size_t>(channels * vectors_));
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      const std::uint64_t bits = random() >> 7;
      for (int v = 0; v < vectors_; ++v) {
        signs[static_cast<std::size_t>(channel * vectors_ + v)] = (bits >> v & 1) != 0 ? -1 : 1;
      }
    }
  }

  const TapSums<Acc>& tap_sums(std::int64_t group, std::int64_t tap) const {
    return taps_[static_cast<std::size_t>(group * pb_.taps() + tap)];
  }

  void add_tap(const Block& block, Range groups, std::int64_t group, std::int64_t tap);
  // The signs of V as bits: 1 where b[c]*e[k] is negative.
  std::uint32_t pattern(const std::vector<Acc>& signs, std::int64_t channel) const {
    std::uint32_t bits = 0;
    for (int v = 0; v < vectors_; ++v) {
      const Acc sign = signs[static_cast<std::size_t>(channel * vectors_ + v)];
      bits |= sign < 0 ? std::uint32_t{1} << v : 0;
    }
    return bits;
  }
  std::vector<Acc> left_sides(std::span<const double> got, std::int64_t group, std::int64_t tap,
                              double& norm) const;
  double bound(const TapSums<Acc>& tap, double norm, const ErrorModel& model) const;
  void add_suspects(std::int64_t group, std::int64_t tap, const std::vector<double>& errors,
                    double bound, AdjointVerdict& verdict) const;

  const WgradProblem& pb_;
  TaskPool& pool_;
  const int vectors_;
  std::vector<Acc> x_signs_, dy_signs_;  // [channel][v]
  std::vector<TapSums<Acc>> taps_;       // [group][tap]
  Projection<Acc> x_, dy_;
};

template <typename Acc>
void Sums<Acc>::add_tap(const Block& block, Range groups, std::int64_t group, std::int64_t tap) {
  const auto& [ad, ah, aw] = pb_.axis;
  const std::int64_t t = tap / aw.taps / ah.taps, r = tap / aw.taps % ah.taps, s = tap % aw.taps;
  TapSums<Acc>& sums = taps_[static_cast<std::size_t>(group * pb_.taps() + tap)];
  const auto& [in_d, in_h, in_w] = block.input;
  const auto& out = block.pixels;
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
        const std::int64_t x_cell = position * groups.size() + group - groups.begin;
        const std::int64_t dy_cell = pixel * groups.size() + group - groups.begin;
        const Acc* x = x_.sums.data() + x_cell * vectors_;
        const Acc* dy = dy_.sums.data() + dy_cell * vectors_;
        for (int v = 0; v < vectors_; ++v) sums.right[static_cast<std::size_t>(v)] += x[v] * dy[v];
        sums.x_squares += x_.squares[static_cast<std::size_t>(x_cell)];
        sums.dy_squares += dy_.squares[static_cast<std::size_t>(dy_cell)];
      }
    }
  }
}

// <dW, V> for each V, and the norm of the tap's and group's part of dW.
template <typename Acc>
std::vector<Acc> Sums<Acc>::left_sides(std::span<const double> got, std::int64_t group,
                                       std::int64_t tap, double& norm) const {
  const std::int64_t Cg = pb_.group_c(), Kg = pb_.group_k();
  const auto vectors = static_cast<std::size_t>(vectors_);
  std::vector<Acc> left(vectors), inner(vectors);
  Acc squares = 0;
  for (std::int64_t c = 0; c < Cg; ++c) {
    std::fill(inner.begin(), inner.end(), Acc{0});
    for (std::int64_t k = group * Kg; k < (group + 1) * Kg; ++k) {
      const Acc value = got[static_cast<std::size_t>((tap * Cg + c) * pb_.K + k)];
      const Acc* sign = dy_signs_.data() + k * vectors_;
      for (std::size_t v = 0; v < vectors; ++v) inner[v] += sign[v] * value;
      squares += value * value;
    }
    const Acc* sign = x_signs_.data() + (group * Cg + c) * vectors_;
    for (std::size_t v = 0; v < vectors; ++v) left[v] += sign[v] * inner[v];
  }
  norm = std::sqrt(static_cast<double>(squares));
  return left;
}

template <typename Acc>
double Sums<Acc>::bound(const TapSums<Acc>& tap, double norm, const ErrorModel& model) const {
  const double terms = static_cast<double>(model.terms);
  const double Cg = static_cast<double>(pb_.group_c()), Kg = static_cast<double>(pb_.group_k());
  const double sizes =
      std::sqrt(static_cast<double>(tap.x_squares)) * std::sqrt(static_cast<double>(tap.dy_squares));
  const double underflow =
      0.5 * smallest_subnormal(model.out) + terms * smallest_subnormal(model.accumulator);
  const double gradient = unit_roundoff(model.out) * norm +
                          std::sqrt(terms) * unit_roundoff(model.accumulator) * sizes +
                          std::sqrt(Cg * Kg) * underflow;
  const double evaluation =
      evaluation_roundoff(pb_.dtype) *
      ((std::sqrt(Cg) + std::sqrt(Kg) + std::sqrt(terms)) * std::sqrt(Cg * Kg) * sizes +
       Cg * Kg * norm);
  return kBoundFactor * (gradient + evaluation);
}

// If every V is off by the same amount, one wrong entry can be the reason: the signs tell which.
template <typename Acc>
void Sums<Acc>::add_suspects(std::int64_t group, std::int64_t tap,
                             const std::vector<double>& errors, double bound,
                             AdjointVerdict& verdict) const {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  std::uint32_t signs = 0;
  for (std::size_t v = 0; v < errors.size(); ++v) {
    least = std::min(least, std::fabs(errors[v]));
    most = std::max(most, std::fabs(errors[v]));
    signs |= errors[v] < 0 ? std::uint32_t{1} << v : 0;
  }
  if (!(least > bound && most - least <= 2 * bound)) return;
  const std::uint32_t all = (std::uint32_t{1} << vectors_) - 1;
  const std::int64_t Cg = pb_.group_c(), Kg = pb_.group_k();
  for (std::int64_t c = 0; c < Cg; ++c) {
    const std::uint32_t of_c = pattern(x_signs_, group * Cg + c);
    for (std::int64_t k = group * Kg; k < (group + 1) * Kg; ++k) {
      const std::uint32_t difference = of_c ^ pattern(dy_signs_, k) ^ signs;
      if (difference != 0 && difference != all) continue;
      if (verdict.suspects.size() == kMaxAdjointSuspects) return;
      verdict.suspects.push_back((tap * Cg + c) * pb_.K + k);
    }
  }
}

[[noreturn]] void cannot_tell(const std::string& why) {
  throw Error(ErrorKind::unavailable,
              cat("--reference adjoint: ", why, "; use --sample or --reference full"));
}

template <typename Acc>
AdjointVerdict Sums<Acc>::judge(std::span<const double> got, const ErrorModel& model) const {
  AdjointVerdict verdict;
  verdict.vectors = vectors_;
  verdict.taps.resize(static_cast<std::size_t>(pb_.taps()));
  for (const double value : got) {
    verdict.nonfinite.nan += std::isnan(value) ? 1 : 0;
    verdict.nonfinite.inf += std::isinf(value) ? 1 : 0;
    if (std::isfinite(value)) {
      verdict.largest_entry = std::max(verdict.largest_entry, std::fabs(value));
    }
  }
  for (std::int64_t group = 0; group < pb_.groups; ++group) {
    for (std::int64_t tap = 0; tap < pb_.taps(); ++tap) {
      const TapSums<Acc>& sums = tap_sums(group, tap);
      const double sizes = std::sqrt(static_cast<double>(sums.x_squares)) *
                           std::sqrt(static_cast<double>(sums.dy_squares));
      if (!std::isfinite(sizes)) cannot_tell("x or dy hold NaN or Inf, or sums overflow");
      if (verdict.nonfinite.inf > 0 && !(sizes < largest_finite(model.out))) {
        cannot_tell("the gradient holds infinities, which may be overflows that are due");
      }
      double norm = 0;
      const std::vector<Acc> left = left_sides(got, group, tap, norm);
      const double limit = bound(sums, norm, model);
      std::vector<double> errors;
      AdjointTap& of_tap = verdict.taps[static_cast<std::size_t>(tap)];
      std::int64_t failures = 0;
      for (std::size_t v = 0; v < left.size(); ++v) {
        const auto error = static_cast<double>(left[v] - sums.right[v]);
        const double ratio = error == 0 ? 0 : std::fabs(error) / limit;
        const bool pass = ratio <= 1;
        errors.push_back(error);
        failures += pass ? 0 : 1;
        ++verdict.equalities;
        verdict.all_zero = verdict.all_zero && sums.right[v] == 0;
        of_tap.max_error = std::max(of_tap.max_error, std::fabs(error));
        of_tap.max_ratio = std::max(of_tap.max_ratio, ratio);
        if (verdict.worst.bound == 0 || !(ratio <= verdict.worst_ratio)) {
          verdict.worst_ratio = ratio;
          verdict.worst = {tap, group, static_cast<double>(left[v]),
                           static_cast<double>(sums.right[v]), limit};
        }
      }
      of_tap.failures += failures;
      verdict.failures += failures;
      verdict.certain_error = std::max(verdict.certain_error, 2 * limit);
      if (failures > 0) add_suspects(group, tap, errors, limit, verdict);
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

void AdjointSum::add(const Block& block,
                     const std::function<void(std::int64_t, std::int64_t)>& progress) {
  if (state_->wide) return state_->wide->add<double>(block, progress);
  switch (state_->problem.dtype) {
    case DType::f16:
      return state_->narrow->add<Half>(block, progress);
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
  for (int a = 0; a < 3; ++a) {
    const SpatialAxis& axis = pb.axis[static_cast<std::size_t>(a)];
    const int split = plan.blocks.axis - 1;  // the spatial axis that blocks cut, -1 for images
    const std::int64_t out = a < split ? 1 : a == split ? plan.blocks.step : axis.out;
    const std::int64_t reach = (out - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1;
    dy *= out;
    x *= a > split ? axis.in : std::min(axis.in, reach);
  }
  const std::int64_t vectors = vector_count(pb), acc = acc_bytes(pb.dtype);
  const std::int64_t projected = (x + dy) * group_batch(pb, x, dy) * (vectors + 1) * acc;
  const std::int64_t kept = pb.groups * pb.taps() * (vectors + 8) * acc;
  return projected + kept + (pb.C + pb.K) * vectors * acc;
}

}  // namespace convgrad
