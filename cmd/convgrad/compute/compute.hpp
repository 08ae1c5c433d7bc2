// compute.hpp - the main job: a gradient from files, on one process or on several.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "files/output_file.hpp"
#include "job/job.hpp"
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

// Makes the sum that the plan says, spot-checked as the options say.
std::unique_ptr<BlockSum> checked_sum(const Plan& plan, TaskPool& pool,
                                      const ExecutionOptions& options);

}  // namespace convgrad::cli
