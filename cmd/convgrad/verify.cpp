// verify.cpp - is a gradient right? Computed here or brought along, against the reference or a
// golden file.
#include <cstdio>

#include "color.hpp"
#include "commands.hpp"
#include "convgrad/compare.hpp"
#include "convgrad/gradient_file.hpp"
#include "convgrad/reference.hpp"
#include "job.hpp"
#include "verify_report.hpp"

namespace convgrad::cli {
namespace {

void check_options(const Options& options) {
  check_stdout_is_free(options);
  const VerifyOptions& v = options.verify;
  if (!v.result.empty() && !options.problem.output.empty()) {
    throw Error(ErrorKind::usage, "--output: given with --result, but then nothing is computed");
  }
  if (options.execution.accumulate) {
    throw Error(ErrorKind::usage, "--accumulate: verify adds nothing to a file; leave it out");
  }
  int stdin_count = 0;
  for (const std::string& path : {options.problem.input, options.problem.out_backprop,
                                  options.problem.filter_like, v.result, v.golden}) {
    stdin_count += path == "-" ? 1 : 0;
  }
  if (stdin_count > 1) {
    throw Error(ErrorKind::usage, "- is given twice, expected one array on standard input");
  }
  if (options.problem.output == "-") {
    throw Error(ErrorKind::usage, "--output -: standard output is for the verdict; name a file");
  }
}

// From the order of dw_shape() to [tap][c][k].
std::vector<double> in_hwio_order(const WgradProblem& problem, const std::vector<double>& values) {
  if (problem.filter_format == FilterFormat::hwio) return values;
  // gather_gradient maps positions; sending positions through it gives the inverse map.
  std::vector<double> positions(values.size()), gathered(values.size()), result(values.size());
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<double>(i);
  gather_gradient(problem, positions.data(), 0, problem.dw_count(), gathered.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    result[static_cast<std::size_t>(gathered[i])] = values[i];
  }
  return result;
}

// What the sums become in a file of the problem's dtype.
std::vector<double> rounded_values(const WgradProblem& problem, const double* dw) {
  std::vector<double> values(dw, dw + problem.dw_count());
  for (double& value : values) value = rounded(problem.out_dtype, value);
  return values;
}

struct Judged {
  std::vector<double> got, want, magnitudes;
  std::string got_name, want_name;
  std::optional<DType> want_dtype;  // of a golden file
};

// Everything that is compared, in [tap][c][k] order.
Judged gather(Job& job, const Options& options, bool needs_reference, Json& report) {
  const VerifyOptions& v = options.verify;
  Judged judged;
  if (!v.result.empty()) {
    const GradientFile file = read_gradient(v.result, job.problem, false);
    job.problem.out_dtype = file.dtype;  // the file's own dtype is what it is judged by
    judged.got = in_hwio_order(job.problem, file.values);
    judged.got_name = v.result;
  }
  if (!v.golden.empty()) {
    const GradientFile file = read_gradient(v.golden, job.problem, false);
    judged.want = in_hwio_order(job.problem, file.values);
    judged.want_name = v.golden;
    judged.want_dtype = file.dtype;
  }
  const bool computes = v.result.empty();
  if (!computes && !needs_reference) return judged;

  const bool only_reference = !computes || job.backend == Backend::reference;
  const Plan plan = plan_job(job, options, needs_reference, only_reference);
  report["execution"] = plan_json(plan);
  TaskPool pool(plan.threads);
  std::optional<GradientSum> gradient;
  std::optional<ReferenceSum> reference;
  if (!only_reference) gradient.emplace(plan, pool);
  if (needs_reference || only_reference) reference.emplace(job.problem, pool);
  const Timing timing =
      run_job(job, plan, gradient ? &*gradient : nullptr, reference ? &*reference : nullptr);
  report["timing_ms"] = timing_json(timing, 0);
  report["perf"] = perf_json(job.problem, timing);
  if (options.execution.verbose) print_timing(plan, timing, 0);
  if (reference) reference->finish();
  if (computes) {
    const double* dw = gradient ? gradient->finish() : reference->values().data();
    judged.got = rounded_values(job.problem, dw);
    judged.got_name = gradient ? std::string(plan.kernel->name) : "reference";
    if (!options.problem.output.empty()) {
      write_gradient(options.problem.output, job.problem, dw, nullptr,
                     {options.execution.no_clobber});
      report["output"] = options.problem.output;
    }
  }
  if (needs_reference) judged.magnitudes = reference->magnitudes();
  if (v.golden.empty()) {
    judged.want = reference->values();
    judged.want_name = "the float64 reference";
  }
  return judged;
}

}  // namespace

int verify(const Options& options, Json& report) {
  if (listed_algorithms(options, report)) return 0;
  check_options(options);
  const VerifyOptions& v = options.verify;
  const Tolerance tolerance = tolerance_of(v);
  Job job = open_job(options, report);
  const bool needs_reference = v.golden.empty() || tolerance.criterion == Criterion::bound;
  if (options.execution.dry_run) {
    const bool only_reference = !v.result.empty() || job.backend == Backend::reference;
    const Plan plan = plan_job(job, options, needs_reference, only_reference);
    report["execution"] = plan_json(plan);
    if (options.json != "-")
      std::fputs(plan_text(plan, options.execution.algorithm).c_str(), stdout);
    return 0;
  }
  if (!options.problem.output.empty()) {
    check_output(options.problem.output, {options.execution.no_clobber});
  }
  const Judged judged = gather(job, options, needs_reference, report);
  report["attrs"] = problem_json(job.problem);  // with the dtype of the result that is judged
  const ErrorModel model = {job.problem.out_dtype, accumulator_dtype(job.problem.dtype),
                            term_count(job.problem)};
  std::optional<ErrorModel> want_model;
  if (judged.want_dtype) want_model = {*judged.want_dtype, model.accumulator, model.terms};
  const Comparison comparison = compare_gradients(judged.got, judged.want, judged.magnitudes,
                                                  job.problem.taps(), model, tolerance, want_model);
  const VerifyReport summary = {job.problem,     comparison,       tolerance,
                                judged.got_name, judged.want_name, report["command_line"]};
  report["compare"] = verify_json(summary);
  report["status"] = comparison.match() ? "match" : "mismatch";
  if (options.json != "-")
    std::fputs(colored_verdict(options, verify_text(summary)).c_str(), stdout);
  return comparison.match() ? 0 : 1;
}

}  // namespace convgrad::cli
