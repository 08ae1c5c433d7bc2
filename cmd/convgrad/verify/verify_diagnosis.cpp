#include <algorithm>
#include <cmath>

#include "options/arguments.hpp"
#include "verify/verify.hpp"

namespace convgrad::cli {
namespace {

// So many multiply-adds, about two seconds, are spent by --diagnosis quick in any case; more if the
// check took more.
constexpr double kQuickBudget = 0x1p28, kNoLimit = 0x1p60;
// And so many seconds, or so many times what the check took.
constexpr double kQuickSeconds = 1.5, kQuickTimes = 4;
// So many elements at most are computed to see whether a golden file or a gradient is right.
constexpr std::int64_t kArbiterElements = 256;

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

// Returns "the result" where there is one, or the name of one of several.
std::string subject_name(const Judged& judged, const Gradient& gradient) {
  if (judged.golden && &gradient == &*judged.golden) return "the golden file";
  return judged.results.size() == 1 ? "the result" : gradient.name;
}

// Tells whether each of the faults "a+b" is one of --accept.
bool is_accepted(const std::string& faults, const std::string& accept) {
  const Words accepted = pieces_of(accept, ',');
  return std::ranges::all_of(pieces_of(faults, '+'), [&](const std::string& fault) {
    return std::ranges::count(accepted, fault) > 0;
  });
}

std::string finding_line(const std::string& subject, const Finding& f, std::int64_t count) {
  const char* verb = f.certainty == Certainty::bits ? " matches bit by bit if " : " matches if ";
  const std::string checked =
      f.checked == count ? cat("all ", count) : cat(f.checked, " of ", count);
  return cat("diagnosis: ", subject, verb, f.text, " (", checked, " elements checked)",
             f.cause.empty() ? "" : "; usual causes: ", f.cause);
}

// Looks for the faults of gradients that do not match.
class Diagnoser {
 public:
  Diagnoser(const Job& job, const VerifyCommand& options, const Judged& judged,
            const Expected& expected, Rereader& rereader)
      : job_(job),
        options_(options),
        judged_(judged),
        expected_(expected),
        passes_(rereader.passes()),
        full_(options.verify.diagnosis == "full" || !options.verify.accept.empty()) {
    report_.of = job.problem.dw_count();
    report_.quick = !full_;
    const std::string once = why_read_once(job);
    report_.why_not = once.empty() ? rereader.why_no_images() : once + "; save it to a file";
  }

  DiagnosisReport run(const std::vector<const Gradient*>& wrong) {
    if (report_.why_not.empty()) {
      for (const Gradient* gradient : wrong) diagnose_gradient(*gradient);
    } else {
      report_.say("not tried: " + report_.why_not);
    }
    return std::move(report_);
  }

 private:
  bool is_right(const Gradient& gradient, std::span<const std::int64_t> indices,
                const Expected& expected, const Tolerance& tolerance) const {
    return compare_gradients(judged_.problem, gradient.dtype, indices, gradient.values, expected,
                             tolerance)
        .match();
  }

  void diagnose_gradient(const Gradient& gradient) {
    if (expected_.magnitudes.empty()) return diagnose_golden(gradient);
    const Tolerance asked = judged_by(options_.verify);
    const std::string name = subject_name(judged_, gradient);
    if (is_right(gradient, judged_.sample.indices, expected_,
                 asked.needs_terms() ? asked : Tolerance{})) {
      report_.say(cat(name, " is within rounding of the reference: nothing is wrong with it",
                      asked.needs_terms() ? "" : "; the tolerance is smaller than rounding"));
      return;
    }
    search(name, gradient, judged_.sample.indices, expected_);
  }

