// verify_report.hpp - a comparison as text for people and as JSON.
#pragma once

#include <string>

#include "convgrad/compare.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

// What follows the comparison itself: lines for people and fields for the report.
struct Notes {
  bool failed = false;  // whatever the comparison says
  std::vector<std::string> lines;
  Json json = Json::object();
  void add(const Notes& more);
};

struct VerifyReport {
  const WgradProblem& problem;
  const Comparison& comparison;
  const Tolerance& tolerance;
  std::string got, want;  // what was compared: "im2col_gemm", "dw.npy", "reference"
  Notes coverage;         // of a sample
  Notes notes;
  std::string repeat;  // the command that repeats it
};

std::string verify_text(const VerifyReport& report);
Json verify_json(const VerifyReport& report);

// [r,s,c,k], with t in front in 3-D; depthwise [r,s,c,m]. TensorFlow's order in any filter format.
std::vector<std::int64_t> element_position(const WgradProblem& problem, std::int64_t index);
std::string element_text(const WgradProblem& problem, std::int64_t index);  // "[0,1,2,3]"
std::string tap_text(const WgradProblem& problem, std::int64_t tap);        // "[0,1]"
std::vector<std::int64_t> tap_position(const WgradProblem& problem, std::int64_t tap);
// Pads columns; ends with a newline.
std::string error_text(const WgradProblem& problem, const char* name, const ElementError& error);
// Rows of the tables of taps.
inline constexpr std::size_t kMaxTapRows = 32;

}  // namespace convgrad::cli
