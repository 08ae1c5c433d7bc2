// verify.cpp - is a gradient right? Computed here or given, against the reference or a
// golden file.
#include "verify/verify.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "files/tensor_source.hpp"
#include "generate/signs.hpp"
#include "job/job_files.hpp"
#include "options/arguments.hpp"
#include "options/problems.hpp"

namespace convgrad::cli {
namespace {

void save_difference(const WgradProblem& problem, const VerifyCommand& options, const Gradient& got,
                     const std::vector<double>& want) {
  std::vector<double> difference(want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double target = rounded(got.dtype, want[i]);
    const bool equal = got.values[i] == target || (std::isnan(got.values[i]) && std::isnan(target));
    difference[i] = equal ? 0 : got.values[i] - want[i];
  }
  WgradProblem file = problem;
  file.out_dtype = got.dtype == DType::f64 ? DType::f64 : DType::f32;
  write_gradient(options.verify.save_diff, file, difference.data(), {options.execution.no_clobber});
}

// Both sides have errors, each of the scale, and each is rounded to its dtype at the end.
Expected of_two_runs(const Expected& expected, const Gradient& run) {
  Expected result;
  result.values = run.values;
  result.magnitudes = expected.magnitudes;
  for (std::size_t i = 0; i < expected.scales.size(); ++i) {
    const double step = rounding_step(run.dtype, run.values[i]);
    const double scale = expected.scales[i];
    result.scales.push_back(std::sqrt(2 * scale * scale + step * step / 12));
    result.limits.push_back(2 * expected.limits[i] + step);
  }
  result.squares = expected.squares;
  return result;
}

// Judges gradients, and says what is to say of them.
class VerifyCase {
 public:
  // Refers to all that it is given.
  VerifyCase(Job& job, const VerifyCommand& options, const Tolerance& tolerance,
             bool needs_reference)
      : job_(job),
        options_(options),
        v_(options.verify),
        tolerance_(tolerance),
        judged_(gather(job, options, needs_reference)),
        rereader_(job, options) {
    for (const Gradient& result : judged_.results) subjects_.push_back(&result);
    // By the reference a golden file is judged as results are.
    if (judged_.golden && tolerance.needs_terms()) subjects_.push_back(&*judged_.golden);
    std::vector<Subject> values;
    values.reserve(subjects_.size());
    for (const Gradient* subject : subjects_) values.push_back({subject->dtype, subject->values});
    const Rules rules = {tolerance_, summation_of(job_, options_), v_.order != "natural"};
    Passes passes = rereader_.passes();
    verdicts_ = judge(judged_.problem, judged_.sample.indices, judged_.expected, values, rules,
                      why_read_once(job_).empty() ? &passes : nullptr);
  }

  ReportPointer report() {
    auto report = std::make_unique<VerifyReport>();
    static_cast<JudgedCase&>(*report) = judged_;
    report->tolerance = tolerance_;
    report->options = options_;
    const bool by_golden = judged_.golden && !tolerance_.needs_terms();
    const std::string& want = by_golden ? judged_.golden->name : kReferenceName;
    for (std::size_t i = 0; i < subjects_.size(); ++i) {
      report->verdicts.push_back({verdicts_.all[i], subjects_[i]->name, want, subjects_[i]->dtype});
    }
    const Verdict& first = report->verdicts[0];
    if (report->vacuous.empty()) report->vacuous = first.vacuous;
    if (by_golden && first.comparison.all_zero) report->vacuous = "every expected value is 0";
    report->wrong_dtype = wrong_dtype();
    if (!judged_.sample.indices.empty()) cover(report->coverage);
    if (judged_.golden && tolerance_.needs_terms()) compare_golden(report->notes);
    if (judged_.results.size() > 1) compare_runs(report->notes);
    if (v_.show) list_worst(*v_.show, report->notes);
    if (!v_.save_diff.empty()) {
      save_difference(judged_.problem, options_, judged_.results[0], expected().values);
    }
    explain(*report);
    if (v_.update_golden) update_golden(report->matches(), report->notes);
    return report;
  }

 private:
  const Expected& expected() const { return verdicts_.wide ? *verdicts_.wide : judged_.expected; }

