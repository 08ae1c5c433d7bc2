// job.hpp - from options to a checked problem and a plan; shared by compute and verify.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "convgrad/compare.hpp"
#include "convgrad/npy.hpp"
#include "convgrad/plan.hpp"
#include "convgrad/reference.hpp"
#include "convgrad/run.hpp"
#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

enum class Backend { cpu, cuda, reference };

struct Job {
  std::unique_ptr<NpyReader> x, dy;
  WgradProblem problem;
  Backend backend = Backend::cpu;
  std::function<void(double)> on_progress;  // Options::on_progress
  Device device;                            // for cuda
  std::string backend_reason;               // what auto decided and why, "" if it was not asked
};

// Error(usage) unless the operation is named.
void check_op(const ProblemOptions& options);
// Error(usage) unless the operation and both tensors are named.
void check_required(const ProblemOptions& options);

// The operation and its attributes as they were spelled, for make_problem().
WgradAttributes attributes_of(const ProblemOptions& options);

// The criterion that was asked for, bound if none was; Error(usage) if two were.
Tolerance tolerance_of(const CriterionOptions& options);

// Opens the two files and validates. Fills attrs and tensors of the report.
Job open_job(const Options& options, Json& report);

// with_reference: the reference is summed beside the kernel; only_reference: instead of it. more:
// what the command line does not say.
Plan plan_job(const Job& job, const Options& options, bool with_reference, bool only_reference,
              const PlanOptions& more = {});

// What --backend and --algorithm name; empty for auto, which needs the problem. Error(usage) for
// names that are unknown or do not fit each other.
std::optional<Backend> named_backend(const ExecutionOptions& execution);

// The table of algorithms; with a job, what each makes of its problem.
std::string algorithm_table(const Job* job);
// True if --list-algorithms was given: the table has been printed, and there is nothing to do.
bool listed_algorithms(const Options& options, Json& report);

// The text of --dry-run.
std::string plan_text(const Job& job, const Plan& plan, const std::string& algorithm);

// Progress, the blocks, the sums. gradient and check may each be null.
Timing run_job(Job& job, const Plan& plan, GradientSum* gradient, BlockSum* check);

// Problem, plan and timings on stderr, for --verbose.
void print_timing(const Plan& plan, const Timing& timing, double write_s);

// Both name one file, that may not exist yet, through whatever links; devices may be shared. An
// array of an archive stands for the archive; what is to be written is a file.
bool same_file(const std::string& file, const std::string& tensor);
// Equal for two names of one file, through whatever links, and also before it exists. "" for
// devices and the like, which may be shared.
std::string file_key(const std::string& path);

// The report must replace no file that the command reads or writes, and nothing but a report. Looks
// at the files: once, before the command begins, is enough.
void check_report_replaces_nothing(const Options& options);

// stdout may be asked for once only: the gradient, the report, or text. And the files that are read
// must not be lost to what is written.
void check_stdout_is_free(const Options& options);

}  // namespace convgrad::cli
