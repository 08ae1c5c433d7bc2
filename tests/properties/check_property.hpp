// check_property.hpp - runs properties over random problems and says how to repeat a failure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/kernel.hpp"
#include "random_case.hpp"

namespace convgrad::testing {

// What is wrong with a case, or "".
using Verdict = std::function<std::string(const RandomCase&)>;

struct Property {
  std::string name = {};
  CaseLimits limits = {};
  int divisor = 1;  // of the number of cases, for slow ones
  int least = 1;    // cases, however few are asked for
  std::function<bool(const RandomCase&)> applies = {};
};

inline Property named(const char* name) { return {.name = name}; }

// Cases for each property: CONVGRAD_PROPERTY_CASES, or a number that suits the build.
int property_cases();

// Fails the doctest case with the smallest counterexample of rapidcheck's, the commands that repeat
// it, and the seed; prints how many cases passed. CONVGRAD_PROPERTY_SEED chooses others.
void check_property(const Property& property, const Verdict& wrong);

// "", or the first kernel of the table for which wrong(kernel) says something, with that. Of those
// that compute the case and the problems related to it, which wrong() computes as well.
std::string first_wrong_kernel(const RandomCase& c, const std::vector<WgradProblem>& related,
                               const std::function<std::string(const Kernel&)>& wrong);

}  // namespace convgrad::testing
