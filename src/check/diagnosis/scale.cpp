// scale.cpp - a gradient that is a multiple of the right one.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

// A factor that is only known from the gradient must explain this many entries that are not zero.
constexpr std::size_t kLeastEntries = 3;

// More digits tell no double from another.
constexpr int kMostDigits = 17;

struct Factor {
  double value;
  std::string name;
};

std::vector<Factor> known_factors(const WgradProblem& pb) {
  std::vector<Factor> factors;
  const auto add = [&](double count, const std::string& name) {
    if (!(count > 1)) return;
    factors.push_back({1 / count, "1/" + name});
    factors.push_back({count, name});
  };
  const double N = static_cast<double>(pb.N), pixels = static_cast<double>(pb.out_pixels());
  const bool deep = pb.op == Op::conv3d;
  add(N, "N");
  add(N * pixels, deep ? "(N*Z*P*Q)" : "(N*P*Q)");
  add(pixels, deep ? "(Z*P*Q)" : "(P*Q)");
  add(static_cast<double>(pb.taps()), deep ? "(T*R*S)" : "(R*S)");
  add(static_cast<double>(pb.groups), "groups");
  add(static_cast<double>(pb.C), "C");
  add(static_cast<double>(pb.K), "K");
  return factors;
}

// Every entry is within the bound of factor * want.
bool explains(const Evidence& evidence, double factor) {
  const Expected& e = evidence.suspect().expected;
  Expected predicted;
  Positions all;
  for (std::size_t at = 0; at < evidence.size(); ++at) {
    all.push_back(at);
    predicted.values.push_back(factor * e.values[at]);
    predicted.scales.push_back(std::fabs(factor) * e.scales[at]);
  }
  return evidence.explained(all, predicted);
}

std::string digits(double value, int count) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", count, value);
  return text;
}

// The number of the fewest digits near factor that explains everything, or "".
std::string shortest_factor(const Evidence& evidence, double factor) {
  for (int count = 1; count <= kMostDigits; ++count) {
    std::string text = digits(factor, count);
    if (explains(evidence, std::strtod(text.c_str(), nullptr))) return text;
  }
  return "";
}

}  // namespace

std::optional<Finding> find_scale(const Evidence& evidence) {
  const Suspect& s = evidence.suspect();
  // The factor with the least squares of error/rounding, and how many entries tell it at all.
  double products = 0, squares = 0;
  std::size_t telling = 0;
  bool all_zero = true;
  for (std::size_t at = 0; at < evidence.size(); ++at) {
    all_zero = all_zero && s.got[at] == 0;
    if (!std::isfinite(s.got[at]) || !std::isfinite(s.expected.values[at])) continue;
    const double unit =
        s.expected.scales[at] + rounding_step(evidence.problem().out_dtype, s.expected.values[at]);
    const double want = s.expected.values[at] / unit, got = s.got[at] / unit;
    telling += std::fabs(want) > 4 ? 1 : 0;
    products += want * got;
    squares += want * want;
  }
  const auto checked = static_cast<std::int64_t>(evidence.size());
  if (all_zero) return Finding{"zero", "every element is set to 0", Certainty::match, checked};
  if (telling == 0) return std::nullopt;
  for (const Factor& known : known_factors(evidence.problem())) {
    if (!explains(evidence, known.value)) continue;
    return Finding{"scale_factor",
                   cat("it is multiplied by ", digits(known.value, 9), " (", known.name, ")"),
                   Certainty::match, checked};
  }
  const double factor = products / squares;
  if (telling < kLeastEntries || !explains(evidence, factor)) return std::nullopt;
  const std::string text = shortest_factor(evidence, factor);
  if (text.empty()) return std::nullopt;
  return Finding{"scale_factor", cat("it is multiplied by ", text), Certainty::match, checked};
}

}  // namespace convgrad::diagnosis
