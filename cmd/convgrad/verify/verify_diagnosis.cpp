#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/messages.hpp"
#include "check/diagnosis.hpp"
#include "verify/verify.hpp"

namespace convgrad::cli {
namespace {

// So many multiply-adds, about two seconds, are spent by --diagnosis quick in any case; more if the
// check took more.
constexpr double kQuickBudget = 0x1p28, kNoLimit = 0x1p60;
// And so many seconds, or so many times what the check took.
constexpr double kQuickSeconds = 1.5, kQuickTimes = 3;
// So many elements at most are computed to see whether a golden file or a gradient is right.
constexpr std::int64_t kArbiterElements = 256;

class Diagnoser {
 public:
  // check_seconds is what the check took.
  Diagnoser(const Job& job, const VerifyCommand& options, const Passes& passes,
            double check_seconds)
      : problem_(job.problem),
        passes_(passes),
        full_(options.verify.diagnosis == "full" || !options.verify.accept.empty()),
        factor_(options.verify.alpha.value_or(1)),
        seconds_(std::max(kQuickSeconds, kQuickTimes * check_seconds)) {
    report_.of = problem_.dw_count();
    report_.quick = !full_;
  }

  DiagnosisReport& report() { return report_; }

  void diagnose_subject(const Gradient& subject, std::span<const std::int64_t> indices,
                        const Expected& expected) {
    const double spent =
        static_cast<double>(subject.values.size()) * static_cast<double>(term_count(problem_));
    const double budget = full_ ? kNoLimit : std::max(kQuickBudget, spent);
    const double seconds = full_ ? HUGE_VAL : seconds_;
    const OwnPart own(problem_, {subject.dtype, subject.values}, indices, expected, factor_);
    report_.add(subject.name, diagnose(own.suspect(), *passes_.images, passes_.source, passes_.pool,
                                       budget, seconds));
  }

 private:
  const WgradProblem& problem_;
  const Passes& passes_;
  const bool full_;
  const double factor_, seconds_;
  DiagnosisReport report_;
};

// Returns the elements by which a golden file and a gradient are told apart: half of them differ.
std::vector<std::size_t> arbiter_elements(const Gradient& got, const Gradient& want,
                                          std::int64_t count) {
  std::vector<std::size_t> differing, others, result;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    (got.values[i] == want.values[i] ? others : differing).push_back(i);
  }
  const auto half = static_cast<std::size_t>((count + 1) / 2);
  for (const std::vector<std::size_t>* from : {&differing, &others}) {
    const std::size_t step = std::max<std::size_t>(1, from->size() / half);
    for (std::size_t i = 0, taken = 0; i < from->size() && taken < half; i += step, ++taken) {
      result.push_back((*from)[i]);
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

// Neither the gradient nor the golden file is known to be right: the reference tells.
void diagnose_golden(const Job& job, const VerifyCommand& options, const Judged& judged,
                     const Gradient& result, Passes& passes, Diagnoser& diagnoser) {
  const double terms = static_cast<double>(std::max<std::int64_t>(term_count(job.problem), 1));
  const auto count = static_cast<std::int64_t>(
      std::clamp(kQuickBudget / terms, 6.0, static_cast<double>(kArbiterElements)));
  std::vector<std::int64_t> indices;
  Gradient subjects[] = {{"the result", result.dtype, {}},
                         {"the golden file", judged.golden->dtype, {}}};
  for (const std::size_t i : arbiter_elements(result, *judged.golden, count)) {
    indices.push_back(judged.sample.indices.empty() ? static_cast<std::int64_t>(i)
                                                    : judged.sample.indices[i]);
    subjects[0].values.push_back(result.values[i]);
    subjects[1].values.push_back(judged.golden->values[i]);
  }
  const Expected exact = exact_entries(job.problem, indices, summation_of(job, options), passes);
  bool right[2];
  for (int i = 0; i < 2; ++i) {
    right[i] =
        compare_gradients(job.problem, subjects[i].dtype, indices, subjects[i].values, exact, {})
            .match();
    diagnoser.report().say(cat(subjects[i].name, right[i] ? " is" : " is not",
                               " within rounding of the reference (", indices.size(), " of ",
                               job.problem.dw_count(), " elements checked)"));
  }
  for (int i = 0; i < 2; ++i) {
    if (!right[i]) diagnoser.diagnose_subject(subjects[i], indices, exact);
  }
}

// Returns "the result" where there is one, or the name of one of several.
std::string subject_name(const Judged& judged, const Gradient& gradient) {
  if (judged.golden && &gradient == &*judged.golden) return "the golden file";
  return judged.results.size() == 1 ? "the result" : gradient.name;
}

// Tells whether each of the faults "a+b" is one of --accept.
bool is_accepted(const std::string& faults, const std::string& accept) {
  std::istringstream each(faults);
  for (std::string fault; std::getline(each, fault, '+');) {
    if (cat(",", accept, ",").find(cat(",", fault, ",")) == std::string::npos) return false;
  }
  return true;
}

}  // namespace

DiagnosisReport diagnose_mismatch(const Job& job, const VerifyCommand& options,
                                  const Judged& judged, const Expected& expected,
                                  const std::vector<const Gradient*>& wrong, Rereader& rereader) {
  Passes passes = rereader.passes();
  Diagnoser diagnoser(job, options, passes, judged.pass ? judged.pass->timing.timing.total_s : 0);
  DiagnosisReport& report = diagnoser.report();
  const std::string once = why_read_once(job);
  report.why_not = once.empty() ? rereader.why_no_images() : once + "; save it to a file";
  if (!report.why_not.empty()) {
    report.say("not tried: " + report.why_not);
    return report;
  }
  const Tolerance asked = judged_by(options.verify);
  const Tolerance rounding = asked.needs_terms() ? asked : Tolerance{};
  for (const Gradient* gradient : wrong) {
    if (expected.magnitudes.empty()) {
      diagnose_golden(job, options, judged, *gradient, passes, diagnoser);
      continue;
    }
    const std::string name = subject_name(judged, *gradient);
    if (compare_gradients(judged.problem, gradient->dtype, judged.sample.indices, gradient->values,
                          expected, rounding)
            .match()) {
      report.say(cat(name, " is within rounding of the reference: nothing is wrong with it",
                     asked.needs_terms() ? "" : "; the tolerance is smaller than rounding"));
      continue;
    }
    diagnoser.diagnose_subject({name, gradient->dtype, gradient->values}, judged.sample.indices,
                               expected);
  }
  return report;
}

void name_causes(const VerifyCommand& options, const Judged& judged,
                 const std::vector<const Gradient*>& subjects, const DiagnosisReport& found,
                 std::vector<Compared>& verdicts) {
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    Compared& verdict = verdicts[i];
    if (verdict.comparison.match()) continue;
    const std::string name = subject_name(judged, *subjects[i]);
    for (const auto& [subject, finding] : found.findings) {
      if (subject != name || finding.certainty == Certainty::size) continue;
      if (is_accepted(finding.fault, options.verify.accept)) {
        verdict.accepted = finding.fault;
        verdict.cause = finding.text;
        break;
      }
      verdict.cause += cat(verdict.cause.empty() ? "" : ", or ", finding.text);
    }
  }
}

}  // namespace convgrad::cli
