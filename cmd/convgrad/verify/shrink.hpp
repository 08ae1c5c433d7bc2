// shrink.hpp - the smallest part of a problem on which a computation still fails.
#pragma once

#include "check/crop.hpp"
#include "verify/verify_check.hpp"

namespace convgrad::cli {

struct CroppedPart {
  Crop crop;
  WgradProblem problem;
  SourceOrigin origin;
};

// All images and positions, with the one tap and the channels of an element.
Crop element_crop(const WgradProblem& problem, std::int64_t index);

// The reference on a part, in [tap][c][k] order.
Expected reference_on(Job& job, const Options& options, const CroppedPart& part);

class Shrinker {
 public:
  // kernel: that computes, or null for the reference.
  Shrinker(Job& job, const Options& options, const Kernel* kernel, const Tolerance& tolerance)
      : job_(job), options_(options), kernel_(kernel), tolerance_(tolerance) {}

  // The whole problem must fail at the element. Nothing if that fails on no part that can be cut.
  std::optional<CroppedPart> shrink(std::int64_t wrong);
  // Why it was nothing: the element, computed again, did not fail.
  bool is_right_again() const { return is_right_again_; }
  // What the computation gives on that part, rounded.
  const std::vector<double>& result() const { return result_; }

 private:
  bool fails(const Crop& crop);
  bool halve(Crop& crop, Range& range);
  bool trim(Crop& crop, Range& range);

  Job& job_;
  const Options& options_;
  const Kernel* kernel_;
  const Tolerance& tolerance_;
  double budget_ = 0;  // multiply-adds that may still be spent
  std::optional<CroppedPart> smallest_;
  bool is_right_again_ = false;
  std::vector<double> result_;
};

}  // namespace convgrad::cli