  // Neither the gradient nor the golden file is known to be right: the reference tells.
  void diagnose_golden(const Gradient& result) {
    const WgradProblem& pb = job_.problem;
    const double terms = static_cast<double>(std::max<std::int64_t>(term_count(pb), 1));
    const auto count = static_cast<std::int64_t>(
        std::clamp(kQuickBudget / terms, 6.0, static_cast<double>(kArbiterElements)));
    std::vector<std::int64_t> indices;
    Gradient subjects[] = {{"the result", result.dtype, {}},
                           {"the golden file", judged_.golden->dtype, {}}};
    for (const std::size_t i : arbiter_elements(result, *judged_.golden, count)) {
      indices.push_back(index_at(judged_.sample.indices, i));
      subjects[0].values.push_back(result.values[i]);
      subjects[1].values.push_back(judged_.golden->values[i]);
    }
    const Expected exact = exact_entries(pb, indices, summation_of(job_, options_), passes_);
    std::vector<const Gradient*> wrong;
    for (const Gradient& subject : subjects) {
      const bool right = is_right(subject, indices, exact, {});
      report_.say(cat(subject.name, right ? " is" : " is not",
                      " within rounding of the reference (", indices.size(), " of ", pb.dw_count(),
                      " elements checked)"));
      if (!right) wrong.push_back(&subject);
    }
    for (const Gradient* subject : wrong) search(subject->name, *subject, indices, exact);
  }

  void search(const std::string& name, const Gradient& subject,
              std::span<const std::int64_t> indices, const Expected& expected) {
    const WgradProblem& pb = job_.problem;
    const double spent =
        static_cast<double>(subject.values.size()) * static_cast<double>(term_count(pb));
    const double checked_s = judged_.pass ? judged_.pass->timing.timing.total_s : 0;
    const double budget = full_ ? kNoLimit : std::max(kQuickBudget, spent);
    const double seconds = full_ ? HUGE_VAL : std::max(kQuickSeconds, kQuickTimes * checked_s);
    with_own_part(pb, {subject.dtype, subject.values}, indices, expected,
                  options_.verify.alpha.value_or(1), [&](const Suspect& suspect) {
                    report_.add(name, diagnose(suspect, *passes_.images, budget, seconds));
                  });
  }

  const Job& job_;
  const VerifyCommand& options_;
  const Judged& judged_;
  const Expected& expected_;
  Passes passes_;
  const bool full_;
  DiagnosisReport report_;
};

}  // namespace

void DiagnosisReport::say(const std::string& text) {
  lines.push_back("diagnosis: " + text);
  said.push_back(text);
}

void DiagnosisReport::add(const std::string& subject, const Diagnosis& found) {
  for (const Finding& finding : found.findings) {
    lines.push_back(finding_line(subject, finding, of));
    findings.push_back({subject, finding});
  }
  tried += found.tried;
  untried += found.untried;
  if (found.more > 0) say(cat(found.more, " more explanations fit as well"));
  if (found.findings.empty()) {
    say(cat("none of the ", found.tried, " faults that were tried explains ", subject));
    if (!found.where.empty()) say("the wrong elements are " + found.where);
  }
  if (found.untried > 0) {
    say(cat(found.untried, " faults were not tried: they would take too long; try ",
            quick ? "--diagnosis full, or " : "", "fewer images"));
  }
}

Json DiagnosisReport::json() const {
  Json json = {{"findings", Json::array()}, {"tried", tried}, {"untried", untried}};
  for (const auto& [subject, f] : findings) {
    json["findings"].push_back({{"subject", subject},
                                {"fault", f.fault},
                                {"text", f.text},
                                {"cause", f.cause},
                                {"certainty", f.certainty == Certainty::bits ? "bits" : "match"},
                                {"checked", f.checked},
                                {"of", of}});
  }
  if (!said.empty()) json["text"] = said;
  if (!why_not.empty()) json["why_not"] = why_not;
  return json;
}

DiagnosisReport diagnose_mismatch(const Job& job, const VerifyCommand& options,
                                  const Judged& judged, const Expected& expected,
                                  const std::vector<const Gradient*>& wrong, Rereader& rereader) {
  return Diagnoser(job, options, judged, expected, rereader).run(wrong);
}

void name_causes(const VerifyCommand& options, const Judged& judged,
                 const std::vector<const Gradient*>& subjects, const DiagnosisReport& found,
                 std::vector<Compared>& verdicts) {
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    Compared& verdict = verdicts[i];
    if (verdict.comparison.match()) continue;
    const std::string name = subject_name(judged, *subjects[i]);
    for (const auto& [subject, finding] : found.findings) {
      if (subject != name) continue;
      if (finding.covers_all && is_accepted(finding.fault, options.verify.accept)) {
        verdict.accepted = finding.fault;
        verdict.cause = finding.text;
        break;
      }
      verdict.cause += cat(verdict.cause.empty() ? "" : ", or ", finding.text);
    }
  }
}

}  // namespace convgrad::cli
