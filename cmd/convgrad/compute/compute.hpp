// compute.hpp - the main job: a gradient from files, on one process or on several.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "job/job.hpp"
#include "problem/schedule.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

ReportPointer compute(const Options& options);
// Does what compute() does, under mpirun. Ranks but 0 end with SilentEnd (ranks.hpp).
ReportPointer compute_on_ranks(const Options& options);
// Adds up the parts of --batch-range, and writes the gradient.
ReportPointer reduce(const ReduceOptions& options);

// Throws Error(usage) for options of the main job that are missing or exclude each other.
void check_compute_options(const Options& options);

// A job of which all that can be refused before it is computed has been.
struct ReadyJob {
  Job job;
  Plan plan;
  std::vector<double> addend;  // what --accumulate adds to, in [tap][c][k] order
};
// `share` is the part of the batch, or --batch-range says it. `writes` tells whether this process
// writes the output.
ReadyJob make_ready(const Options& options, const std::optional<BatchRange>& share, bool writes);

// Makes the sum that the plan says, spot-checked as the options say.
std::unique_ptr<BlockSum> checked_sum(const Plan& plan, TaskPool& pool,
                                      const ExecutionOptions& options);

// Writes the gradient. `dw` is in [tap][c][k] order; the addend is added to it.
void write_sums(const ReadyJob& ready, double* dw, const Options& options);

// Returns what there is to say of a gradient that was written, with `more` fields beside the
// plan's. Prints the timing for --verbose.
ReportPointer computed_report(const ReadyJob& ready, const Options& options,
                              const JobTiming& timing, const Json& more);

}  // namespace convgrad::cli
