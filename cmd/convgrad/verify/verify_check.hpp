// verify_check.hpp - what verify compares: a gradient, computed or given, and what it
// should be, whole or at some entries.
#pragma once

#include <memory>

#include "check/adjoint.hpp"
#include "check/sample.hpp"
#include "convgrad/compare.hpp"
#include "convgrad/gradient_file.hpp"
#include "convgrad/reference.hpp"
#include "job/job_plan.hpp"

namespace convgrad::cli {

// How much of the reference there is to be.
enum class Scope { full, sample, adjoint };
Scope scope_of(const VerifyOptions& options);

struct Judged {
  Sample sample;  // without indices where everything is compared
  // [tap][c][k] order, or one for each index. magnitudes are empty if no reference was needed.
  std::vector<double> got, want, magnitudes;
  std::string got_name, want_name;
  std::optional<DType> want_dtype;  // of a golden file
  const Kernel* kernel = nullptr;   // that has computed got
  bool on_device = false;           // got was computed there
  // The whole gradient as it was computed, rounded to out_dtype; kept for --repeat-check.
  std::vector<double> computed;
  std::optional<AdjointVerdict> adjoint;  // want and magnitudes are empty then
};

// A gradient file, in [tap][c][k] order.
GradientFile read_in_order(const std::string& path, const WgradProblem& problem);

// The plan of the one pass over x and dy.
Plan plan_check(const Job& job, const Options& options, bool needs_reference);

// Reads, computes and sums what the options ask for. Sets job.problem.out_dtype to that of
// --result.
Judged gather(Job& job, const Options& options, bool needs_reference, Json& report);

// The reference at some entries, by another pass over x and dy, which must be files.
struct ExactEntries {
  std::vector<double> values, magnitudes;
};
ExactEntries exact_entries(Job& job, const Options& options,
                           const std::vector<std::int64_t>& indices);

// Why x and dy cannot be read a second time, as a clause, or "".
std::string why_read_once(const Job& job);

ErrorModel error_model(const WgradProblem& problem);
// Of a golden file, whose own rounding counts too.
std::optional<ErrorModel> want_model(const WgradProblem& problem, const Judged& judged);

}  // namespace convgrad::cli
