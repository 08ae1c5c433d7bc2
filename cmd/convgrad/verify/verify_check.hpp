// verify_check.hpp - what verify compares: gradients, computed or given, and what they should be,
// whole or at some entries.
#pragma once

#include <memory>

#include "check/reference_sum.hpp"
#include "check/sample.hpp"
#include "check/untested.hpp"
#include "convgrad/compare.hpp"
#include "convgrad/gradient_file.hpp"
#include "job/job_plan.hpp"

namespace convgrad::cli {

// Holds values in [tap][c][k] order, or one for each entry of a sample.
struct Gradient {
  std::string name;
  DType dtype = DType::f32;
  std::vector<double> values;
};

// Says how a pass over x and dy went.
struct PassTaken {
  Plan plan;
  JobTiming timing;
};

// Holds what is judged, and by what.
struct Judged {
  WgradProblem problem;  // whose gradient has the dtype of the first result
  Sample sample;         // without indices where everything is compared
  std::vector<Gradient> results;
  std::optional<Gradient> golden;  // unless it is the file to write
  // Holds what the results should be: by the reference, or the golden file's values alone.
  Expected expected;
  std::string vacuous;                  // why no fault could be seen, or ""
  std::vector<std::string> not_tested;  // else which could not
  std::optional<PassTaken> pass;        // unless files are compared with a file
  Tensors tensors;
};
inline constexpr const char* kReferenceName = "the float64 reference";

// Returns the criterion of the options. Throws Error(usage) where they exclude each other.
Tolerance judged_by(const VerifyOptions& options);
// Returns how the gradient that is judged is taken to be summed.
Summation summation_of(const Job& job, const VerifyCommand& options);

// Reads a gradient file into [tap][c][k] order.
Gradient read_in_order(const std::string& path, const WgradProblem& problem);

// Plans the one pass over x and dy.
Plan plan_check(const Job& job, const VerifyCommand& options, bool needs_reference);

// Reads, computes and sums what the options ask for, and writes --output.
Judged gather(Job& job, const VerifyCommand& options, bool needs_reference);

// Computes the reference at some entries, by another pass over x and dy, which must be files.
Expected exact_entries(Job& job, const VerifyCommand& options,
                       const std::vector<std::int64_t>& indices, const Summation& summation);

// Plans another pass over x and dy, for a check that takes so much memory.
Plan plan_again(const Job& job, const VerifyCommand& options, std::int64_t check_bytes);

// Returns why x and dy cannot be read a second time, as a clause, or "".
std::string why_read_once(const Job& job);

}  // namespace convgrad::cli
