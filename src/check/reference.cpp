// reference.cpp - the sum of the definition, term by term. Deliberately plain: its index arithmetic
// is written out here again and not taken from the kernels' helpers.
#include "convgrad/reference.hpp"

#include <atomic>
#include <cmath>

#include "check/compensated.hpp"

namespace convgrad {
namespace {

// One task: a tap and some channels of one group.
struct Part {
  std::int64_t t, r, s, group, c_begin, c_end;
};

struct Sums {
  double* sum;
  double* compensation;  // null unless float64
  double* magnitude;
};

template <typename Scalar>
void add_pixel(const WgradProblem& pb, const Block& block, const Scalar* x, const double* dy,
               const Part& part, const Sums& sums) {
  const std::int64_t Cg = pb.C / pb.groups, Kg = pb.K / pb.groups;
  const std::int64_t tap = (part.t * pb.axis[1].taps + part.r) * pb.axis[2].taps + part.s;
  for (std::int64_t c = part.c_begin; c < part.c_end; ++c) {
    const double value = to_double(x[(part.group * Cg + c) * block.x_strides.c]);
    const std::int64_t cell = (tap * Cg + c) * pb.K + part.group * Kg;
    double* __restrict sum = sums.sum + cell;
    double* __restrict magnitude = sums.magnitude + cell;
    if (sums.compensation != nullptr) {
      double* __restrict compensation = sums.compensation + cell;
      for (std::int64_t k = 0; k < Kg; ++k) {
        add_compensated(value, dy[k], sum[k], compensation[k]);
        magnitude[k] += std::fabs(value * dy[k]);
      }
    } else {
      for (std::int64_t k = 0; k < Kg; ++k) {
        sum[k] += value * dy[k];
        magnitude[k] += std::fabs(value * dy[k]);
      }
    }
  }
}

template <typename Scalar>
void add_part(const WgradProblem& pb, const Block& block, const Part& part, const Sums& sums) {
  const auto* x = static_cast<const Scalar*>(block.x);
  const auto* dy = static_cast<const Scalar*>(block.dy);
  const auto& [ad, ah, aw] = pb.axis;
  const std::int64_t Kg = pb.K / pb.groups;
  std::vector<double> dy_pixel(static_cast<std::size_t>(Kg));
  for (std::int64_t n = block.pixels[0].begin; n < block.pixels[0].end; ++n) {
    for (std::int64_t z = block.pixels[1].begin; z < block.pixels[1].end; ++z) {
      const std::int64_t d = z * ad.stride - ad.pad_before + part.t * ad.dilation;
      if (d < 0 || d >= ad.in) continue;
      for (std::int64_t p = block.pixels[2].begin; p < block.pixels[2].end; ++p) {
        const std::int64_t h = p * ah.stride - ah.pad_before + part.r * ah.dilation;
        if (h < 0 || h >= ah.in) continue;
        for (std::int64_t q = block.pixels[3].begin; q < block.pixels[3].end; ++q) {
          const std::int64_t w = q * aw.stride - aw.pad_before + part.s * aw.dilation;
          if (w < 0 || w >= aw.in) continue;
          const Scalar* dy_at = dy + (n - block.pixels[0].begin) * block.dy_strides.n +
                                (z - block.pixels[1].begin) * block.dy_strides.spatial[0] +
                                (p - block.pixels[2].begin) * block.dy_strides.spatial[1] +
                                (q - block.pixels[3].begin) * block.dy_strides.spatial[2];
          for (std::int64_t k = 0; k < Kg; ++k) {
            dy_pixel[static_cast<std::size_t>(k)] =
                to_double(dy_at[(part.group * Kg + k) * block.dy_strides.c]);
          }
          const Scalar* x_at = x + (n - block.pixels[0].begin) * block.x_strides.n +
                               (d - block.input[0].begin) * block.x_strides.spatial[0] +
                               (h - block.input[1].begin) * block.x_strides.spatial[1] +
                               (w - block.input[2].begin) * block.x_strides.spatial[2];
          add_pixel(pb, block, x_at, dy_pixel.data(), part, sums);
        }
      }
    }
  }
}

}  // namespace

ReferenceSum::ReferenceSum(const WgradProblem& problem, TaskPool& pool)
    : problem_(problem), pool_(pool) {
  const auto count = static_cast<std::size_t>(problem.dw_count());
  try {
    sum_.resize(count);
    magnitude_.resize(count);
    if (problem.dtype == DType::f64) compensation_.resize(count);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::runtime, "out of memory: the reference's sums");
  }
}

void ReferenceSum::add(const Block& block, std::int64_t, const Progress& progress) {
  const std::int64_t Cg = problem_.C / problem_.groups, taps = problem_.taps();
  // Enough parts to keep the threads busy; how many has no influence on any element's sum.
  const std::int64_t parts_wanted = std::int64_t{8} * pool_.threads();
  const std::int64_t whole = taps * problem_.groups;
  const std::int64_t c_parts = std::min(Cg, (parts_wanted + whole - 1) / whole);
  const Sums sums = {sum_.data(), compensation_.empty() ? nullptr : compensation_.data(),
                     magnitude_.data()};
  std::atomic<std::int64_t> done{0};
  pool_.run(whole * c_parts, [&](std::int64_t task, int) {
    const std::int64_t i = task % c_parts, tap = task / c_parts % taps;
    const std::int64_t S = problem_.axis[2].taps, R = problem_.axis[1].taps;
    const Part part = {tap / S / R,           tap / S % R,      tap % S,
                       task / c_parts / taps, Cg * i / c_parts, Cg * (i + 1) / c_parts};
    with_scalar(problem_.dtype,
                [&](auto scalar) { add_part<decltype(scalar)>(problem_, block, part, sums); });
    if (progress) progress(++done, whole * c_parts);
  });
}

double* ReferenceSum::finish(std::size_t) {
  for (std::size_t i = 0; i < compensation_.size(); ++i) {
    if (std::isfinite(sum_[i])) sum_[i] += compensation_[i];
  }
  compensation_.clear();
  return sum_.data();
}

std::unique_ptr<BlockSum> make_reference_sum(const WgradProblem& problem, TaskPool& pool) {
  return std::make_unique<ReferenceSum>(problem, pool);
}

}  // namespace convgrad
