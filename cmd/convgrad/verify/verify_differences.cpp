// verify_differences.cpp - see verify.hpp.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "job/job_files.hpp"
#include "options/arguments.hpp"
#include "verify/verify.hpp"

namespace convgrad::cli {
namespace {

// Returns what an element is off by: in units of rounding where that is known, else |got - want|.
double badness(const Expected& e, const Tolerance& tolerance, const Gradient& got,
               const std::vector<double>& want, std::size_t at) {
  if (!tolerance.needs_terms()) {
    const double error = std::fabs(got.values[at] - want[at]);
    return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  }
  return unexplained_error(got.dtype, got.values[at], want[at], e.tails.empty() ? 0 : e.tails[at]) /
         e.scales[at];
}

Notes worst_elements(const Judged& judged, const Expected& expected, const Tolerance& tolerance,
                     const Gradient& got, std::int64_t count) {
  const WgradProblem& pb = judged.problem;
  const std::vector<double>& want = expected.values;
  std::vector<double> off(want.size());
  for (std::size_t i = 0; i < off.size(); ++i) off[i] = badness(expected, tolerance, got, want, i);
  std::vector<std::size_t> order(off.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto shown = std::min(order.size(), static_cast<std::size_t>(count));
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
      [&](std::size_t a, std::size_t b) { return off[a] != off[b] ? off[a] > off[b] : a < b; });
  const char* unit = tolerance.needs_terms() ? " times rounding's" : "";
  Notes notes;
  notes.lines.push_back(cat("most off: ", shown, " elements"));
  Json list = Json::array();
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t at = order[i];
    const std::int64_t index =
        judged.sample.indices.empty() ? static_cast<std::int64_t>(at) : judged.sample.indices[at];
    notes.lines.push_back(cat("  ", element_text(pb, index), " got ", general(got.values[at], 9),
                              ", want ", general(want[at], 9), ", off by ", general(off[at], 3),
                              unit));
    list.push_back({{"index", element_position(pb, index)},
                    {"got", number(got.values[at])},
                    {"want", number(want[at])},
                    {tolerance.needs_terms() ? "rounding" : "abs", number(off[at])}});
  }
  notes.json["most_off"] = list;
  return notes;
}

void save_difference(const WgradProblem& problem, const VerifyCommand& options, const Gradient& got,
                     const std::vector<double>& want) {
  std::vector<double> difference(want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double target = rounded(got.dtype, want[i]);
    const bool equal = got.values[i] == target || (std::isnan(got.values[i]) && std::isnan(target));
    difference[i] = equal ? 0 : got.values[i] - want[i];
  }
  WgradProblem file = problem;
  file.out_dtype = got.dtype == DType::f64 ? DType::f64 : DType::f32;
  write_gradient(options.verify.save_diff, file, difference.data(), nullptr,
                 {options.execution.no_clobber});
  const bool plain = problem.filter_format == FilterFormat::hwio;
  say_how_to_draw(options.verify.save_diff, plain ? "" : filter_format_name(problem), options);
}

}  // namespace

void check_differences(const VerifyCommand& options) {
  const VerifyOptions& v = options.verify;
  check_difference(v.save_diff);
  if (v.sample && !v.save_diff.empty()) {
    misuse("--save-diff: given with --sample, but it shows all elements");
  }
}

Notes differences(const VerifyCommand& options, const Judged& judged, const Expected& expected,
                  const Tolerance& tolerance) {
  const VerifyOptions& v = options.verify;
  Notes notes;
  const Gradient& got = judged.results[0];
  if (v.show) notes.add(worst_elements(judged, expected, tolerance, got, *v.show));
  if (!v.save_diff.empty()) save_difference(judged.problem, options, got, expected.values);
  return notes;
}

}  // namespace convgrad::cli