  // Returns what a result's dtype should not be, or "": other than what was asked for or, if
  // nothing was, narrower than the data.
  std::string wrong_dtype() const {
    const ProblemOptions& o = options_.problem;
    const DType data = job_.problem.dtype, asked = job_.problem.out_dtype;
    const bool is_asked = !o.out_dtype.empty() || o.line.find("->") != o.line.npos;
    for (std::size_t i = 0; i < v_.results.size(); ++i) {
      const Gradient& result = judged_.results[i];
      const std::string_view name = dtype_name(result.dtype);
      if (is_asked && result.dtype != asked) {
        return cat(result.name, " is ", name, ", expected ", dtype_name(asked));
      }
      if (!is_asked && unit_roundoff(result.dtype) > unit_roundoff(data)) {
        return cat(result.name, " is ", name, ", narrower than the ", dtype_name(data),
                   " data (--out-dtype ", name, " if that is meant)");
      }
    }
    return "";
  }

  // Says what a sample leaves out, and which faults it would miss.
  void cover(Notes& notes) const {
    const Sample& sample = judged_.sample;
    const std::int64_t chosen = std::ssize(sample.indices), count = job_.problem.dw_count();
    const std::int64_t seed = v_.seed.value_or(1);
    const double share = detectable_share(chosen, count);
    const double cost = static_cast<double>(chosen) * static_cast<double>(term_count(job_.problem));
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
  }

  // Compares numbers with others, bit by bit.
  Comparison bits(const Gradient& got, std::vector<double> want) const {
    Expected expected;
    expected.values = std::move(want);
    return compare_gradients(judged_.problem, got.dtype, judged_.sample.indices, got.values,
                             expected, {.criterion = Criterion::bitwise});
  }

  // Says how far a golden file that is judged by itself is from the first result.
  void compare_golden(Notes& notes) const {
    const Gradient& result = judged_.results[0];
    const Comparison c = bits(result, judged_.golden->values);
    notes.lines.push_back(cat(result.name, " against ", judged_.golden->name,
                              c.mismatches == 0 ? std::string(": every bit equal")
                                                : cat(": ", c.mismatches, " of ", c.count,
                                                      " elements differ, they agree to ",
                                                      agreement_text(c.relative_error))));
  }

  // Returns what an element is off by: in units of rounding where that is known, else |got - want|.
  double badness(const Gradient& got, std::size_t at) const {
    const Expected& e = expected();
    if (!tolerance_.needs_terms()) {
      const double error = std::fabs(got.values[at] - e.values[at]);
      return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    }
    return unexplained_error(got.dtype, got.values[at], e.values[at],
                             e.tails.empty() ? 0 : e.tails[at]) /
           e.scales[at];
  }

  // Lists the elements of the first gradient that are most off.
  void list_worst(std::int64_t count, Notes& notes) const {
    const Gradient& got = judged_.results[0];
    const WgradProblem& pb = judged_.problem;
    const std::vector<double>& want = expected().values;
    // The worst first, of equal ones the first.
    std::vector<std::pair<double, std::size_t>> order(want.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = {-badness(got, i), i};
    const auto shown = std::min(order.size(), static_cast<std::size_t>(count));
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown),
                      order.end());
    const bool terms = tolerance_.needs_terms();
    notes.lines.push_back(cat("most off: ", shown, " elements"));
    Json& list = notes.json["most_off"] = Json::array();
    for (std::size_t i = 0; i < shown; ++i) {
      const std::size_t at = order[i].second;
      const std::int64_t index = index_at(judged_.sample.indices, at);
      const double off = -order[i].first;
      notes.lines.push_back(cat("  ", element_text(pb, index), " got ", general(got.values[at], 9),
                                ", want ", general(want[at], 9), ", off by ", general(off, 3),
                                terms ? " times rounding's" : ""));
      list.push_back({{"index", element_position(pb, index)},
                      {"got", number(got.values[at])},
                      {"want", number(want[at])},
                      {terms ? "rounding" : "abs", number(off)}});
    }
  }

  // Counts the elements that are not the same in all runs.
  std::int64_t differing() const {
    const std::vector<Gradient>& runs = judged_.results;
    std::int64_t count = 0;
    for (std::size_t i = 0; i < runs[0].values.size(); ++i) {
      const auto same = [&](const Gradient& run) {
        return same_bits(run.values[i], runs[0].values[i]);
      };
      count += std::ranges::all_of(runs, same) ? 0 : 1;
    }
    return count;
  }

