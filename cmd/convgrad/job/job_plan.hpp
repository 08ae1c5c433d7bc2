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

// The table of algorithms: what each makes of the job's problem.
std::string algorithm_table(const Job& job);
// All of them, with name and summary, and why_not of those that this machine cannot run; of those
// of devices it is known only with `cuda`.
Json algorithms_json(const CudaInfo* cuda = nullptr);
std::string algorithms_text(const Json& algorithms);
// True if --list-algorithms was given: the table has been printed, and there is nothing to do.
bool listed_algorithms(const Options& options, Json& report);

// The text of --dry-run.
std::string plan_text(const Job& job, const Plan& plan, const std::string& algorithm);

// Problem, plan and timings on stderr, for --verbose.
void print_timing(const Plan& plan, const Timing& timing, double write_s);

}  // namespace convgrad::cli
