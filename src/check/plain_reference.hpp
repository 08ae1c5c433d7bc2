// plain_reference.hpp - the definition, as docs/numerics.md has it: one element after another, one
// term after another. Tests compare the reference, which is fast, with it.
#pragma once

#include "check/rounding.hpp"
#include "check/term_batch.hpp"

namespace convgrad {

// Forms sum + compensation += x*y and keeps the rounding errors of the product and of the sum.
inline void add_compensated(double x, double y, double& sum, double& compensation) {
  const double product = x * y, total = sum + product;
  const double product_error = std::fma(x, y, -product);
  const double part = total - sum;
  const double sum_error = (sum - (total - part)) + (product - part);
  compensation += product_error + sum_error;
  sum = total;
}

// Takes x [N,D,H,W,C] and dy [N,Z,P,Q,K] of a problem whose channels are last.
inline Expected plain_reference(const WgradProblem& pb, const double* x, const double* dy,
                                const Summation& summation) {
  const auto& [ad, ah, aw] = pb.axis;
  const bool wide = pb.dtype == DType::f64, every = term_count(pb) < kLookedAtEach;
  Expected e;
  std::vector<RoundingScale> judged;
  for (std::int64_t i = 0; i < pb.dw_count(); ++i) {  // in [t][r][s][c][k] order
    const std::int64_t k = i % pb.K, c = k / pb.group_k() * pb.group_c() + i / pb.K % pb.group_c();
    const std::int64_t tap = i / pb.K / pb.group_c(), r = tap / aw.taps % ah.taps;
    const std::int64_t t = tap / aw.taps / ah.taps, s = tap % aw.taps;
    double sum = 0, rest = 0, plain = 0, walk = 0, run = 0;
    float plain_run = 0;  // like run, since the last restart
    TermStatistics terms;
    const auto restart = [&] {
      plain += wide ? run : static_cast<double>(plain_run);
      wide ? add_exactly(run, sum, rest) : void(sum += run);
      run = plain_run = 0;
    };
    std::int64_t pixels = 0;
    for (std::int64_t n = 0; n < pb.N; ++n)
      for (std::int64_t z = 0; z < ad.out; ++z)
        for (std::int64_t p = 0; p < ah.out; ++p)
          for (std::int64_t q = 0; q < aw.out; ++q) {
            const std::int64_t d = z * ad.stride - ad.pad_before + t * ad.dilation;
            const std::int64_t h = p * ah.stride - ah.pad_before + r * ah.dilation;
            const std::int64_t w = q * aw.stride - aw.pad_before + s * aw.dilation;
            if (d < 0 || d >= ad.in || h < 0 || h >= ah.in || w < 0 || w >= aw.in) continue;
            const double a = x[(((n * ad.in + d) * ah.in + h) * aw.in + w) * pb.C + c];
            const double b = dy[(((n * ad.out + z) * ah.out + p) * aw.out + q) * pb.K + k];
            wide ? add_compensated(a, b, run, rest) : void(run += a * b);
            plain_run += static_cast<float>(a) * static_cast<float>(b);
            terms.terms += a * b != 0 ? 1 : 0;
            terms.magnitude += std::fabs(a * b);
            terms.squares += (a * b) * (a * b);
            const bool look = ++pixels % kBatchPixels == 0;
            if (look || every) walk += run * run;
            if (summation.longest_sum > 0 && pixels % summation.longest_sum == 0) restart();
          }
    restart();
    if (wide) compensate(sum, rest);
    terms.sum = sum;
    terms.walk = mean_walk(pb, pixels, walk);
    terms.plain_error = plain - sum;
    judged.push_back(rounding_scale(terms, pb.dtype, summation));
    e.values.push_back(sum);
    e.magnitudes.push_back(terms.magnitude);
    if (wide) e.tails.push_back(rest);
  }
  set_scales(pb, true, summation, judged, e);
  return e;
}

}  // namespace convgrad
