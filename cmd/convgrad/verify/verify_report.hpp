// verify_report.hpp - comparisons as text for people and as JSON.
#pragma once

#include <string>

#include "check/diagnosis.hpp"
#include "convgrad/compare.hpp"
#include "options/options.hpp"
#include "report/report.hpp"
#include "verify/verify_check.hpp"

namespace convgrad::cli {

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

}  // namespace convgrad::cli
