// job.hpp - from options to a checked problem with its tensors, its plan, and through its blocks;
// what --dry-run, --list-algorithms and --verbose print of the plan.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "convgrad/npy.hpp"
#include "engine/device_kernel.hpp"
#include "engine/run.hpp"
#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

struct Job {
  std::unique_ptr<NpyReader> x, dy;
  Tensors tensors;  // both, with hashes where a report will want them
  WgradProblem problem;
  Backend backend = Backend::cpu;
  std::function<void(double)> on_progress;  // Options::on_progress
  Device device;                            // for cuda
  std::string backend_reason;               // what auto decided and why, "" if it was not asked
};

// Returns what --backend and --algorithm name, and nothing for auto, which needs the problem.
// Throws Error(usage) for names that do not fit each other.
std::optional<Backend> named_backend(const ExecutionOptions& execution);

Job open_job(const Options& options);

// Reads the blocks and adds them to both sums, with progress. `gradient` and `check` may be null.
Timing run_job(Job& job, const Plan& plan, BlockSum* gradient, BlockSum* check);
// Does so with blocks of any source. show() is told the part that is done, from 0 to 1.
Timing run_blocks(const Plan& plan, BlockSource& source, BlockSum* gradient, BlockSum* check,
                  const std::function<void(double)>& show);

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

// Returns tensors, problem and plan, and `more` fields behind them.
Json plan_fields(const Tensors& tensors, const Plan& plan, const Json& more);
// Returns what --dry-run says of a job, with `more` lines and fields.
ReportPointer plan_report(const Job& job, const Plan& plan, const Options& options,
                          const std::string& more_lines = "", const Json& more = Json::object());

// Prints problem, plan and timings on stderr, for --verbose.
void print_timing(const Plan& plan, const JobTiming& timing);

}  // namespace convgrad::cli
