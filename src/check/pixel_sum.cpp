#include "check/pixel_sum.hpp"

#include <algorithm>
#include <cmath>

#include "check/block_walk.hpp"

namespace convgrad {
namespace {

// A pixel that is left out, or there twice, has -1 or 1 but for what rounding adds.
constexpr double kTimesOff = 0.3;

}  // namespace

PixelSum::PixelSum(const WgradProblem& problem, TaskPool& pool, std::span<const double> errors,
                   std::span<const double> units)
    : problem_(problem), pool_(pool), errors_(errors.size()), squares_(errors.size()) {
  // Units differ from what errors are by one factor, which the errors tell.
  double squares = 0, count = 0, largest = 0;
  const auto is_used = [&](std::size_t i) {
    return std::isfinite(errors[i]) && std::isfinite(units[i]) && units[i] > 0;
  };
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (!is_used(i)) continue;
    const double error = errors[i] / units[i];
    squares += error * error;
    ++count;
    largest = std::max(largest, units[i]);
  }
  if (count == 0) return;
  unit_ = largest;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (!is_used(i)) continue;
    const double unit = units[i] / unit_;
    errors_[i] = static_cast<float>(errors[i] / unit_);
    squares_[i] = static_cast<float>(unit * unit * squares / count);
  }
}

template <typename Scalar>
PixelError PixelSum::line(const Block& block, std::int64_t n, std::int64_t z,
                          std::int64_t p) const {
  const WgradProblem& pb = problem_;
  const auto& [ad, ah, aw] = pb.axis;
  const std::int64_t Cg = pb.group_c(), Kg = pb.group_k();
  std::vector<float> forward(static_cast<std::size_t>(pb.K)), spread(forward.size());
  PixelError worst;
  for (std::int64_t q = block.pixels[3].begin; q < block.pixels[3].end; ++q) {
    std::fill(forward.begin(), forward.end(), 0.0F);
    std::fill(spread.begin(), spread.end(), 0.0F);
    std::vector<double> patch(
        static_cast<std::size_t>(pb.groups));  // sum x^2 of a group's channels
    for (std::int64_t tap = 0; tap < pb.taps(); ++tap) {
      const auto& [t, r, s] = tap_place(pb, tap);
      const std::int64_t d = input_at(ad, z, t), h = input_at(ah, p, r), w = input_at(aw, q, s);
      if (d < 0 || d >= ad.in || h < 0 || h >= ah.in || w < 0 || w >= aw.in) continue;
      const Scalar* const pixel = x_at<Scalar>(block, n, d, h, w);
      for (std::int64_t c = 0; c < pb.C; ++c) {
        const double value = to_double(pixel[c * block.x_strides.c]);
        const std::int64_t group = c / Cg;
        patch[static_cast<std::size_t>(group)] += value * value;
        const auto v = static_cast<float>(value);
        const std::int64_t cell = (tap * Cg + c % Cg) * pb.K + group * Kg;
        const float* const e = errors_.data() + cell;
        const float* const u = squares_.data() + cell;
        float* const f = forward.data() + group * Kg;
        float* const g = spread.data() + group * Kg;
        for (std::int64_t k = 0; k < Kg; ++k) {
          f[k] += v * e[k];
          g[k] += v * v * u[k];
        }
      }
    }
    const Scalar* const out = dy_at<Scalar>(block, n, z, p, q);
    double projection = 0, variance = 0, norm = 0;
    for (std::int64_t k = 0; k < pb.K; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const double value = to_double(out[k * block.dy_strides.c]);
      projection += forward[at] * value;
      variance += spread[at] * value * value;
      norm += patch[at / static_cast<std::size_t>(Kg)] * value * value;
    }
    const double times = projection * unit_ / norm;
    const double spreads = std::fabs(projection) / std::sqrt(variance);
    if (!(std::fabs(std::fabs(times) - 1) <= kTimesOff) || !(spreads > worst.spreads)) continue;
    worst = {((n * ad.out + z) * ah.out + p) * aw.out + q, times, spreads};
  }
  return worst;
}

void PixelSum::add(const Block& block, std::int64_t, const Progress& progress) {
  const Range& z = block.pixels[1];
  const Range& p = block.pixels[2];
  const std::int64_t lines = block.pixels[0].size() * z.size() * p.size();
  std::vector<PixelError> found(static_cast<std::size_t>(lines));
  run_tasks(pool_, problem_.dtype, lines, progress, [&](std::int64_t task, auto scalar) {
    found[static_cast<std::size_t>(task)] =
        line<decltype(scalar)>(block, block.pixels[0].begin + task / p.size() / z.size(),
                               z.begin + task / p.size() % z.size(), p.begin + task % p.size());
  });
  for (const PixelError& each : found) {
    if (each.spreads > worst_.spreads) worst_ = each;
  }
}

}  // namespace convgrad
