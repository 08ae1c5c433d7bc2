// compute.cpp - the main job: a filter gradient from .npy to .npy.
#include "compute/compute.hpp"

#include <cstdio>
#include <filesystem>

#include "base/clock.hpp"
#include "convgrad/gradient_file.hpp"
#include "engine/partial_file.hpp"
#include "job/job_files.hpp"
#include "job/job_plan.hpp"
#include "options/arguments.hpp"
#include "options/attributes.hpp"

namespace convgrad::cli {
void check_compute_options(const Options& options) {
  check_required(options.problem);
  const std::string& output = options.problem.output;
  if (output.empty() && !options.execution.dry_run) {
    misuse("--output is missing, expected a .npy file or -");
  }
  std::error_code ignored;
  if (options.execution.accumulate && output == "-") {
    misuse("--accumulate: --output is -, expected a file to add to");
  }
  if (options.execution.accumulate && options.execution.raw) {
    misuse("--accumulate: given with --raw, but a raw file does not say what ", "it holds",
           Hint("add to a .npy file"));
  }
  if (options.execution.accumulate && std::filesystem::exists(output, ignored) &&
      !std::filesystem::is_regular_file(output, ignored)) {
    misuse("--accumulate: --output ", output, " is no file that can be added to");
  }
  if (options.execution.accumulate && options.execution.no_clobber) {
    misuse("--accumulate and --no-clobber exclude each other");
  }
  check_batch_range(options);
  check_outputs(options);
}

std::vector<double> read_addend(const Options& options, const WgradProblem& problem) {
  try {
    return read_gradient(gradient_target(options).readable_name(), problem, true).values;
  } catch (const Error& error) {
    throw Error(error.kind(), "--accumulate: ", error,
                Hint("compute it once without --accumulate"));
  }
}

Json ComputeReport::json() const {
  Json json = PlanReport::json();
  json["timing_ms"] = timing.timing_json();
  json["perf"] = timing.perf_json();
  json["output"] = output;
  return json;
}

namespace {

// Returns the seconds that writing takes; those of the last sums are added to the timing.
double write_sums(BlockSum& sums, const Job& job, const std::vector<double>& addend,
                  const Options& options, Timing& timing) {
  const double* dw = nullptr;
  const double finish_s = seconds_of([&] { dw = sums.finish(); });
  timing.kernel_s += finish_s;
  timing.total_s += finish_s;
  return seconds_of([&] {
    write_gradient(options.problem.output, job.problem, dw,
                   addend.empty() ? nullptr : addend.data(), gradient_options(options));
  });
}

ReportPointer planned_report(const Job& job, const Plan& plan, const Options& options,
                             bool is_part) {
  auto report = std::make_unique<PlanReport>(job, plan);
  report->lines = plan_text(job, plan, options.execution.algorithm);
  if (is_part) {
    report->lines += part_text(plan);
    report->more = {{"part", part_json(plan)}};
  }
  return report;
}

}  // namespace

ReportPointer compute(const Options& options) {
  if (options.execution.mpi) return compute_on_ranks(options);
  if (ReportPointer listed = listed_algorithms(options)) return listed;
  check_compute_options(options);
  const std::string& output = options.problem.output;
  const OutputOptions output_options = gradient_options(options);
  Job job = open_job(options);
  std::vector<double> addend;
  if (options.execution.accumulate && !options.execution.dry_run) {
    addend = read_addend(options, job.problem);
  }
  PlanOptions planned = plan_options(job, options);
  planned.batch = parse_batch_range(options.execution.batch_range, job.problem.N);
  const bool is_part = planned.batch.kind != BatchRange::Kind::all;
  const Plan plan = plan_job(job, planned);
  if (options.execution.dry_run) return planned_report(job, plan, options, is_part);
  if (is_part) {
    check_partial_output(output, output_options);
  } else {
    check_array_output(output, output_options);
    warn_of_endings(options);
  }
  TaskPool pool(plan.threads);
  const std::unique_ptr<BlockSum> sums = make_sum(plan, pool);
  JobTiming timing = {run_job(job, plan, sums.get(), nullptr), 0, part_problem(plan)};
  timing.write_s = is_part ? seconds_of([&] { write_part(output, plan, *sums, output_options); })
                           : write_sums(*sums, job, addend, options, timing.timing);
  if (options.execution.verbose) print_timing(plan, timing);
  auto report = std::make_unique<ComputeReport>(job, plan);
  report->timing = timing;
  report->output = output;
  if (is_part) {
    report->more = {{"part", part_json(plan)}};
  } else if (!options.json.empty()) {
    add_gradient(gradient_target(options), job.problem, report->tensors);
  }
  return report;
}

}  // namespace convgrad::cli
