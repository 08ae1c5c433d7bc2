// verify.cpp - is a gradient right? Computed here or given, against the reference or a
// golden file.
#include "verify/verify.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/suggest.hpp"
#include "job/attributes.hpp"
#include "job/job_files.hpp"
#include "report/color.hpp"
#include "verify/repro.hpp"
#include "verify/verify_adjoint.hpp"
#include "verify/verify_check.hpp"
#include "verify/verify_diagnosis.hpp"
#include "verify/verify_repeat.hpp"
#include "verify/verify_report.hpp"

namespace convgrad::cli {
namespace {

// Elements that are computed after --reference adjoint has found a mismatch.
constexpr std::int64_t kElementsAfterMismatch = 64;

[[noreturn]] void misuse(const std::string& message) { throw Error(ErrorKind::usage, message); }

void check_scope(const Options& options, const Tolerance& tolerance) {
  const VerifyOptions& v = options.verify;
  const std::vector<std::string> references = {"full", "adjoint"};
  if (v.reference != "full" && v.reference != "adjoint") {
    misuse(cat("--reference: '", v.reference, "' is unknown, expected ", join_or(references),
               did_you_mean(v.reference, references)));
  }
  const bool adjoint = v.reference == "adjoint";
  if (adjoint && v.sample) misuse("--sample and --reference adjoint exclude each other");
  if (adjoint && !v.golden.empty()) {
    misuse("--golden: given with --reference adjoint, which compares with no gradient");
  }
  if (adjoint && tolerance.criterion != Criterion::bound) {
    misuse(
        "--reference adjoint has an error bound of its own; leave out --rtol, --atol, "
        "--max-ulp and --bitwise");
  }
  // A variable or a file may hold one for whoever wants it.
  if (v.seed && !v.sample && !adjoint && options.origins.count("--seed") == 0) {
    misuse("--seed: expected only with --sample or --reference adjoint");
  }
  if (v.repeat_check && !v.result.empty()) {
    misuse("--repeat-check: given with --result, but then nothing is computed");
  }
}

void check_golden(const Options& options) {
  const VerifyOptions& v = options.verify;
  if (!v.update_golden) {
    if (same_file(options.problem.output, v.golden)) {
      misuse(cat("--output: ", options.problem.output,
                 " is the --golden file too, which it would replace; name another"));
    }
    return;
  }
  if (v.golden.empty()) misuse("--update-golden: --golden is missing, expected the file to write");
  if (v.golden == "-") misuse("--golden -: --update-golden needs a file to write");
  if (v.sample)
    misuse("--update-golden: given with --sample, but a golden file needs the full check");
  for (const auto& [flag, path] :
       {std::pair{"--input", &options.problem.input},
        std::pair{"--out-backprop", &options.problem.out_backprop},
        std::pair{"--result", &v.result}, std::pair{"--output", &options.problem.output}}) {
    if (same_file(v.golden, *path)) {
      misuse(cat("--golden: ", v.golden, " is the ", flag,
                 " file too, which --update-golden would replace"));
    }
  }
}

void check_options(const Options& options, const Tolerance& tolerance) {
  check_stdout_is_free(options);
  const VerifyOptions& v = options.verify;
  if (!v.result.empty() && !options.problem.output.empty()) {
    misuse("--output: given with --result, but then nothing is computed");
  }
  if (options.execution.accumulate) {
    misuse("--accumulate: verify adds nothing to a file; leave it out");
  }
  int stdin_count = 0;
  for (const std::string& path : {options.problem.input, options.problem.out_backprop,
                                  options.problem.filter_like, v.result, v.golden}) {
    stdin_count += path == "-" ? 1 : 0;
  }
  if (stdin_count > 1) misuse("- is given twice, expected one array on standard input");
  if (options.problem.output == "-") {
    misuse("--output -: standard output is for the verdict; name a file");
  }
  check_scope(options, tolerance);
  check_golden(options);
}

// What can be seen before anything is computed.
void check_files(const Job& job, const Options& options) {
  const VerifyOptions& v = options.verify;
  if (!options.problem.output.empty()) {
    check_output(options.problem.output, {options.execution.no_clobber});
  }
  if (v.update_golden) check_output(v.golden, {options.execution.no_clobber});
  if (!v.save_repro.empty()) check_repro_folder(v.save_repro);
  if (v.repeat_check) {
    const std::string once = why_read_once(job);
    if (!once.empty()) {
      throw Error(ErrorKind::input, "--repeat-check: ", once, "; save it to a file first");
    }
  }
}

// What a sample leaves out, and which faults it would miss.
Notes coverage(const WgradProblem& problem, const Options& options, const Sample& sample) {
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
Notes update_golden(const Options& options, const WgradProblem& problem, const Judged& judged,
                    bool match) {
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
  if (std::filesystem::exists(path, ignored)) {
    // Whatever is not a gradient of this problem is there by mistake, and not replaced.
    const GradientFile old = read_in_order(path, problem);
    const Comparison change =
        compare_gradients(judged.got, old.values, {}, problem.taps(), error_model(problem),
                          {Criterion::bitwise, 0, 0, 0});
    if (change.match() && old.dtype == problem.out_dtype) {
      say("holds it already, to the bit", "unchanged");
      return notes;
    }
    what = cat("is written: ", change.mismatches, " of ", change.count, " elements change");
    if (old.dtype != problem.out_dtype) what += cat(", ", dtype_name(old.dtype), " before");
  }
  write_gradient(path, problem, judged.got.data(), nullptr, {options.execution.no_clobber});
  say(what, "written");
  return notes;
}

// The element that a small problem is about.
std::int64_t worst_element(const Comparison& comparison, const Tolerance& tolerance) {
  const bool by_ratio = tolerance.criterion == Criterion::bound && comparison.ratio.value > 1;
  return by_ratio ? comparison.ratio.index : comparison.first_mismatch.index;
}

Comparison compare_judged(const WgradProblem& problem, const Judged& judged,
                          const Tolerance& tolerance) {
  const std::vector<std::int64_t>& indices = judged.sample.indices;
  if (indices.empty()) {
    return compare_gradients(judged.got, judged.want, judged.magnitudes, problem.taps(),
                             error_model(problem), tolerance, want_model(problem, judged));
  }
  return compare_entries(indices, problem.group_c() * problem.K, judged.got, judged.want,
                         judged.magnitudes, problem.taps(), error_model(problem), tolerance,
                         want_model(problem, judged));
}

// After a mismatch: the fault, and a small problem.
Notes explain(Job& job, const Options& options, const Judged& judged, const Tolerance& tolerance,
              const Comparison& comparison) {
  Notes notes;
  if (comparison.match()) return notes;
  if (options.verify.diagnosis) notes.add(diagnose_mismatch(job, options, judged));
  if (!options.verify.save_repro.empty()) {
    notes.add(save_repro(job, options, judged, tolerance, worst_element(comparison, tolerance)));
  }
  return notes;
}

int verify_by_comparison(Job& job, const Options& options, const Judged& judged,
                         const Tolerance& tolerance, Json& report) {
  const Comparison comparison = compare_judged(job.problem, judged, tolerance);
  Notes notes;
  if (options.verify.repeat_check) notes.add(repeat_check(job, options, judged));
  const bool match = comparison.match() && !notes.failed;
  notes.add(explain(job, options, judged, tolerance, comparison));
  if (options.verify.update_golden) {
    notes.add(update_golden(options, job.problem, judged, match));
  }
  const VerifyReport summary = {
      job.problem,     comparison,          tolerance,
      judged.got_name, judged.want_name,    coverage(job.problem, options, judged.sample),
      notes,           options.command_line};
  report["compare"] = verify_json(summary);
  if (options.json != "-")
    std::fputs(colored_verdict(options, verify_text(summary)).c_str(), stdout);
  return match ? 0 : 1;
}

// Some elements, exactly: those that the equalities point at, and others.
Judged exact_sample(Job& job, const Options& options, const Judged& judged) {
  Judged result;
  result.got_name = judged.got_name;
  result.kernel = judged.kernel;
  std::vector<std::int64_t>& indices = result.sample.indices;
  indices = choose_entries(job.problem, kElementsAfterMismatch, 1).indices;
  indices.insert(indices.end(), judged.adjoint->suspects.begin(), judged.adjoint->suspects.end());
  for (std::size_t i = 0; i < judged.got.size() && indices.size() < 4 * kElementsAfterMismatch;
       ++i) {
    if (!std::isfinite(judged.got[i])) indices.push_back(static_cast<std::int64_t>(i));
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  ExactEntries exact = exact_entries(job, options, indices);
  result.want = std::move(exact.values);
  result.magnitudes = std::move(exact.magnitudes);
  for (const std::int64_t index : indices) {
    result.got.push_back(judged.got[static_cast<std::size_t>(index)]);
  }
  return result;
}

int verify_by_adjoint(Job& job, const Options& options, const Judged& judged,
                      const Tolerance& tolerance, Json& report) {
  Notes notes;
  if (options.verify.repeat_check) notes.add(repeat_check(job, options, judged));
  std::optional<Comparison> exact;
  if (!judged.adjoint->match() && why_read_once(job).empty()) {
    const Judged sample = exact_sample(job, options, judged);
    exact = compare_judged(job.problem, sample, tolerance);
    if (exact->match()) {
      notes.lines.push_back(cat("none of ", sample.got.size(),
                                " elements that were then computed exactly is wrong; --sample "
                                "takes more"));
    }
    notes.add(explain(job, options, sample, tolerance, *exact));
  }
  const AdjointReport summary = {job.problem,
                                 *judged.adjoint,
                                 judged.got_name,
                                 options.verify.seed.value_or(1),
                                 exact ? &*exact : nullptr,
                                 notes,
                                 options.command_line};
  report["compare"] = adjoint_json(summary);
  if (options.json != "-")
    std::fputs(colored_verdict(options, adjoint_text(summary)).c_str(), stdout);
  return judged.adjoint->match() && !notes.failed ? 0 : 1;
}

int verify_into(const Options& options, Json& report) {
  if (listed_algorithms(options, report)) return 0;
  const VerifyOptions& v = options.verify;
  const Tolerance tolerance = tolerance_of(v);
  check_options(options, tolerance);
  Job job = open_job(options, report);
  const bool needs_reference =
      v.golden.empty() || v.update_golden || tolerance.criterion == Criterion::bound;
  if (options.execution.dry_run) {
    const Plan plan = plan_check(job, options, needs_reference);
    report["execution"] = plan_json(plan);
    if (options.json != "-")
      std::fputs(plan_text(job, plan, options.execution.algorithm).c_str(), stdout);
    return 0;
  }
  check_files(job, options);
  const Judged judged = gather(job, options, needs_reference, report);
  report["attrs"] = problem_json(job.problem);  // with the dtype of the result that is judged
  const int status = judged.adjoint ? verify_by_adjoint(job, options, judged, tolerance, report)
                                    : verify_by_comparison(job, options, judged, tolerance, report);
  report["status"] = status == 0 ? "match" : "mismatch";
  return status;
}

}  // namespace

CommandResult verify(const Options& options) { return result_of(verify_into, options); }

}  // namespace convgrad::cli
