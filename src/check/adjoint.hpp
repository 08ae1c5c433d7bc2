// adjoint.hpp - a check of a gradient by <dW, V> = <dY, conv(X, V)> for random V, for a small part
// of the reference's multiply-adds. docs/numerics.md derives its error bound and says what it
// finds.
//
// V is zero but for one tap and a block of at most 16 x 16 channels of one group, where
// V[c,k] = b[c]*e[k] with random signs b and e. Then
//   <dW, V>         = sum over c,k of b[c]*e[k]*dw[tap,c,k]
//   <dY, conv(X,V)> = sum over pixels of (sum over c of b[c]*x) * (sum over k of e[k]*dy),
// so 8 V cost a pixel 8 multiply-adds for each block in place of the block's 256.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "convgrad/compare.hpp"
#include "convgrad/plan.hpp"
#include "convgrad/reference.hpp"

namespace convgrad {

// One of the equalities: left is <dW, V>, right is <dY, conv(X, V)>. c counts within a group, k
// over all.
struct AdjointEquality {
  std::int64_t tap = 0;
  Range c, k;
  double left = 0, right = 0, bound = 0;
};

struct AdjointTap {
  std::int64_t failures = 0;
  double max_error = 0, max_ratio = 0;  // of |left - right|, and of that over the bound
};

struct AdjointVerdict {
  std::int64_t equalities = 0, failures = 0;
  int vectors = 0;        // V's for each tap and block
  AdjointEquality worst;  // by error over bound
  double worst_ratio = 0;
  std::vector<AdjointTap> taps;  // over blocks and V's
  NonFinite nonfinite;           // in the gradient: each is a failure of its own
  bool all_zero = true;          // of the right sides
  // One wrong entry whose error is larger than this is found for certain, by every V; and the
  // root mean square of the gradient's entries, to compare it with.
  double certain_error = 0, rms_entry = 0;
  // Entries, in [tap][c][k] order, one of which alone could explain what fails in its block. At
  // most kMaxAdjointSuspects.
  std::vector<std::int64_t> suspects;

  bool match() const { return failures == 0 && nonfinite.nan == 0 && nonfinite.inf == 0; }
};
inline constexpr std::size_t kMaxAdjointSuspects = 64;

class AdjointSum final : public BlockSum {
 public:
  AdjointSum(const WgradProblem& problem, TaskPool& pool, std::uint64_t seed);
  ~AdjointSum() override;
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t = 0) override { return nullptr; }

  // After finish(): got in [tap][c][k] order, as float64 values of model.out. Error(unavailable)
  // where sums cannot tell: x or dy hold NaN or Inf, or an infinity may be an overflow that is due.
  AdjointVerdict judge(std::span<const double> got, const ErrorModel& model) const;

  // What it holds beside the blocks of the plan.
  static std::int64_t memory_bytes(const Plan& plan);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace convgrad
