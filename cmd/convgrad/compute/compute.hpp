// compute.hpp - the main job: a gradient from files, on one process or on several.
#pragma once

#include <string>
#include <vector>

#include "files/output_file.hpp"
#include "job/job_plan.hpp"
#include "problem/schedule.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

ReportPointer compute(const Options& options);
// Does what compute() does, under mpirun. Ranks but 0 end with SilentEnd (ranks.hpp).
ReportPointer compute_on_ranks(const Options& options);
// Adds up the parts of --batch-range, and writes the gradient.
ReportPointer reduce(const ReduceOptions& options);

// Says what there is to say of a gradient that was computed.
struct ComputeReport final : PlanReport {
  using PlanReport::PlanReport;
  Json json() const override;
  std::string in_short() const override { return ""; }

  JobTiming timing;
  std::string output;
};

// Throws Error(usage) for options of the main job that are missing or exclude each other.
void check_compute_options(const Options& options);

// Reads the gradient that --accumulate adds to, in the order of dw_shape().
std::vector<double> read_addend(const Options& options, const WgradProblem& problem);

// The rest is for --batch-range: the sums of a part of the batch, in a file for convgrad reduce.

// Returns the part that text names: "A:B", images A to B-1, where a missing A is 0 and a missing B
// the end, "K/R", the K-th of R parts, or "", all of the batch, which has so many images. Throws
// Error(usage) for other text.
BatchRange parse_batch_range(const std::string& text, std::int64_t images);

// Throws Error(usage) for options that a part of the batch cannot have.
void check_batch_range(const Options& options);

// These return the part as the report has it, and as a line of --dry-run.
Json part_json(const Plan& plan);
std::string part_text(const Plan& plan);

// Returns the plan's problem with the part's images alone, for rates.
WgradProblem part_problem(const Plan& plan);

// Writes the sums of a plan's part to a file for reduce.
void write_part(const std::string& path, const Plan& plan, BlockSum& sum,
                const OutputOptions& options);

}  // namespace convgrad::cli
