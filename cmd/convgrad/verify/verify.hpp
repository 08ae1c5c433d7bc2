// verify.hpp - is a gradient right? The command; what it compares, gradients, computed or given,
// and what they should be, whole or at some entries; what it says of them.
#pragma once

#include <string>

#include "check/diagnosis.hpp"
#include "check/groups.hpp"
#include "check/reference_sum.hpp"
#include "check/sample.hpp"
#include "check/untested.hpp"
#include "check/verdict.hpp"
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

struct JudgedCase {
  WgradProblem problem;                 // whose gradient has the dtype of the first result
  std::string vacuous;                  // why no fault could be seen, or ""
  std::vector<std::string> not_tested;  // else which could not
  std::optional<PassTaken> pass;        // unless files are compared with a file
  Tensors tensors;
};

struct Judged : JudgedCase {
  Sample sample;  // without indices where everything is compared
  std::vector<Gradient> results;
  std::optional<Gradient> golden;  // unless it is the file to write
  std::vector<double> buffer;      // of --accumulated-on, or empty
  // Holds what the results should be: by the reference, or the golden file's values alone.
  Expected expected;
};
inline const std::string kReferenceName = "the float64 reference";

// Returns the criterion of the options. Throws Error(usage) where they exclude each other.
Tolerance judged_by(const VerifyOptions& options);
// Returns how the gradient that is judged is taken to be summed.
Summation summation_of(const Job& job, const VerifyCommand& options);

Plan plan_check(const Job& job, const VerifyCommand& options, bool needs_reference);

// Reads, computes and sums what the options ask for, and writes --output.
Judged gather(Job& job, const VerifyCommand& options, bool needs_reference);

// Reads x and dy again, which must be files.
class Rereader {
 public:
  // Refers to both. Blocks of whole images may take so much memory.
  Rereader(Job& job, const VerifyCommand& options);
  Passes passes();
  // Returns why the known faults, which read whole images, cannot be tried, or "".
  const std::string& why_no_images() const { return why_no_images_; }

 private:
  Job& job_;
  const VerifyCommand& options_;
  TaskPool pool_;
  NpySource source_;
  Plan images_;
  std::string why_no_images_;
};

// Returns why x and dy cannot be read a second time, as a clause, or "".
std::string why_read_once(const Job& job);

// Holds what follows the comparison itself: lines of text and fields of JSON.
struct Notes {
  bool failed = false;  // whatever the comparison says
  std::vector<std::string> lines;
  Json json = Json::object();
};

// Names a gradient and what it was compared with: "im2col_gemm", "dw.npy", "the float64 reference".
struct Compared : convgrad::Verdict {
  std::string got, want;
  DType dtype = DType::f32;
  std::string cause = {};     // what explains it within rounding, as clauses, or ""
  std::string accepted = {};  // the fault of --accept that does, or ""
  bool match() const { return comparison.match() || !accepted.empty(); }
};

// Says which known faults explain what did not match.
struct DiagnosisReport {
  struct Named {
    std::string subject;
    Finding finding;
  };
  bool quick = true;               // there is a longer search
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

class VerifyReport final : public MatchReport, public JudgedCase {
 public:
  std::string text() const override;
  Json json() const override;
  std::string in_short() const override;

  bool matches() const override;  // all do
  bool has_rounding() const { return tolerance.criterion == Criterion::rounding; }
  std::size_t shown() const;  // the verdict that is reported in full

  Tolerance tolerance;
  VerifyCommand options;
  std::vector<Compared> verdicts;  // of several gradients
  std::string wrong_dtype;         // what a result's dtype should not be, or ""
  std::optional<DiagnosisReport> diagnosis;
  Notes coverage, notes;
};

// Returns the largest errors, and those of each tap.
std::string tables_text(const VerifyReport& report, const Comparison& comparison);
Json taps_json(const WgradProblem& problem, const Comparison& comparison, bool by_rounding);
// Returns "0.52 of rounding's at tap [0,1] (3.7 allowed)", of RoundingErrors::worst and its like.
std::string group_text(const WgradProblem& problem, const GroupError& error);
// Returns "23.4 bits", by the norms of error and gradient.
std::string agreement_text(double relative_error);

// Returns TensorFlow's [r,s,c,k] in any filter format, t in front in 3-D; depthwise [r,s,c,m].
std::vector<std::int64_t> element_position(const WgradProblem& problem, std::int64_t index);
std::string element_text(const WgradProblem& problem, std::int64_t index);  // "[0,1,2,3]"
std::string tap_text(const WgradProblem& problem, std::int64_t tap);        // "[0,1]"

ReportPointer verify(const VerifyCommand& options);

// Says which known fault explains mismatches of these gradients, which are judged's.
DiagnosisReport diagnose_mismatch(const Job& job, const VerifyCommand& options,
                                  const Judged& judged, const Expected& expected,
                                  const std::vector<const Gradient*>& wrong, Rereader& rereader);
// Gives the verdicts on these gradients, which do not match, the causes that were found for each,
// and marks those that --accept names.
void name_causes(const VerifyCommand& options, const Judged& judged,
                 const std::vector<const Gradient*>& subjects, const DiagnosisReport& found,
                 std::vector<Compared>& verdicts);

}  // namespace convgrad::cli
