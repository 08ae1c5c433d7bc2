// check_property.cpp - see check_property.hpp.
#include "check_property.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "support/sanitized.hpp"

namespace convgrad::testing {
namespace {

#if CONVGRAD_SANITIZED
constexpr int kUsualCases = 12;
#else
constexpr int kUsualCases = 100;
#endif
constexpr std::uint64_t kUsualSeed = 1;

std::uint64_t variable_or(const char* name, std::uint64_t usual) {
  const char* text = std::getenv(name);
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

// rapidcheck's own prints to standard error.
class Quiet final : public rc::detail::TestListener {
  void onTestCaseFinished(const rc::detail::CaseDescription&) override {}
  void onShrinkTried(const rc::detail::CaseDescription&, bool) override {}
  void onTestFinished(const rc::detail::TestMetadata&, const rc::detail::TestResult&) override {}
};

}  // namespace

int property_cases() {
  return static_cast<int>(variable_or("CONVGRAD_PROPERTY_CASES", kUsualCases));
}

void check_property(const Property& property, const Verdict& wrong) {
  rc::detail::TestParams params;
  params.seed = variable_or("CONVGRAD_PROPERTY_SEED", kUsualSeed);
  params.maxSuccess = std::max(property.least, property_cases() / property.divisor);
  rc::Gen<RandomCase> cases = random_cases(property.limits);
  if (property.applies) cases = rc::gen::suchThat(cases, property.applies);
  const auto testable = [&] {
    const RandomCase c = *cases;
    const std::string why = wrong(c);
    if (!why.empty()) RC_FAIL(why);
  };
  Quiet quiet;
  const rc::detail::TestResult result = rc::detail::checkTestable(
      testable, rc::detail::TestMetadata{property.name, property.name}, params, quiet,
      std::unordered_map<std::string, rc::detail::Reproduce>{});
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  const bool holds = result.is<rc::detail::SuccessResult>();
  if (holds) {
    std::cout << property.name << ": " << params.maxSuccess << " problems, seed " << params.seed
              << std::endl;
  }
  CHECK_MESSAGE(holds, property.name << "\n"
                                     << text.str() << "\nCONVGRAD_PROPERTY_SEED=" << params.seed
                                     << " CONVGRAD_PROPERTY_CASES=" << property_cases()
                                     << " finds it again");
}

std::string first_wrong_kernel(const RandomCase& c, const std::vector<WgradProblem>& related,
                               const std::function<std::string(const Kernel&)>& wrong) {
  std::vector<WgradProblem> problems = related;
  problems.push_back(c.problem());
  for (const Kernel& kernel : kernels()) {
    const auto refuses = [&](const WgradProblem& problem) {
      return !kernel.why_not(problem, this_machine()).empty();
    };
    if (std::ranges::any_of(problems, refuses)) continue;
    const std::string what = wrong(kernel);
    if (!what.empty()) {
      return cat(kernel.name, ": ", what, "\n", repeat_lines(c, cat(" -a ", kernel.name)));
    }
  }
  return "";
}

}  // namespace convgrad::testing
