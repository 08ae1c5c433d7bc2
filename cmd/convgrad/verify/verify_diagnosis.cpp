#include <algorithm>
#include <cmath>

#include "base/messages.hpp"
#include "check/diagnosis.hpp"
#include "verify/verify.hpp"

namespace convgrad::cli {
namespace {

// So many multiply-adds, some seconds, are spent in any case; more if the check took more.
constexpr double kLeastDiagnosisBudget = 0x1p30;
constexpr double kSecondLookBudget = 0x1p27;  // at what may be right
constexpr std::int64_t kBlockBytes = std::int64_t{8} << 20;
// So many elements at most are computed to see whether a golden file or a gradient is right.
constexpr std::int64_t kArbiterElements = 256;

// Holds a result without what it was added to, in units of the gradient.
struct OwnPart {
  std::vector<double> values;
  Expected expected;
};

// The result's rounding becomes a part of the error.
OwnPart own_part(const Gradient& subject, const Expected& whole, double alpha) {
  OwnPart own = {subject.values, whole};
  Expected& e = own.expected;
  for (std::size_t i = 0; i < own.values.size(); ++i) {
    const double added = whole.added.empty() ? 0 : whole.added[i];
    const double half = rounding_step(subject.dtype, subject.values[i]) / 2;
    const double tail = e.tails.empty() ? 0 : e.tails[i];
    own.values[i] = (subject.values[i] - added) / alpha;
    e.values[i] = ((whole.values[i] - added) + tail) / alpha;
    e.magnitudes[i] /= std::fabs(alpha);
    e.scales[i] = std::hypot(e.scales[i], half / std::sqrt(3)) / std::fabs(alpha);
    e.limits[i] = (e.limits[i] + half) / std::fabs(alpha);
  }
  e.tails.assign(e.tails.size(), 0);
  e.added.clear();
  e.squares /= alpha * alpha;
  return own;
}

class Diagnoser {
 public:
  Diagnoser(Job& job, const VerifyCommand& options) : job_(job), options_(options) {
    report_.of = job.problem.dw_count();
  }

  DiagnosisReport& report() { return report_; }

  // Returns why nothing can be tried, or "".
  std::string why_not() {
    const std::string once = why_read_once(job_);
    if (!once.empty()) return cat(once, "; save it to a file");
    images_ = image_plan(job_.problem, kBlockBytes);
    const double image =
        static_cast<double>(job_.x->header().payload_bytes + job_.dy->header().payload_bytes) /
        static_cast<double>(std::max<std::int64_t>(job_.problem.N, 1));
    const double limit = options_.execution.memory_limit > 0
                             ? static_cast<double>(options_.execution.memory_limit)
                             : static_cast<double>(this_machine().memory_bytes);
    // The next block is read beside the present one, which is copied as float64.
    const double copies =
        static_cast<double>(std::min<std::int64_t>(images_.schedule.blocks.count, 2)) +
        8.0 / static_cast<double>(dtype_bytes(job_.problem.dtype));
    const double held = image * copies;
    if (held > limit) {
      return cat("it needs whole images of x and dy, ", format_bytes(held), ", the limit is ",
                 format_bytes(limit));
    }
    return "";
  }

  // Calls search(suspect, images, source, pool, multiply_adds).
  template <typename Search>
  auto search(const Search& find, const Gradient& subject, std::span<const std::int64_t> indices,
              const Expected& expected, double least_budget) {
    WgradProblem problem = job_.problem;
    problem.out_dtype = subject.dtype;
    const int asked = options_.execution.threads;
    TaskPool pool(asked > 0 ? asked : this_machine().threads);
    NpySource source(*job_.x, *job_.dy);
    const double spent =
        static_cast<double>(subject.values.size()) * static_cast<double>(term_count(problem));
    const double budget = std::max(least_budget, spent);
    const double alpha = options_.verify.alpha.value_or(1);
    if (alpha == 1 && expected.added.empty()) {
      return find(Suspect{problem, indices, subject.values, expected}, images_, source, pool,
                  budget);
    }
    problem.out_dtype = DType::f64;  // which has all of these numbers
    const OwnPart own = own_part(subject, expected, alpha);
    return find(Suspect{problem, indices, own.values, own.expected}, images_, source, pool, budget);
  }

