// verify.cpp - is a gradient right? Computed here or given, against the reference or a
// golden file.
#include "verify/verify.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "files/tensor_name.hpp"
#include "job/attributes.hpp"
#include "job/job_files.hpp"
#include "options/refuse.hpp"
#include "report/report.hpp"

namespace convgrad::cli {
namespace {

void check_scope(const VerifyCommand& options) {
  const VerifyOptions& v = options.verify;
  // A variable or a file may hold one for whoever wants it.
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
  if (v.results.size() > 1) misuse("--update-golden: given with several --result; name one");
}

void check_options(const VerifyCommand& options) {
  check_outputs(options);
  const VerifyOptions& v = options.verify;
  if (!v.results.empty() && !options.problem.output.empty()) {
    misuse("--output: given with --result, but then nothing is computed");
  }
  if (options.execution.accumulate) {
    misuse("--accumulate: verify adds nothing to a file; leave it out");
  }
  const auto is_input = [](const NamedFile& file) {
    return file.use == FileUse::read && is_standard_input(file.path);
  };
  if (std::ranges::count_if(options.files, is_input) > 1) {
    misuse("- is given twice, expected one array on standard input");
  }
  if (options.problem.output == "-") {
    misuse("--output -: standard output is for the verdict; name a file");
  }
  check_scope(options);
  check_golden(options);
}

// What can be seen before anything is computed.
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

// What a sample leaves out, and which faults it would miss.
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

// The verified gradient goes to the golden file, if it is not there already.
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

// The element that a small problem is about: the first that fails, or the one that is most off.
std::int64_t worst_element(const Comparison& comparison) {
  if (comparison.mismatches == 0) return comparison.ratio.index;
  return comparison.ratio.value > 1 ? comparison.ratio.index : comparison.first_mismatch.index;
}

// Results, and a golden file that is judged as they are.
std::vector<const Gradient*> subjects_of(const Judged& judged, const Tolerance& tolerance) {
  std::vector<const Gradient*> subjects;
  for (const Gradient& result : judged.results) subjects.push_back(&result);
  if (judged.golden && tolerance.needs_terms()) subjects.push_back(&*judged.golden);
  return subjects;
}

std::vector<Compared> verdicts_of(const WgradProblem& problem, const Judged& judged,
                                  const Tolerance& tolerance) {
  std::vector<Compared> verdicts;
  const bool golden = judged.golden && !tolerance.needs_terms();
  for (const Gradient* subject : subjects_of(judged, tolerance)) {
    verdicts.push_back({subject->name, golden ? judged.golden->name : kReferenceName,
                        subject->dtype,
                        compare_gradients(problem, subject->dtype, judged.sample.indices,
                                          subject->values, judged.expected, tolerance)});
  }
  return verdicts;
}

// How far a golden file that is judged by itself is from the first result.
Notes golden_difference(const WgradProblem& problem, const Judged& judged,
                        const Tolerance& tolerance) {
  Notes notes;
  if (!judged.golden || !tolerance.needs_terms()) return notes;
  const Gradient& result = judged.results[0];
  Expected golden;
  golden.values = judged.golden->values;
  const Comparison c = compare_gradients(problem, result.dtype, judged.sample.indices,
                                         result.values, golden, {.criterion = Criterion::bitwise});
  notes.lines.push_back(
      c.mismatches == 0
          ? cat(result.name, " against ", judged.golden->name, ": every bit equal")
          : cat(result.name, " against ", judged.golden->name, ": ", c.mismatches, " of ", c.count,
                " elements differ, they agree to ", agreement_text(c.relative_error)));
  return notes;
}

// After a mismatch: the fault, and a small problem.
Notes explain(Job& job, const VerifyCommand& options, const Judged& judged,
              const Tolerance& tolerance, const std::vector<Compared>& verdicts) {
  Notes notes;
  const std::vector<const Gradient*> subjects = subjects_of(judged, tolerance);
  std::vector<const Gradient*> wrong;
  const Compared* first = nullptr;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    if (verdicts[i].comparison.match()) continue;
    if (first == nullptr) first = &verdicts[i];
    if (wrong.size() < kMaxExplained) wrong.push_back(subjects[i]);
  }
  if (first == nullptr) return notes;
  if (options.verify.diagnosis) notes.add(diagnose_mismatch(job, options, judged, wrong));
  if (!options.verify.save_repro.empty()) {
    notes.add(
        save_repro(job, options, judged, *wrong[0], tolerance, worst_element(first->comparison)));
  }
  return notes;
}

}  // namespace

int verify(const VerifyCommand& options, Json& report) {
  if (listed_algorithms(options, report)) return 0;
  const VerifyOptions& v = options.verify;
  const Tolerance tolerance = judged_by(v);
  check_options(options);
  Job job = open_job(options, report);
  const bool needs_reference = v.golden.empty() || v.update_golden || tolerance.needs_terms();
  if (options.execution.dry_run) {
    const Plan plan = plan_check(job, options, needs_reference);
    report["execution"] = plan_json(plan);
    if (options.json != "-")
      std::fputs(plan_text(job, plan, options.execution.algorithm).c_str(), stdout);
    return 0;
  }
  check_files(options);
  Judged judged = gather(job, options, needs_reference, report);
  report["attrs"] = problem_json(job.problem);  // with the dtype of the result that is judged
  std::vector<Compared> verdicts = verdicts_of(job.problem, judged, tolerance);
  judge_other_orders(job, options, judged, tolerance, subjects_of(judged, tolerance), verdicts);
  VerifyReport summary{job.problem, tolerance, verdicts, options};
  summary.vacuous = judged.vacuous;
  summary.not_tested = judged.not_tested;
  if (!needs_reference && verdicts[0].comparison.all_zero) {
    summary.vacuous = "every expected value is 0";
  }
  while (summary.shown + 1 < verdicts.size() && verdicts[summary.shown].comparison.match()) {
    ++summary.shown;
  }
  if (verdicts[summary.shown].comparison.match()) summary.shown = 0;
  summary.coverage = coverage(job.problem, options, judged.sample);
  summary.notes.add(golden_difference(job.problem, judged, tolerance));
  if (judged.results.size() > 1) summary.notes.add(run_to_run(job.problem, judged, tolerance));
  summary.notes.add(differences(job.problem, options, judged, tolerance));
  summary.explained.add(explain(job, options, judged, tolerance, verdicts));
  const bool match = matches(summary);
  if (v.update_golden) {
    summary.notes.add(update_golden(options, job.problem, judged.results[0], match));
  }
  report["compare"] = verify_json(summary);
  if (options.json != "-") {
    std::fputs(colored_verdict(options, verify_text(summary)).c_str(), stdout);
  }
  report["status"] = match ? "match" : "mismatch";
  return match ? 0 : 1;
}

}  // namespace convgrad::cli
