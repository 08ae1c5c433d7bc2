// entry_sum.hpp - sums the terms of one entry of the gradient, over tensors read in any way. The
// sampled check reads them as the problem says; the diagnosis reads them as a faulty kernel might.
#pragma once

#include <algorithm>
#include <cmath>

#include "check/term_batch.hpp"
#include "engine/kernel.hpp"

namespace convgrad {

// The terms of an entry come from a tap, a channel of x and one of dy.
struct EntryTerms {
  std::int64_t t = 0, r = 0, s = 0, x_channel = 0, dy_channel = 0;
  // clang-tidy 14 sees a 0 for a pointer in what this stands for.
  auto operator<=>(const EntryTerms&) const = default;  // NOLINT(modernize-use-nullptr)
};

// Returns those of the entry at index, in [tap][c][k] order.
inline EntryTerms entry_terms(const WgradProblem& pb, std::int64_t index) {
  const std::int64_t Cg = pb.C / pb.groups, Kg = pb.K / pb.groups;
  const std::int64_t k = index % pb.K, c = index / pb.K % Cg, tap = index / pb.K / Cg;
  const std::int64_t S = pb.axis[2].taps, R = pb.axis[1].taps;
  return {tap / S / R, tap / S % R, tap % S, k / Kg * Cg + c, k};
}

// A view says how x and dy are read. Distances and origins are in elements; the element of image n
// at (d, h, w) is x[x_origin + n * strides.n + ...], and none outside [0, in) of an axis is
// touched.
struct TensorView {
  std::array<SpatialAxis, 3> axis;
  const void* x = nullptr;
  const void* dy = nullptr;
  std::int64_t x_origin = 0, dy_origin = 0;
  Strides x_strides, dy_strides;
  Range images;              // counted from the origins
  std::array<Range, 3> out;  // output positions that are summed
};

// Calls visit(x, dy), both float64, for each term of the entry, in the order n, z, p, q.
template <typename Scalar, typename Visit>
void visit_terms(const TensorView& view, const EntryTerms& entry, Visit&& visit) {
  const auto* x = static_cast<const Scalar*>(view.x);
  const auto* dy = static_cast<const Scalar*>(view.dy);
  const auto& [ad, ah, aw] = view.axis;
  const auto& [xd, xh, xw] = view.x_strides.spatial;
  const auto& [yz, yp, yq] = view.dy_strides.spatial;
  const std::int64_t w0 = entry.s * aw.dilation - aw.pad_before;
  std::int64_t q_begin = view.out[2].begin, q_end = view.out[2].end;
  while (q_begin < q_end && q_begin * aw.stride + w0 < 0) ++q_begin;
  while (q_end > q_begin && (q_end - 1) * aw.stride + w0 >= aw.in) --q_end;
  for (std::int64_t n = view.images.begin; n < view.images.end; ++n) {
    for (std::int64_t z = view.out[0].begin; z < view.out[0].end; ++z) {
      const std::int64_t d = z * ad.stride - ad.pad_before + entry.t * ad.dilation;
      if (d < 0 || d >= ad.in) continue;
      for (std::int64_t p = view.out[1].begin; p < view.out[1].end; ++p) {
        const std::int64_t h = p * ah.stride - ah.pad_before + entry.r * ah.dilation;
        if (h < 0 || h >= ah.in) continue;
        const std::int64_t x_row = view.x_origin + n * view.x_strides.n + d * xd + h * xh +
                                   w0 * xw + entry.x_channel * view.x_strides.c;
        const std::int64_t dy_row = view.dy_origin + n * view.dy_strides.n + z * yz + p * yp +
                                    entry.dy_channel * view.dy_strides.c;
        for (std::int64_t q = q_begin; q < q_end; ++q) {
          visit(to_double(x[x_row + q * aw.stride * xw]), to_double(dy[dy_row + q * yq]));
        }
      }
    }
  }
}

// Sums are looked at after each term where there are fewer of them than this, else after every
// eighth, and restarted after so many; ReferenceSum does the same.
struct SumRules {
  SumRules(const WgradProblem& problem, const Summation& summation)
      : every(term_count(problem) < kLookedAtEach), longest(summation.longest_sum) {}
  bool every;
  std::int64_t longest;
};

// Sums an entry's terms to the bit of the reference's, with what they say of rounding.
struct EntrySum {
  TermValues<double> run{};  // since the last restart, but for the statistics
  double plain_error = 0, earlier = 0, plain = 0;
  float plain_run = 0;
  std::int64_t pixels = 0;

  template <typename Scalar>
  void add(double x, double dy, const SumRules& rules) {
    constexpr bool kCompensated = std::is_same_v<Scalar, double>;
    run.add<kCompensated, true, false, true>(x, dy);
    if constexpr (!kCompensated) plain_run += static_cast<float>(x) * static_cast<float>(dy);
    const bool looked_at = ++pixels % kBatchPixels == 0;
    if (rules.every || looked_at) run.walk += run.sum * run.sum;
    if (looked_at) keep_plain_errors(sums(kCompensated), 1);
    if (rules.longest > 0 && pixels % rules.longest == 0) restart(sums(kCompensated), 1);
  }
  TermSums sums(bool compensated) {
    double* const rest = compensated ? &run.compensation : nullptr;
    float* const in_f32 = compensated ? nullptr : &plain_run;
    return {&run.sum,   rest,   &run.magnitude, &run.squares, &run.walk,
            &run.terms, in_f32, &plain_error,   &earlier,     &plain};
  }
};

template <typename Scalar>
void add_terms(const TensorView& view, const EntryTerms& entry, const SumRules& rules,
               EntrySum& total) {
  visit_terms<Scalar>(view, entry, [&](double x, double dy) { total.add<Scalar>(x, dy, rules); });
}

// Ends the sums, and returns what entries with these sums should be.
Expected expected_of(const WgradProblem& problem, const Summation& summation,
                     std::span<EntrySum> sums);

inline TensorView plain_view(const WgradProblem& pb, const Block& block) {
  TensorView view;
  view.axis = pb.axis;
  view.x = block.x;
  view.dy = block.dy;
  view.x_strides = block.x_strides;
  view.dy_strides = block.dy_strides;
  view.images = {0, block.pixels[0].size()};
  for (std::size_t a = 0; a < 3; ++a) {
    view.x_origin -= block.input[a].begin * block.x_strides.spatial[a];
    view.dy_origin -= block.pixels[a + 1].begin * block.dy_strides.spatial[a];
    view.out[a] = block.pixels[a + 1];
  }
  return view;
}

}  // namespace convgrad
