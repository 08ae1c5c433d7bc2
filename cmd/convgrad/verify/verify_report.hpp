// verify_report.hpp - comparisons as text for people and as JSON.
#pragma once

#include <string>

#include "convgrad/compare.hpp"
#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

// What follows the comparison itself: lines for people and fields for the report.
struct Notes {
  bool failed = false;  // whatever the comparison says
  std::vector<std::string> lines;
  Json json = Json::object();
  void add(const Notes& more);
};

// An order of the sum whose errors are larger than those of n, z, p, q.
struct OrderUsed {
  std::string text;    // "that takes even and odd images apart", after "a sum"
  double rms = 0;      // of errors, in units of what the order n, z, p, q makes
  double allowed = 0;  // by this order
};

// A gradient and what it was compared with: "im2col_gemm", "dw.npy", "the float64 reference".
struct Compared {
  std::string got, want;
  DType dtype = DType::f32;
  Comparison comparison;
  std::optional<OrderUsed> order = {};  // without which it would not match
  bool cut = false;  // float32 data: with the adders of tensor cores it would match
};

struct VerifyReport {
  const WgradProblem& problem;
  const Tolerance& tolerance;
  const std::vector<Compared>& verdicts;  // of several gradients
  const VerifyCommand& options;
  std::size_t shown = 0;     // the one that is reported in full
  std::string vacuous = {};  // why no fault could be seen, or ""
  std::vector<std::string> not_tested = {};
  Notes explained = {};  // by known faults
  Notes coverage = {};   // of a sample
  Notes notes = {};
};

// Whether all match.
bool matches(const VerifyReport& report);
std::string verify_text(const VerifyReport& report);
Json verify_json(const VerifyReport& report);

// "0.52 of rounding's at tap [0,1] (3.7 allowed)": of RoundingErrors::worst and its like.
std::string group_text(const WgradProblem& problem, const GroupError& error);
// "23.4 bits", by the norms of error and gradient.
std::string agreement_text(double relative_error);

// [r,s,c,k], with t in front in 3-D; depthwise [r,s,c,m]. TensorFlow's order in any filter format.
std::vector<std::int64_t> element_position(const WgradProblem& problem, std::int64_t index);
std::string element_text(const WgradProblem& problem, std::int64_t index);  // "[0,1,2,3]"
std::string tap_text(const WgradProblem& problem, std::int64_t tap);        // "[0,1]"
std::vector<std::int64_t> tap_position(const WgradProblem& problem, std::int64_t tap);

}  // namespace convgrad::cli
