// entry_sum.hpp - sums the terms of one entry of the gradient: those that the problem says, or, in
// the diagnosis, those that a faulty kernel might read.
#pragma once

#include "check/block_walk.hpp"
#include "check/term_batch.hpp"

namespace convgrad {

// The terms of an entry come from a tap, a channel of x and one of dy.
struct EntryTerms {
  TapPlace tap{};
  std::int64_t x_channel = 0, dy_channel = 0;
  // clang-tidy 14 sees a 0 for a pointer in what this stands for.
  auto operator<=>(const EntryTerms&) const = default;  // NOLINT(modernize-use-nullptr)
};

// Returns those of the entry at index, in [tap][c][k] order.
inline EntryTerms entry_terms(const WgradProblem& pb, std::int64_t index) {
  const std::int64_t Cg = pb.C / pb.groups, Kg = pb.K / pb.groups;
  const std::int64_t k = index % pb.K, c = index / pb.K % Cg, tap = index / pb.K / Cg;
  return {tap_place(pb, tap), k / Kg * Cg + c, k};
}

// Sums are looked at after each term where there are fewer of them than this, else after every
// eighth, and restarted after so many; ReferenceSum does the same.
struct SumRules {
  SumRules(const WgradProblem& problem, const Summation& summation)
      : compensated(problem.dtype == DType::f64),
        every(term_count(problem) < kLookedAtEach),
        longest(summation.longest_sum) {}
  bool compensated, every;
  std::int64_t longest;
};

// Sums an entry's terms to the bit of the reference's, with what they say of rounding.
struct EntrySum {
  TermValues<double> run{};  // since the last restart, but for the statistics
  double earlier = 0, plain = 0;
  float plain_run = 0;
  std::int64_t pixels = 0;

  void add(double x, double dy, const SumRules& rules) {
    if (rules.compensated) {
      run.add<true, true, false>(x, dy);
    } else {
      run.add<false, true, false>(x, dy);
      plain_run += static_cast<float>(x) * static_cast<float>(dy);
    }
    if (++pixels % kBatchPixels == 0 || rules.every) run.walk += run.sum * run.sum;
    if (rules.longest > 0 && pixels % rules.longest == 0) restart(sums(rules.compensated), 1);
  }
  TermSums sums(bool compensated) {
    double* const rest = compensated ? &run.compensation : nullptr;
    float* const in_f32 = compensated ? nullptr : &plain_run;
    return {&run.sum,   rest,   &run.magnitude, &run.squares, &run.walk,
            &run.terms, in_f32, &earlier,       &plain};
  }
};

// Ends the sums, and returns what entries with these sums should be.
Expected expected_of(const WgradProblem& problem, const Summation& summation,
                     std::span<EntrySum> sums);

}  // namespace convgrad
