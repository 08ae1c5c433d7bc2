// bench_baseline.cpp - is anything slower than in an earlier report?
#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <sstream>

#include "bench/bench.hpp"
#include "files/text_file.hpp"
#include "options/refuse.hpp"
#include "report/color.hpp"

namespace convgrad::cli {
namespace {

// What identifies a case in two reports.
std::string key_of(const std::string& name, const std::string& dtype, const std::string& algorithm,
                   int threads) {
  return cat(name, " (", dtype, ", ", algorithm, ", ", threads,
             threads == 1 ? " thread)" : " threads)");
}

std::string key_of(const BenchCase& c) {
  return key_of(c.name, std::string(dtype_name(c.problem.dtype)), c.algorithm, c.plan.threads);
}

}  // namespace

Baseline::Baseline(const std::string& path, const std::vector<BenchCase>& cases) {
  const Json report = Json::parse(read_text(path, {"--baseline: ", "a report"}), nullptr, false);
  if (report.is_discarded() || !report.is_object() || !report.contains("problems")) {
    bad_input("--baseline: ", path, " is no report of convgrad bench; write one with --json=FILE");
  }
  try {
    for (const Json& problem : report.at("problems")) {
      const Json& execution = problem.at("execution");
      const double median = problem.at("timing_ms").at("kernel").at("median").get<double>();
      if (!(median > 0)) {
        bad_input("--baseline: ", path, ": a median is ", median, ", expected more than 0");
      }
      medians_[key_of(problem.at("name").get<std::string>(),
                      problem.at("attrs").at("dtype").get<std::string>(),
                      execution.at("requested_algorithm").get<std::string>(),
                      execution.at("threads").get<int>())] = median;
    }
  } catch (const Json::exception&) {
    bad_input("--baseline: ", path,
              " has a problem without name, attrs.dtype, execution.requested_algorithm, "
              "execution.threads or timing_ms.kernel.median");
  }
  for (const BenchCase& c : cases) {
    if (median_ms(c)) return;
  }
  bad_input("--baseline: ", path, " has none of the problems, expected e.g. ",
            key_of(cases.front()));
}

std::optional<double> Baseline::median_ms(const BenchCase& c) const {
  const auto found = medians_.find(key_of(c));
  if (found == medians_.end()) return {};
  return found->second;
}

double parse_slowdown(const std::string& text) {
  if (text.empty()) return 0.1;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || std::string(end) != "%" || !std::isfinite(value) || value < 0) {
    misuse("--max-slowdown: '", text, "', expected a percentage, e.g. 10%");
  }
  return value / 100;
}

bool passes(const Baseline& baseline, const Options& options, double max_slowdown,
            const std::vector<Measured>& all, Json& report) {
  Json regressions = Json::array(), added = Json::array();
  std::int64_t compared = 0;
  for (const Measured& m : all) {
    const std::string key = key_of(*m.bench_case);
    const auto before = baseline.median_ms(*m.bench_case);
    if (!before) {
      added.push_back(key);
      say(options, "new", cat(one_line(key), " is not in the baseline"));
      continue;
    }
    ++compared;
    const double now = m.time.median * 1e3, slowdown = now / *before - 1;
    if (!(slowdown > max_slowdown)) continue;
    regressions.push_back(
        {{"problem", key}, {"median_ms", now}, {"baseline_ms", *before}, {"slowdown", slowdown}});
    say(options, "slower",
        cat(one_line(key), ": median ", fixed(now, 4), " ms, baseline ", fixed(*before, 4),
            " ms: +", fixed(100 * slowdown, 1), " %, allowed ", fixed(100 * max_slowdown, 1),
            " %"));
  }
  const bool good = regressions.empty();
  report["baseline"] = {{"file", options.bench.baseline},
                        {"max_slowdown", max_slowdown},
                        {"compared", compared},
                        {"regressions", std::move(regressions)},
                        {"new", std::move(added)}};
  return good;
}

}  // namespace convgrad::cli
