// verify.hpp - is a gradient right? The command; what it compares, gradients, computed or given,
// and what they should be, whole or at some entries; what it says of them.
#pragma once

#include <string>

#include "check/diagnosis.hpp"
#include "check/reference_sum.hpp"
#include "check/sample.hpp"
#include "check/untested.hpp"
#include "convgrad/compare.hpp"
#include "convgrad/gradient_file.hpp"
#include "job/job.hpp"
#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

// Holds values in [tap][c][k] order, or one for each entry of a sample.
struct Gradient {
  std::string name;
  DType dtype = DType::f32;
  std::vector<double> values;
};

struct PassTaken {
  Plan plan;
  JobTiming timing;
};

struct Judged {
  WgradProblem problem;  // whose gradient has the dtype of the first result
  Sample sample;         // without indices where everything is compared
  std::vector<Gradient> results;
  std::optional<Gradient> golden;  // unless it is the file to write
  std::vector<double> buffer;      // of --accumulated-on, or empty
  // Holds what the results should be: by the reference, or the golden file's values alone.
  Expected expected;
  std::string vacuous;                  // why no fault could be seen, or ""
  std::vector<std::string> not_tested;  // else which could not
  std::optional<PassTaken> pass;        // unless files are compared with a file
  Tensors tensors;
};
inline constexpr const char* kReferenceName = "the float64 reference";

// Returns the criterion of the options. Throws Error(usage) where they exclude each other.
Tolerance judged_by(const VerifyOptions& options);
// Returns how the gradient that is judged is taken to be summed.
Summation summation_of(const Job& job, const VerifyCommand& options);

// Reads a gradient file into [tap][c][k] order.
Gradient read_in_order(const std::string& path, const WgradProblem& problem);

Plan plan_check(const Job& job, const VerifyCommand& options, bool needs_reference);

// Reads, computes and sums what the options ask for, and writes --output.
Judged gather(Job& job, const VerifyCommand& options, bool needs_reference);

// Computes the reference at some entries, by another pass over x and dy, which must be files.
Expected exact_entries(Job& job, const VerifyCommand& options,
                       const std::vector<std::int64_t>& indices, const Summation& summation);

// Plans another pass over x and dy, for a check that takes so much memory.
Plan plan_again(const Job& job, const VerifyCommand& options, std::int64_t check_bytes);

// Returns why x and dy cannot be read a second time, as a clause, or "".
std::string why_read_once(const Job& job);

// Holds what follows the comparison itself: lines of text and fields of JSON.
struct Notes {
  bool failed = false;  // whatever the comparison says
  std::vector<std::string> lines;
  Json json = Json::object();
  void add(const Notes& more);
};

// Names an order of the sum whose errors are larger than those of n, z, p, q.
struct OrderUsed {
  std::string text;    // "that takes even and odd images apart", after "a sum"
  double rms = 0;      // of errors, in units of what the order n, z, p, q makes
  double allowed = 0;  // by this order
};

// Names a gradient and what it was compared with: "im2col_gemm", "dw.npy", "the float64 reference".
struct Compared {
  std::string got, want;
  DType dtype = DType::f32;
  Comparison comparison;
  std::optional<OrderUsed> order = {};  // without which it would not match
  bool cut = false;  // float32 data: with the adders of tensor cores it would match
};

// Says which known faults explain what did not match.
struct DiagnosisReport {
  struct Named {
    std::string subject;
    Finding finding;
  };
  std::vector<std::string> lines;  // of text, in order: findings, and what is said besides
  std::vector<std::string> said;
  std::vector<Named> findings;
  std::int64_t tried = 0, untried = 0;
  std::string why_not;  // nothing was tried, or ""
  std::int64_t of = 0;  // elements of the gradient

  void say(const std::string& text);
  void add(const std::string& subject, const Diagnosis& found);
  Json json() const;
};

class VerifyReport final : public Report {
 public:
  int exit_status() const override { return matches() ? 0 : 1; }
  const char* status() const override { return matches() ? "match" : "mismatch"; }
  std::string text() const override;
  Json json() const override;
  std::string in_short() const override;

  bool matches() const;       // all do
  std::size_t shown() const;  // the verdict that is reported in full
  const Comparison& comparison() const { return verdicts[shown()].comparison; }

  WgradProblem problem;
  Tolerance tolerance;
  VerifyCommand options;
  Tensors tensors;
  std::optional<PassTaken> pass;
  std::vector<Compared> verdicts;  // of several gradients
  std::string vacuous;             // why no fault could be seen, or ""
  std::vector<std::string> not_tested;
  std::string wrong_dtype;  // what a result's dtype should not be, or ""
  std::optional<DiagnosisReport> diagnosis;
  Notes repro, coverage, notes;
};

// Returns "0.52 of rounding's at tap [0,1] (3.7 allowed)", of RoundingErrors::worst and its like.
std::string group_text(const WgradProblem& problem, const GroupError& error);
// Returns "23.4 bits", by the norms of error and gradient.
std::string agreement_text(double relative_error);

// Returns TensorFlow's [r,s,c,k] in any filter format, t in front in 3-D; depthwise [r,s,c,m].
std::vector<std::int64_t> element_position(const WgradProblem& problem, std::int64_t index);
std::string element_text(const WgradProblem& problem, std::int64_t index);  // "[0,1,2,3]"
std::string tap_text(const WgradProblem& problem, std::int64_t tap);        // "[0,1]"
std::vector<std::int64_t> tap_position(const WgradProblem& problem, std::int64_t tap);

inline constexpr std::size_t kMaxExplained = 2;  // gradients whose faults are looked for

ReportPointer verify(const VerifyCommand& options);

// Holds verdicts, and what they were judged by where a wider order explains one of them.
struct Verdicts {
  std::vector<Compared> all;
  std::optional<Expected> wide;

  const Expected& expected(const Judged& judged) const { return wide ? *wide : judged.expected; }
};
// Returns the verdicts on these gradients, which are judged's. Where errors are larger than the
// order n, z, p, q makes, it looks for another order that makes such: then the verdict says which,
// its scales allow it, and structure decides what they would hide. Reads x and dy again for that.
Verdicts judge(Job& job, const VerifyCommand& options, const Judged& judged,
               const Tolerance& tolerance, const std::vector<const Gradient*>& subjects);
// Returns the structure of errors that x or dy make when they are rounded to a narrow type.
std::optional<Structure> rounded_inputs(Job& job, const VerifyCommand& options,
                                        const Judged& judged, const Expected& expected,
                                        const Gradient& gradient);
// Returns true if a known fault explains a gradient with errors no larger than those of the order
// n, z, p, q.
bool is_known_fault(Job& job, const VerifyCommand& options, const Judged& judged,
                    const Gradient& gradient);

// Says which known fault explains mismatches of these gradients, which are judged's. Reads x and dy
// again.
DiagnosisReport diagnose_mismatch(Job& job, const VerifyCommand& options, const Judged& judged,
                                  const Expected& expected,
                                  const std::vector<const Gradient*>& wrong);

// Checks the folder of --save-repro, which gets a small problem that fails, as files and the
// command that repeats it. Throws Error(input) if it cannot be made, or holds anything.
void check_repro_folder(const std::string& folder);
// Writes the part of the problem in which the wrong element of subject stands, and the same part of
// the gradients that were compared.
Notes save_repro(Job& job, const VerifyCommand& options, const Judged& judged,
                 const Expected& expected, const Gradient& subject, const Tolerance& tolerance,
                 std::int64_t wrong);

}  // namespace convgrad::cli
