// diagnosis.hpp - names what is wrong with a gradient that is not the reference's. Known faults are
// tried one after another: each says what the gradient would be, and that is computed and compared.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "check/structure.hpp"
#include "convgrad/reference.hpp"
#include "engine/run.hpp"

namespace convgrad {

// Holds a gradient that does not match, and the reference, at some entries or at all.
struct Suspect {
  const WgradProblem& problem;            // out_dtype is that of the suspect
  std::span<const std::int64_t> indices;  // in [tap][c][k] order; empty: every entry
  std::span<const double> got;
  const Expected& expected;
  // What the last rounding may have changed where values are not as they were stored; empty: what
  // out_dtype says.
  std::span<const double> halves = {};
};

// match: every entry that was checked is within rounding of what the fault would give. bits: it is
// equal to that, bit by bit.
enum class Certainty : std::uint8_t { match, bits };

struct Finding {
  std::string fault;  // "filter_flipped", "filter_flipped+zero"; docs/faults.md lists them
  std::string text;   // "the filter is flipped in h and w", after "it matches if"
  std::string cause;  // it usually brings this about, or ""
  Certainty certainty = Certainty::match;
  std::int64_t checked = 0;  // entries
  bool only_rounds = false;  // more than it should: a kernel may do that on purpose, for its speed
  bool covers_all = true;    // entries that were not checked are off by no more than those
};

struct Diagnosis {
  std::vector<Finding> findings;  // all that fit, at most kMaxFindings of them
  std::int64_t more = 0;          // so many more fit
  std::int64_t tried = 0;         // explanations
  std::int64_t untried = 0;       // these would have taken too long
  std::string where;              // the place of the wrong elements; "": everywhere
};
inline constexpr std::size_t kMaxFindings = 8;

// Plans blocks of whole images, as explanations read an image in any way: at most budget_bytes, or
// one.
Plan image_plan(const WgradProblem& problem, std::int64_t budget_bytes);

// x and dy are read by image_plan(), several times.
struct Images {
  const Plan& plan;
  BlockSource& source;
  TaskPool& pool;
  std::function<void()> before_block = {};  // may throw, to end what reads
};

// About so many multiply-adds may be spent, and after so many seconds it stops, with what it has
// found. small: errors are as those of an order of summing, so of the known faults roundings of 16
// bits and more alone are tried, and not what makes larger errors still.
Diagnosis diagnose(const Suspect& suspect, const Images& images, double multiply_adds,
                   double seconds = HUGE_VAL, bool small = false);

// Tells from some entries whether errors are what x or dy lose when they are rounded to a narrower
// type; about multiply_adds are spent. It finds that also below the errors of right sums, where a
// diagnosis does not.
std::optional<Structure> rounded_inputs(const Suspect& suspect, const Images& images,
                                        double multiply_adds);

}  // namespace convgrad
