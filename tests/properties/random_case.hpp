// random_case.hpp - random problems with made tensors, that shrink to small ones.
#pragma once

#include <rapidcheck/Gen.h>

#include <iosfwd>
#include <string>
#include <vector>

#include "generate/generate.hpp"
#include "support/problems.hpp"

namespace convgrad::testing {

struct RandomCase {
  ProblemSpec spec;
  DType dtype = DType::f32;
  bool channels_last = true;
  MadeData data;
  int threads = 1;
  std::int64_t block_bytes = 0;  // 0: chosen by the plan

  WgradProblem problem() const { return make(spec, dtype, channels_last); }
};

struct CaseLimits {
  std::vector<std::string> ops = {"conv2d", "conv2d", "conv2d", "depthwise", "depthwise", "conv3d"};
  std::vector<DType> dtypes = {DType::f32, DType::f64, DType::bf16, DType::f16};
  Distribution distribution = Distribution::integers;
  double multiply_adds = 1e6;
};

// Batches from empty to 70 images, channels around the kernels' tiles, groups, taps, strides,
// dilations, SAME, VALID and paddings larger than the filter, within the limits' multiply-adds. The
// first of the limits' names and dtypes is what a failing case is shrunk to.
rc::Gen<RandomCase> random_cases(const CaseLimits& limits);

// Tensors of the case: those that `convgrad generate` writes.
std::vector<std::byte> made_tensor(const RandomCase& c, Operand operand);

// The problem in one line, and the commands that repeat the case; more goes to verify's.
std::string repeat_lines(const RandomCase& c, const std::string& more);

// What rapidcheck prints of a counterexample.
void showValue(const RandomCase& c, std::ostream& out);

}  // namespace convgrad::testing