  void diagnose_subject(const Gradient& subject, std::span<const std::int64_t> indices,
                        const Expected& expected) {
    report_.add(subject.name, search(diagnose, subject, indices, expected, kLeastDiagnosisBudget));
  }

 private:
  Job& job_;
  const VerifyCommand& options_;
  Plan images_;
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
void diagnose_golden(Job& job, const VerifyCommand& options, const Judged& judged,
                     const Gradient& result, Diagnoser& diagnoser) {
  const double terms = static_cast<double>(std::max<std::int64_t>(term_count(job.problem), 1));
  const auto count = static_cast<std::int64_t>(
      std::clamp(kLeastDiagnosisBudget / terms, 6.0, static_cast<double>(kArbiterElements)));
  std::vector<std::int64_t> indices;
  Gradient subjects[] = {{"the result", result.dtype, {}},
                         {"the golden file", judged.golden->dtype, {}}};
  for (const std::size_t i : arbiter_elements(result, *judged.golden, count)) {
    indices.push_back(judged.sample.indices.empty() ? static_cast<std::int64_t>(i)
                                                    : judged.sample.indices[i]);
    subjects[0].values.push_back(result.values[i]);
    subjects[1].values.push_back(judged.golden->values[i]);
  }
  const Expected exact = exact_entries(job, options, indices, summation_of(job, options));
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

}  // namespace

std::optional<Structure> rounded_inputs(Job& job, const VerifyCommand& options,
                                        const Judged& judged, const Expected& expected,
                                        const Gradient& gradient) {
  Diagnoser diagnoser(job, options);
  if (!diagnoser.why_not().empty()) return {};
  return diagnoser.search(convgrad::rounded_inputs, gradient, judged.sample.indices, expected,
                          kSecondLookBudget);
}

bool is_known_fault(Job& job, const VerifyCommand& options, const Judged& judged,
                    const Gradient& gradient) {
  Diagnoser diagnoser(job, options);
  if (!diagnoser.why_not().empty()) return false;
  const Diagnosis found = diagnoser.search(diagnose, gradient, judged.sample.indices,
                                           judged.expected, kSecondLookBudget);
  return std::ranges::any_of(found.findings,
                             [](const Finding& f) { return f.certainty != Certainty::size; });
}

DiagnosisReport diagnose_mismatch(Job& job, const VerifyCommand& options, const Judged& judged,
                                  const Expected& expected,
                                  const std::vector<const Gradient*>& wrong) {
  Diagnoser diagnoser(job, options);
  DiagnosisReport& report = diagnoser.report();
  report.why_not = diagnoser.why_not();
  if (!report.why_not.empty()) {
    report.say("not tried: " + report.why_not);
    return report;
  }
  const Tolerance asked = judged_by(options.verify);
  const Tolerance rounding = asked.needs_terms() ? asked : Tolerance{};
  for (const Gradient* gradient : wrong) {
    if (expected.magnitudes.empty()) {
      diagnose_golden(job, options, judged, *gradient, diagnoser);
      continue;
    }
    const std::string name = subject_name(judged, *gradient);
    if (compare_gradients(judged.problem, gradient->dtype, judged.sample.indices, gradient->values,
                          expected, rounding)
            .match()) {
      report.say(name + " is within rounding of the reference: nothing is wrong with it");
      continue;
    }
    diagnoser.diagnose_subject({name, gradient->dtype, gradient->values}, judged.sample.indices,
                               expected);
  }
  return report;
}

}  // namespace convgrad::cli