  // Returns the run that is furthest from the first.
  Compared furthest() const {
    const Gradient& first = judged_.results[0];
    Tolerance rounding = tolerance_;
    Expected expected_of_first;
    if (tolerance_.needs_terms()) {
      rounding.criterion = Criterion::rounding;
      expected_of_first = of_two_runs(expected(), first);
    } else {
      expected_of_first.values = first.values;
    }
    Compared worst;
    const auto size = [&](const Comparison& c) {
      return c.rounding ? c.rounding->worst.score() : c.relative_error;
    };
    for (std::size_t i = 1; i < judged_.results.size(); ++i) {
      const Gradient& run = judged_.results[i];
      Comparison comparison = compare_gradients(judged_.problem, run.dtype, judged_.sample.indices,
                                                run.values, expected_of_first, rounding);
      if (i > 1 && !(size(comparison) > size(worst.comparison))) continue;
      worst = {{std::move(comparison)}, run.name, first.name, run.dtype};
    }
    return worst;
  }

  // Says whether several --result have the same bits, or differ as sums in other orders do, or by
  // more, which fails.
  void compare_runs(Notes& notes) const {
    const std::int64_t count = differing();
    const auto elements = static_cast<std::int64_t>(judged_.results[0].values.size());
    const std::string runs = cat("runs: ", judged_.results.size(), " results");
    Json& json = notes.json["runs"];
    json = {{"runs", judged_.results.size()}, {"differing", count}, {"of", elements}};
    if (count == 0) {
      notes.lines.push_back(cat(runs, ", every bit equal"));
      json["verdict"] = "equal";
      return;
    }
    const Compared worst = furthest();
    const Comparison& c = worst.comparison;
    const bool known = c.rounding.has_value(), within = c.match();
    notes.failed = !within;
    std::string line = cat(runs, " differ in ", count, " of ", elements, " elements; ", worst.got,
                           " and ", worst.want, " agree to ", agreement_text(c.relative_error));
    if (known) line += cat(", differences are ", group_text(judged_.problem, c.rounding->worst));
    notes.lines.push_back(line);
    notes.lines.push_back(
        cat("they differ from run to run ", within ? "within " : "beyond ",
            known ? "rounding" : "the tolerance",
            within ? ": order of sums, atomics" : ": a race, or memory that is not initialised"));
    json["verdict"] = within ? "within rounding" : "beyond rounding";
    json["furthest"] = {{"got", worst.got}, {"want", worst.want}};
    json["relative_error"] = number(c.relative_error);
    json["max_ulp"] = number(c.ulp.value);
    if (known) {
      json["score"] = number(c.rounding->worst.score());
      json["taps"] = taps_json(judged_.problem, c, true);
    }
  }

  // Writes the verified gradient to the golden file, if it is not there already.
  void update_golden(bool match, Notes& notes) const {
    const std::string& path = v_.golden;
    const Gradient& result = judged_.results[0];
    const WgradProblem& problem = judged_.problem;
    const auto say = [&](const std::string& what, const char* status) {
      notes.lines.push_back(cat("golden: ", path, " ", what));
      notes.json["golden"] = {{"file", path}, {"status", status}};
    };
    if (!match) return say("is left as it is: the gradient does not match the reference", "left");
    std::string what = "is written";
    std::error_code ignored;
    const ArrayTarget target = array_target(path);
    if (std::filesystem::exists(target.file, ignored)) {
      // Whatever is not a gradient of this problem is there by mistake, and not replaced.
      GradientFile old = read_gradient(target.readable_name(), problem);
      const Comparison change = bits(result, std::move(old.values));
      if (change.match() && old.dtype == problem.out_dtype) {
        return say("holds it already, to the bit", "unchanged");
      }
      what = cat("is written: ", change.mismatches, " of ", change.count, " elements change");
      if (old.dtype != problem.out_dtype) what += cat(", ", dtype_name(old.dtype), " before");
    }
    write_gradient(path, problem, result.values.data(), {options_.execution.no_clobber});
    say(what, "written");
  }

  // Looks for the fault after a mismatch.
  void explain(VerifyReport& report) {
    constexpr std::size_t kMaxExplained = 2;
    std::vector<const Gradient*> wrong;
    const std::size_t most = v_.accept.empty() ? kMaxExplained : subjects_.size();
    for (std::size_t i = 0; i < subjects_.size() && wrong.size() < most; ++i) {
      if (!report.verdicts[i].match()) wrong.push_back(subjects_[i]);
    }
    if (wrong.empty() || v_.diagnosis == "off") return;
    report.diagnosis = diagnose_mismatch(job_, options_, judged_, expected(), wrong, rereader_);
    name_causes(options_, judged_, subjects_, *report.diagnosis, report.verdicts);
  }

