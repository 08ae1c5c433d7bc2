// verify_runs.cpp - see verify.hpp.
#include <algorithm>
#include <cmath>

#include "verify/verify.hpp"

namespace convgrad::cli {
namespace {

// Counts the elements that are not the same in all runs.
std::int64_t differing(const std::vector<Gradient>& runs) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < runs[0].values.size(); ++i) {
    count +=
        std::ranges::all_of(
            runs, [&](const Gradient& run) { return same_bits(run.values[i], runs[0].values[i]); })
            ? 0
            : 1;
  }
  return count;
}

// Both sides have errors, each of the scale, and each is rounded to its dtype at the end.
Expected of_two_runs(const Expected& expected, const Gradient& run) {
  Expected result;
  result.values = run.values;
  result.magnitudes = expected.magnitudes;
  for (std::size_t i = 0; i < expected.scales.size(); ++i) {
    const double step = rounding_step(run.dtype, run.values[i]);
    const double scale = expected.scales[i];
    result.scales.push_back(std::sqrt(2 * scale * scale + step * step / 12));
    result.limits.push_back(2 * expected.limits[i] + step);
  }
  result.squares = expected.squares;
  return result;
}

// Returns the run that is furthest from the first.
Compared furthest(const Judged& judged, const Expected& reference, const Tolerance& tolerance) {
  const Gradient& first = judged.results[0];
  const bool terms = tolerance.needs_terms();
  Tolerance rounding = tolerance;
  if (terms) rounding.criterion = Criterion::rounding;
  Expected expected;
  if (terms) {
    expected = of_two_runs(reference, first);
  } else {
    expected.values = first.values;
  }
  Compared worst;
  const auto size = [&](const Comparison& c) {
    return c.rounding ? c.rounding->worst.score() : c.relative_error;
  };
  for (std::size_t i = 1; i < judged.results.size(); ++i) {
    const Gradient& run = judged.results[i];
    Comparison comparison = compare_gradients(judged.problem, run.dtype, judged.sample.indices,
                                              run.values, expected, rounding);
    if (i > 1 && !(size(comparison) > size(worst.comparison))) continue;
    worst = {run.name, first.name, run.dtype, std::move(comparison)};
  }
  return worst;
}

}  // namespace

Notes run_to_run(const Judged& judged, const Expected& expected, const Tolerance& tolerance) {
  Notes notes;
  const std::int64_t count = differing(judged.results);
  const auto elements = static_cast<std::int64_t>(judged.results[0].values.size());
  const std::string runs = cat("runs: ", judged.results.size(), " results");
  Json json = {{"runs", judged.results.size()}, {"differing", count}, {"of", elements}};
  if (count == 0) {
    notes.lines.push_back(cat(runs, ", every bit equal"));
    json["verdict"] = "equal";
    notes.json["runs"] = json;
    return notes;
  }
  const Compared worst = furthest(judged, expected, tolerance);
  const Comparison& c = worst.comparison;
  const bool known = c.rounding.has_value();
  const bool within = c.match();
  notes.failed = !within;
  std::string line = cat(runs, " differ in ", count, " of ", elements, " elements; ", worst.got,
                         " and ", worst.want, " agree to ", agreement_text(c.relative_error));
  if (known) line += cat(", differences are ", group_text(judged.problem, c.rounding->worst));
  notes.lines.push_back(line);
  notes.lines.push_back(
      within ? cat("they differ from run to run within ", known ? "rounding" : "the tolerance",
                   ": order of sums, atomics")
             : cat("they differ from run to run beyond ", known ? "rounding" : "the tolerance",
                   ": a race, or memory that is not initialised"));
  json["verdict"] = within ? "within rounding" : "beyond rounding";
  json["furthest"] = {{"got", worst.got}, {"want", worst.want}};
  json["relative_error"] = number(c.relative_error);
  json["max_ulp"] = number(c.ulp.value);
  if (known) {
    json["score"] = number(c.rounding->worst.score());
    Json taps = Json::array();
    for (std::size_t t = 0; t < c.taps.size(); ++t) {
      taps.push_back({{"tap", tap_position(judged.problem, static_cast<std::int64_t>(t))},
                      {"rounding", number(c.taps[t].rounding)},
                      {"max_abs", number(c.taps[t].max_abs)}});
    }
    json["taps"] = taps;
  }
  notes.json["runs"] = json;
  return notes;
}

}  // namespace convgrad::cli
