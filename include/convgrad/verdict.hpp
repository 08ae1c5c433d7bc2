// verdict.hpp - the whole verdict on a gradient, as `convgrad verify` gives it: compare.hpp's, and
// what explains errors that are larger than those of a sum in the order n, z, p, q.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "convgrad/compare.hpp"
#include "convgrad/gradient.hpp"
#include "convgrad/reference.hpp"

namespace convgrad {

struct Rules {
  Tolerance tolerance;
  Summation summation;
  // A sum may walk in any order by turns, tiles, bands or curves; else in n, z, p, q alone.
  bool any_order = true;
};

struct Verdict {
  Comparison comparison;
  // It matches if it is summed in another order than n, z, p, q: its errors are `rms` times what
  // that order makes, and another may make `allowed` times that.
  struct Order {
    double rms = 0, allowed = 0;
  };
  std::optional<Order> order_assumed = {};
  // It does not match, and would if adders of tensor cores had cut its sums: of float32 data as
  // 3xTF32 (longest_sum is 0), of 16-bit data over so many terms at a time.
  std::optional<Summation> cut = {};
  // Says why what matches tells nothing ("zeros would match too"), or is empty.
  std::string vacuous = {};
};

// Judges a whole gradient: got holds numbers of problem.out_dtype in [tap][c][k] order. x and dy
// are those of filter_gradient(), whose options apply but for algorithm and device. Errors are
// those of expected_gradient() and compare_gradients().
Verdict judge_gradient(const WgradProblem& problem, const void* x, const void* dy,
                       std::span<const double> got, const Rules& rules = {},
                       const GradientOptions& options = {});

}  // namespace convgrad
