// verify_report.hpp - a comparison as text for people and as JSON.
#pragma once

#include <string>

#include "convgrad/compare.hpp"
#include "report.hpp"

namespace convgrad::cli {

struct VerifyReport {
  const WgradProblem& problem;
  const Comparison& comparison;
  const Tolerance& tolerance;
  std::string got, want;  // what was compared: "im2col_gemm", "dw.npy", "reference"
  std::string repeat;     // the command that repeats it
};

std::string verify_text(const VerifyReport& report);
Json verify_json(const VerifyReport& report);

}  // namespace convgrad::cli
