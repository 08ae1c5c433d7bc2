// verify_adjoint.hpp - the verdict of --reference adjoint as text and as JSON.
#pragma once

#include "verify/verify_check.hpp"
#include "verify/verify_report.hpp"

namespace convgrad::cli {

struct AdjointReport {
  const WgradProblem& problem;
  const AdjointVerdict& verdict;
  std::string got;
  std::int64_t seed;
  // Some elements computed exactly after a mismatch, or null.
  const Comparison* exact;
  Notes notes;
  std::string repeat;
};

std::string adjoint_text(const AdjointReport& report);
Json adjoint_json(const AdjointReport& report);

}  // namespace convgrad::cli
