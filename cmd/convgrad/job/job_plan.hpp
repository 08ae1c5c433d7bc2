// job_plan.hpp - the plan of a job, and what --dry-run, --list-algorithms and --verbose print of
// it.
#pragma once

#include <string>

#include "engine/device_kernel.hpp"
#include "job/job.hpp"

namespace convgrad::cli {

// These return what the command line says of the plan.
PlanOptions plan_options(const Options& options);
PlanOptions plan_options(const Job& job, const Options& options);

// Plans the job, with the memory that its streams need.
Plan plan_job(const Job& job, const PlanOptions& options);

// Holds the row of an algorithm in tables of all.
struct AlgorithmRow {
  std::string_view name, summary;
  std::string why_not;  // this machine cannot run it, or ""
};
// It is known only with `cuda` why the algorithms of devices cannot run.
std::vector<AlgorithmRow> all_algorithms(const CudaInfo* cuda = nullptr);
Json algorithms_json(const std::vector<AlgorithmRow>& rows);
std::string algorithms_text(const std::vector<AlgorithmRow>& rows);
// Returns what --list-algorithms says, of the problem if the options have one, or null without it.
ReportPointer listed_algorithms(const Options& options);

// Holds what --dry-run says of a job, and what is said beside it.
struct PlanReport : Report {
  PlanReport(const Job& job, const Plan& planned) : tensors(job.tensors), plan(planned) {}

  std::string text() const override { return lines; }
  Json json() const override;
  std::string in_short() const override;

  Tensors tensors;
  Plan plan;
  std::string lines;
  Json more = Json::object();  // fields beside the plan's
};

// Returns the text of --dry-run.
std::string plan_text(const Job& job, const Plan& plan, const std::string& algorithm);

// Prints problem, plan and timings on stderr, for --verbose.
void print_timing(const Plan& plan, const JobTiming& timing);

}  // namespace convgrad::cli