  Job& job_;
  const VerifyCommand& options_;
  const VerifyOptions& v_;
  const Tolerance& tolerance_;
  const Judged judged_;
  Rereader rereader_;
  std::vector<const Gradient*> subjects_;
  Verdicts verdicts_;
};

void check_options(const VerifyCommand& options) {
  check_outputs(options);
  const VerifyOptions& v = options.verify;
  if (!v.results.empty() && !options.problem.output.empty()) {
    misuse("--output: given with --result, but then nothing is computed");
  }
  if (options.problem.output == "-") {
    misuse("--output -: standard output is for the verdict", Hint("name a file"));
  }
  // A variable may hold the seed of other commands, which is no mistake here.
  if (v.seed && !v.sample && options.variables.count("--seed") == 0) {
    misuse("--seed: expected only with --sample");
  }
  check_difference(v.save_diff);
  if (v.sample && !v.save_diff.empty()) {
    misuse("--save-diff: given with --sample, but it shows all elements");
  }
  if (!v.update_golden) return;
  if (v.golden.empty()) misuse("--update-golden: --golden is missing, expected the file to write");
  if (v.golden == "-") misuse("--golden -: --update-golden needs a file to write");
  if (v.sample)
    misuse("--update-golden: given with --sample, but a golden file needs the full check");
  if (v.results.size() > 1)
    misuse("--update-golden: given with several --result", Hint("name one"));
}

// A buffer, and factors of it and of the gradient, are of results that are judged by the reference.
void check_accumulation(const VerifyOptions& v, const Tolerance& tolerance) {
  const char* flag = !v.accumulated_on.empty() ? "--accumulated-on" : "--alpha";
  if (v.beta && v.accumulated_on.empty()) misuse("--beta: expected only with --accumulated-on");
  if (v.accumulated_on.empty() && !v.alpha) return;
  if (v.results.empty()) misuse(flag, ": expected only with --result");
  if (!v.golden.empty() && (v.update_golden || !tolerance.needs_terms())) {
    misuse(flag, ": expected only where the reference judges, not with ",
           v.update_golden ? "--update-golden" : "--golden and a tolerance");
  }
  if (v.alpha == 0.0) misuse("--alpha: 0, expected another number");
}

// Signs make all orders alike, and no slack is needed for the luck of one.
VerifyCommand probed(VerifyCommand options) {
  VerifyOptions& v = options.verify;
  if (!v.signs) return options;
  if (v.order.empty()) v.order = "natural";
  if (!v.slack && judged_by(v).criterion == Criterion::rounding) v.slack = 1;
  return options;
}

// The gradient that is judged says the filter's shape, where no option does.
VerifyCommand sized(VerifyCommand options) {
  ProblemOptions& p = options.problem;
  const VerifyOptions& v = options.verify;
  if (!p.line.empty() || !p.kernel.empty() || !p.filter_sizes.empty() || !p.filter_like.empty()) {
    return options;
  }
  const bool by_golden = v.results.empty() && !v.update_golden;
  const std::string file = !v.results.empty() ? v.results[0] : by_golden ? v.golden : "";
  if (file.empty()) return options;
  p.filter_like_flag = by_golden ? "--golden" : "--result";
  if (is_standard_input(file)) {
    misuse(p.filter_like_flag,
           ": standard input is read too late to say the filter's size, expected --kernel 3,3");
  }
  p.filter_like = file;
  return options;
}

}  // namespace

ReportPointer verify(const VerifyCommand& given) {
  const VerifyCommand options = sized(probed(given));
  if (ReportPointer listed = listed_algorithms(options)) return listed;
  const VerifyOptions& v = options.verify;
  const Tolerance tolerance = judged_by(v);
  check_options(options);
  check_accumulation(v, tolerance);
  Job job = open_job(options);
  if (v.signs) {
    const PixelSigns signs(job.dy->header().shape, job.problem.channels_last,
                           static_cast<std::uint64_t>(*v.signs));
    job.dy->change_boxes([signs, dtype = job.problem.dtype](auto begin, auto end, void* elements) {
      signs.apply(dtype, begin, end, elements);
    });
  }
  const bool needs_reference = v.golden.empty() || v.update_golden || tolerance.needs_terms();
  if (options.execution.dry_run) {
    return plan_report(job, plan_check(job, options, needs_reference), options);
  }
  const OutputOptions output = {options.execution.no_clobber};
  if (!options.problem.output.empty()) {
    check_array_output(options.problem.output, gradient_options(options));
  }
  if (v.update_golden) check_array_output(v.golden, output);
  if (!v.save_diff.empty()) check_array_output(v.save_diff, output);
  warn_of_endings(options);
  return VerifyCase(job, options, tolerance, needs_reference).report();
}

}  // namespace convgrad::cli
