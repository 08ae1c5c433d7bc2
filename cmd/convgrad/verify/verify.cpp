// verify.cpp - is a gradient right? Computed here or given, against the reference or a
// golden file.
#include "verify/verify.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "files/tensor_name.hpp"
#include "job/job_files.hpp"
#include "options/arguments.hpp"
#include "options/attributes.hpp"
#include "report/report.hpp"

namespace convgrad::cli {
namespace {

void check_scope(const VerifyCommand& options) {
  const VerifyOptions& v = options.verify;
  // A variable may hold the seed of other commands, which is no mistake here.
  if (v.seed && !v.sample && options.variables.count("--seed") == 0) {
    misuse("--seed: expected only with --sample");
  }
  check_differences(options);
}

void check_golden(const VerifyCommand& options) {
  const VerifyOptions& v = options.verify;
  if (!v.update_golden) return;
  if (v.golden.empty()) misuse("--update-golden: --golden is missing, expected the file to write");
  if (v.golden == "-") misuse("--golden -: --update-golden needs a file to write");
  if (v.sample)
    misuse("--update-golden: given with --sample, but a golden file needs the full check");
  if (v.results.size() > 1)
    misuse("--update-golden: given with several --result", Hint("name one"));
}

void check_options(const VerifyCommand& options) {
  check_outputs(options);
  const VerifyOptions& v = options.verify;
  if (!v.results.empty() && !options.problem.output.empty()) {
    misuse("--output: given with --result, but then nothing is computed");
  }
  if (options.execution.accumulate) {
    misuse("--accumulate: verify adds nothing to a file", Hint("leave it out"));
  }
  const auto is_input = [](const NamedFile& file) {
    return file.use == FileUse::read && is_standard_input(file.path);
  };
  if (std::ranges::count_if(options.files, is_input) > 1) {
    misuse("- is given twice, expected one array on standard input");
  }
  if (options.problem.output == "-") {
    misuse("--output -: standard output is for the verdict", Hint("name a file"));
  }
  check_scope(options);
  check_golden(options);
}

// Checks what can be seen before anything is computed.
void check_files(const VerifyCommand& options) {
  const VerifyOptions& v = options.verify;
  const OutputOptions output = {options.execution.no_clobber};
  if (!options.problem.output.empty()) {
    check_array_output(options.problem.output, gradient_options(options));
  }
  if (v.update_golden) check_array_output(v.golden, output);
  if (!v.save_diff.empty()) check_array_output(v.save_diff, output);
  warn_of_endings(options);
  if (!v.save_repro.empty()) check_repro_folder(v.save_repro);
}

// Says what a sample leaves out, and which faults it would miss.
Notes coverage(const WgradProblem& problem, const VerifyCommand& options, const Sample& sample) {
  Notes notes;
  if (sample.indices.empty()) return notes;
  const auto chosen = static_cast<std::int64_t>(sample.indices.size());
  const std::int64_t count = problem.dw_count(), seed = options.verify.seed.value_or(1);
  const double share = detectable_share(chosen, count);
  const double cost = static_cast<double>(chosen) * static_cast<double>(term_count(problem));
  std::string line =
      cat("checked: ", chosen, " of ", count, " elements, ", sample.corners,
          " corners among them, seed ", seed, ", ", general(cost, 3), " multiply-adds");
  if (chosen < count) {
    line += cat("; a fault in ", general(100 * share, 3),
                " % of the elements is missed with probability 0.01");
  }
  notes.lines.push_back(line);
  notes.json["sample"] = {{"elements", chosen},        {"of", count},
                          {"corners", sample.corners}, {"seed", seed},
                          {"multiply_adds", cost},     {"detectable_share", share}};
  return notes;
}

// Writes the verified gradient to the golden file, if it is not there already.
Notes update_golden(const VerifyCommand& options, const WgradProblem& problem,
                    const Gradient& result, bool match) {
  const std::string& path = options.verify.golden;
  Notes notes;
  const auto say = [&](const std::string& what, const char* status) {
    notes.lines.push_back(cat("golden: ", path, " ", what));
    notes.json["golden"] = {{"file", path}, {"status", status}};
  };
  if (!match) {
    say("is left as it is: the gradient does not match the reference", "left");
    return notes;
  }
  std::string what = "is written";
  std::error_code ignored;
  const ArrayTarget target = array_target(path);
  if (std::filesystem::exists(target.file, ignored)) {
    // Whatever is not a gradient of this problem is there by mistake, and not replaced.
    Gradient old = read_in_order(target.readable_name(), problem);
    Expected expected;
    expected.values = std::move(old.values);
    const Comparison change = compare_gradients(problem, problem.out_dtype, {}, result.values,
                                                expected, {.criterion = Criterion::bitwise});
    if (change.match() && old.dtype == problem.out_dtype) {
      say("holds it already, to the bit", "unchanged");
      return notes;
    }
    what = cat("is written: ", change.mismatches, " of ", change.count, " elements change");
    if (old.dtype != problem.out_dtype) what += cat(", ", dtype_name(old.dtype), " before");
  }
  write_gradient(path, problem, result.values.data(), nullptr, {options.execution.no_clobber});
  say(what, "written");
  return notes;
}

// Returns the element that a small problem is about: the first that fails, or the most wrong one.
std::int64_t worst_element(const Comparison& comparison) {
  if (comparison.mismatches == 0) return comparison.ratio.index;
  return comparison.ratio.value > 1 ? comparison.ratio.index : comparison.first_mismatch.index;
}

// Returns the results, and a golden file that is judged as they are.
std::vector<const Gradient*> subjects_of(const Judged& judged, const Tolerance& tolerance) {
  std::vector<const Gradient*> subjects;
  for (const Gradient& result : judged.results) subjects.push_back(&result);
  if (judged.golden && tolerance.needs_terms()) subjects.push_back(&*judged.golden);
  return subjects;
}

// Says how far a golden file that is judged by itself is from the first result.
Notes golden_difference(const Judged& judged, const Tolerance& tolerance) {
  Notes notes;
  if (!judged.golden || !tolerance.needs_terms()) return notes;
  const Gradient& result = judged.results[0];
  Expected golden;
  golden.values = judged.golden->values;
  const Comparison c = compare_gradients(judged.problem, result.dtype, judged.sample.indices,
                                         result.values, golden, {.criterion = Criterion::bitwise});
  notes.lines.push_back(
      c.mismatches == 0
          ? cat(result.name, " against ", judged.golden->name, ": every bit equal")
          : cat(result.name, " against ", judged.golden->name, ": ", c.mismatches, " of ", c.count,
                " elements differ, they agree to ", agreement_text(c.relative_error)));
  return notes;
}

// Looks for the fault after a mismatch, and writes a small problem.
void explain(Job& job, const Judged& judged, const Verdicts& verdicts,
             const std::vector<const Gradient*>& subjects, VerifyReport& report) {
  const VerifyCommand& options = report.options;
  const Expected& expected = verdicts.expected(judged);
  std::vector<const Gradient*> wrong;
  for (std::size_t i = 0; i < verdicts.all.size() && wrong.size() < kMaxExplained; ++i) {
    if (!verdicts.all[i].comparison.match()) wrong.push_back(subjects[i]);
  }
  if (wrong.empty()) return;
  if (options.verify.diagnosis) {
    report.diagnosis = diagnose_mismatch(job, options, judged, expected, wrong);
  }
  if (!options.verify.save_repro.empty()) {
    report.repro = save_repro(job, options, judged, expected, *wrong[0], report.tolerance,
                              worst_element(report.comparison()));
  }
}

}  // namespace

ReportPointer verify(const VerifyCommand& options) {
  if (ReportPointer listed = listed_algorithms(options)) return listed;
  const VerifyOptions& v = options.verify;
  const Tolerance tolerance = judged_by(v);
  check_options(options);
  Job job = open_job(options);
  const bool needs_reference = v.golden.empty() || v.update_golden || tolerance.needs_terms();
  if (options.execution.dry_run) {
    const Plan plan = plan_check(job, options, needs_reference);
    auto report = std::make_unique<PlanReport>(job, plan);
    report->lines = plan_text(job, plan, options.execution.algorithm);
    return report;
  }
  check_files(options);
  const Judged judged = gather(job, options, needs_reference);
  const std::vector<const Gradient*> subjects = subjects_of(judged, tolerance);
  const Verdicts verdicts = judge(job, options, judged, tolerance, subjects);
  const Expected& expected = verdicts.expected(judged);
  auto report = std::make_unique<VerifyReport>();
  report->problem = judged.problem;
  report->tolerance = tolerance;
  report->options = options;
  report->tensors = judged.tensors;
  report->pass = judged.pass;
  report->verdicts = verdicts.all;
  const bool only_zeros = !needs_reference && verdicts.all[0].comparison.all_zero;
  report->vacuous = only_zeros ? "every expected value is 0" : judged.vacuous;
  report->not_tested = judged.not_tested;
  report->coverage = coverage(judged.problem, options, judged.sample);
  report->notes.add(golden_difference(judged, tolerance));
  if (judged.results.size() > 1) report->notes.add(run_to_run(judged, expected, tolerance));
  report->notes.add(differences(options, judged, expected, tolerance));
  explain(job, judged, verdicts, subjects, *report);
  if (v.update_golden) {
    report->notes.add(update_golden(options, judged.problem, judged.results[0], report->matches()));
  }
  return report;
}

}  // namespace convgrad::cli
