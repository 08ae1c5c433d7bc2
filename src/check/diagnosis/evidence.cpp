// evidence.cpp - see search.hpp.
#include <algorithm>
#include <cmath>

#include "check/diagnosis/search.hpp"
#include "check/draw.hpp"

namespace convgrad::diagnosis {
namespace {

// An explanation must leave at most this part of the sum of squared errors.
constexpr double kUnexplained = 1.0 / 16;

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

Evidence::Evidence(const Suspect& suspect)
    : suspect_(suspect),
      model_{suspect.problem.out_dtype, accumulator_dtype(suspect.problem.dtype),
             term_count(suspect.problem)} {
  for (std::size_t at = 0; at < size(); ++at) {
    (fits(at, suspect.want[at], suspect.magnitudes[at]) ? passing_ : failing_).push_back(at);
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

bool Evidence::fits(std::size_t at, double value, double magnitude) const {
  return within_bound(suspect_.got[at], value, magnitude, model_);
}

bool Evidence::explained(const Positions& at, std::span<const double> values,
                         std::span<const double> magnitudes) const {
  double before = 0, after = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (!fits(at[i], values[i], magnitudes[i])) return false;
    const double got = suspect_.got[at[i]];
    if (!std::isfinite(got)) continue;
    before += std::pow(got - suspect_.want[at[i]], 2);
    after += std::pow(got - values[i], 2);
  }
  // NaN and infinities in `before` mean that the reference explains nothing of a finite value.
  return !(after > kUnexplained * before);
}

}  // namespace convgrad::diagnosis
