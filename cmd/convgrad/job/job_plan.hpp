// job_plan.hpp - the plan of a job, and what --dry-run, --list-algorithms and --verbose print of
// it.
#pragma once

#include <string>

#include "engine/device_kernel.hpp"
#include "job/job.hpp"

namespace convgrad::cli {

// What the command line says of the plan.
PlanOptions plan_options(const Options& options);
PlanOptions plan_options(const Job& job, const Options& options);

// The job's plan, with the memory that its streams need.
Plan plan_job(const Job& job, const PlanOptions& options);

// The row of an algorithm in tables of all.
struct AlgorithmRow {
  std::string_view name, summary;
  std::string why_not;  // this machine cannot run it, or ""
};
// Why those of devices cannot run is known only with `cuda`.
std::vector<AlgorithmRow> all_algorithms(const CudaInfo* cuda = nullptr);
Json algorithms_json(const std::vector<AlgorithmRow>& rows);
std::string algorithms_text(const std::vector<AlgorithmRow>& rows);
// What --list-algorithms says, of the problem if the options have one; null without that flag.
ReportPointer listed_algorithms(const Options& options);

// What --dry-run says of a job, and what it says beside.
struct PlanReport : Report {
  PlanReport(const Job& job, const Plan& planned) : tensors(job.tensors), plan(planned) {}

  std::string text() const override { return lines; }
  Json json() const override;
  std::string in_short() const override;

  Tensors tensors;
  Plan plan;
  std::string lines;
  Json more = Json::object();  // fields
};

// The text of --dry-run.
std::string plan_text(const Job& job, const Plan& plan, const std::string& algorithm);

// Problem, plan and timings on stderr, for --verbose.
void print_timing(const Plan& plan, const JobTiming& timing);

}  // namespace convgrad::cli
