// evidence.cpp - see search.hpp.
#include <algorithm>
#include <cmath>

#include "check/diagnosis/search.hpp"
#include "check/draw.hpp"
#include "check/rounding.hpp"

namespace convgrad::diagnosis {
namespace {

// An explanation must leave at most this part of the sum of squared errors.
constexpr double kUnexplained = 1.0 / 16;
// As Tolerance::slack.
constexpr double kSlack = 3;

Positions drawn(const Positions& from, std::size_t count, std::mt19937_64& random) {
  if (from.size() <= count) return from;
  Positions all = from;
  for (std::size_t i = 0; i < count; ++i) {
    const auto left = static_cast<std::int64_t>(all.size() - i);
    std::swap(all[i], all[i + static_cast<std::size_t>(draw(random, left))]);
  }
  all.resize(count);
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

Evidence::Evidence(const Suspect& suspect) : suspect_(suspect) {
  const Expected& e = suspect.expected;
  for (std::size_t at = 0; at < size(); ++at) {
    (fits(at, e.values[at], e.scales[at]) ? passing_ : failing_).push_back(at);
  }
}

Positions Evidence::choose(std::size_t count) const {
  std::mt19937_64 random(1);
  const std::size_t failing =
      std::max((2 * count + 2) / 3, count - std::min(count, passing_.size()));
  Positions result = drawn(failing_, failing, random);
  const Positions others = drawn(passing_, count - std::min(count, result.size()), random);
  result.insert(result.end(), others.begin(), others.end());
  std::sort(result.begin(), result.end());
  return result;
}

bool Evidence::fits(std::size_t at, double value, double scale) const {
  const double error = unexplained_error(problem().out_dtype, suspect_.got[at], value);
  return error <= kSlack * group_factor(1) * scale;
}

bool Evidence::explained(const Positions& at, const Expected& predicted) const {
  double before = 0, after = 0, squares = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double got = suspect_.got[at[i]], want = suspect_.expected.values[at[i]];
    const double value = predicted.values[i], scale = predicted.scales[i];
    if (!fits(at[i], value, scale)) return false;
    if (!std::isfinite(got)) continue;
    squares += std::pow(unexplained_error(problem().out_dtype, got, value) / scale, 2);
    before += std::pow(got - want, 2);
    after += std::pow(got - value, 2);
  }
  const auto count = static_cast<double>(at.size());
  if (!(std::sqrt(squares / count) <= kSlack * group_factor(count))) return false;
  // NaN and infinities in `before` mean that the reference explains nothing of a finite value.
  return !(after > kUnexplained * before);
}

}  // namespace convgrad::diagnosis
