// compute.cpp - the main job: a filter gradient from .npy to .npy.
#include <cstdio>

#include "commands.hpp"
#include "convgrad/clock.hpp"
#include "convgrad/gradient_file.hpp"
#include "convgrad/reference.hpp"
#include "job.hpp"

namespace convgrad::cli {
namespace {

void check_output_options(const Options& options) {
  check_required(options.problem);
  const std::string& output = options.problem.output;
  if (output.empty() && !options.execution.dry_run) {
    throw Error(ErrorKind::usage, "--output is missing, expected a .npy file or -");
  }
  if (options.execution.accumulate && output == "-") {
    throw Error(ErrorKind::usage, "--accumulate: --output is -, expected a file to add to");
  }
  if (options.execution.accumulate && options.execution.no_clobber) {
    throw Error(ErrorKind::usage, "--accumulate and --no-clobber exclude each other");
  }
  check_stdout_is_free(options);
}

std::vector<double> read_addend(const std::string& path, const WgradProblem& problem) {
  try {
    return read_gradient(path, problem, true).values;
  } catch (const Error& error) {
    throw Error(error.kind(),
                cat("--accumulate: ", error.what(), "; compute it once without --accumulate"));
  }
}

// Both kinds of sums, behind one interface; exactly one of them exists.
struct Sums {
  std::optional<GradientSum> gradient;
  std::optional<ReferenceSum> reference;

  Sums(const Plan& plan, TaskPool& pool) {
    if (plan.kernel != nullptr || plan.device_kernel != nullptr) {
      gradient.emplace(plan, pool);
    } else {
      reference.emplace(plan.problem, pool);
    }
  }
  Timing run(Job& job, const Plan& plan) {
    return run_job(job, plan, gradient ? &*gradient : nullptr, reference ? &*reference : nullptr);
  }
  const double* finish() {
    if (gradient) return gradient->finish();
    reference->finish();
    return reference->values().data();
  }
};

}  // namespace

int compute(const Options& options, Json& report) {
  if (listed_algorithms(options, report)) return 0;
  check_output_options(options);
  const std::string& output = options.problem.output;
  const OutputOptions output_options{options.execution.no_clobber};
  Job job = open_job(options, report);
  std::vector<double> addend;
  if (options.execution.accumulate && !options.execution.dry_run) {
    addend = read_addend(output, job.problem);
  }
  const Plan plan = plan_job(job, options, false, job.backend == Backend::reference);
  report["execution"] = plan_json(plan);
  if (options.execution.dry_run) {
    if (options.json != "-")
      std::fputs(plan_text(job, plan, options.execution.algorithm).c_str(), stdout);
    return 0;
  }
  check_output(output, output_options);
  TaskPool pool(plan.threads);
  Sums sums(plan, pool);
  Timing timing = sums.run(job, plan);
  const double* dw = nullptr;
  const double finish_s = seconds_of([&] { dw = sums.finish(); });
  timing.kernel_s += finish_s;
  timing.total_s += finish_s;
  const double write_s = seconds_of([&] {
    write_gradient(output, job.problem, dw, addend.empty() ? nullptr : addend.data(),
                   output_options);
  });
  report["timing_ms"] = timing_json(timing, write_s);
  report["perf"] = perf_json(job.problem, timing);
  report["output"] = output;
  if (!options.json.empty()) add_gradient(output, job.problem, report);
  if (options.execution.verbose) print_timing(plan, timing, write_s);
  return 0;
}

}  // namespace convgrad::cli
