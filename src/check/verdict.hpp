// verdict.hpp - the verdicts on gradients that have been compared with the same reference.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "check/diagnosis.hpp"
#include "convgrad/verdict.hpp"
#include "engine/run.hpp"

namespace convgrad {

// Reads x and dy once more, or as often as a verdict asks for it.
struct Passes {
  TaskPool& pool;
  // Adds all blocks to a sum, which takes so many bytes, and finishes it.
  std::function<void(BlockSum& sum, std::int64_t bytes)> run;
  std::optional<Images> images;  // without these the known faults are not tried
  std::int64_t memory = 0;       // the limit, in bytes
};

// Holds one gradient: values of dtype, one for each of the indices or for all entries.
struct Subject {
  DType dtype = DType::f32;
  std::span<const double> values;
};

struct Verdicts {
  std::vector<Verdict> all;
  std::optional<Expected> wide;  // what they were judged by where an order was assumed
};

// Returns the verdicts on these gradients. indices are empty for all entries. Where errors are
// larger than the order n, z, p, q makes, it looks for another order that makes such: its scales
// then allow them, and structure decides what they would hide. passes is null where x and dy cannot
// be read again: then that order alone counts.
Verdicts judge(const WgradProblem& problem, std::span<const std::int64_t> indices,
               const Expected& expected, std::span<const Subject> subjects, const Rules& rules,
               Passes* passes);

// Uses a gradient as the diagnosis takes it: without the buffer that it was added to, and not
// multiplied by Summation::factor; the result's rounding is then a part of its error.
void with_own_part(const WgradProblem& problem, const Subject& subject,
                   std::span<const std::int64_t> indices, const Expected& expected, double factor,
                   const std::function<void(const Suspect&)>& use);

// Computes the reference at some entries.
Expected exact_entries(const WgradProblem& problem, const std::vector<std::int64_t>& indices,
                       const Summation& summation, Passes& passes);

}  // namespace convgrad
