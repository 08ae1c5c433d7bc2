// bench_baseline.cpp - is anything slower than in an earlier report, and can that be told?
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

// What identifies a row in two reports, and to readers.
std::string row_key(const std::string& name, const std::string& dtype, const std::string& algorithm,
                    int threads, bool cold_cache) {
  return cat(name, " (", dtype, ", ", algorithm, ", ", threads,
             threads == 1 ? " thread" : " threads", cold_cache ? ", cold caches)" : ")");
}

std::string row_key(const BenchCase& c) {
  return row_key(c.name, std::string(dtype_name(c.problem.dtype)), c.algorithm, c.plan.threads,
                 c.cold_cache);
}

// 0.1 for "10%".
double parse_percentage(const char* flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || std::string(end) != "%" || !std::isfinite(value) || value < 0) {
    misuse(flag, ": '", text, "', expected a percentage, e.g. 10%");
  }
  return value / 100;
}

std::string in_percent(double part) { return fixed(100 * part, 1) + " %"; }

// A line for each row that the baseline has not, or that is slower.
Json compared_json(const Limits& limits, const Options& options, const std::vector<Measured>& all) {
  Json regressions = Json::array(), added = Json::array();
  for (const Measured& m : all) {
    const std::string key = row_key(*m.bench_case);
    const auto before = limits.baseline->compare(m);
    if (!before) {
      added.push_back(key);
      say(options, "new", cat(one_line(key), " is not in the baseline"));
    } else if (limits.slow(m) && !limits.noisy(m)) {
      const double now = m.time.min * 1e3;
      const bool by_yardstick = before->per_yardstick.has_value();
      regressions.push_back(
          {{"problem", key},
           {"min_ms", now},
           {"baseline_ms", before->min_ms},
           {"per_yardstick", by_yardstick ? Json(*m.per_yardstick) : Json()},
           {"baseline_per_yardstick", by_yardstick ? Json(*before->per_yardstick) : Json()},
           {"slowdown", before->slowdown}});
      say(options, "slower",
          cat(one_line(key), ": +", in_percent(before->slowdown), " in the best of ", m.attempts,
              " attempts, by the ", by_yardstick ? "yardstick" : "shortest run", ", allowed ",
              in_percent(limits.max_slowdown), "; shortest run ", fixed(now, 4), " ms, baseline ",
              fixed(before->min_ms, 4), " ms"));
    }
  }
  return {{"file", options.bench.baseline},
          {"max_slowdown", limits.max_slowdown},
          {"compared", std::ssize(all) - std::ssize(added)},
          {"regressions", std::move(regressions)},
          {"new", std::move(added)}};
}

Json noise_json(const Limits& limits, const Options& options, const std::vector<Measured>& all) {
  Json rows = Json::array();
  for (const Measured& m : all) {
    if (!limits.noisy(m)) continue;
    const double cv = *m.time.variation();
    rows.push_back({{"problem", row_key(*m.bench_case)}, {"cv", cv}});
    say(options, "noisy",
        cat(one_line(row_key(*m.bench_case)), ": times vary by ", in_percent(cv),
            " in the best of ", m.attempts, " attempts, allowed ", in_percent(*limits.max_cv),
            ": no verdict; free the machine of other work"));
  }
  return {{"max_cv", *limits.max_cv}, {"rows", std::move(rows)}};
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
      const Json& kernel = problem.at("timing_ms").at("kernel");
      Row row = {kernel.at("min").get<double>(), {}, {}};
      if (!(row.min_ms > 0)) {
        bad_input("--baseline: ", path, ": a shortest time is ", row.min_ms,
                  ", expected more than 0");
      }
      // Reports of version 0.1 and a device's rows have none.
      if (kernel.contains("per_yardstick") && !kernel["per_yardstick"].is_null()) {
        row.per_yardstick = kernel["per_yardstick"].get<double>();
        row.yardstick = kernel.at("yardstick").get<std::string>();
        if (!(*row.per_yardstick > 0)) {
          bad_input("--baseline: ", path, ": a per_yardstick is ", *row.per_yardstick,
                    ", expected more than 0");
        }
      }
      rows_[row_key(
          problem.at("name").get<std::string>(), problem.at("attrs").at("dtype").get<std::string>(),
          execution.at("requested_algorithm").get<std::string>(),
          execution.at("threads").get<int>(), execution.value("cold_cache", false))] = row;
    }
  } catch (const Json::exception&) {
    bad_input(
        "--baseline: ", path,
        " has a problem without name, attrs.dtype, execution.requested_algorithm, "
        "execution.threads or timing_ms.kernel.min, or with a per_yardstick that is no number or "
        "of no yardstick");
  }
  for (const BenchCase& c : cases) {
    if (rows_.contains(row_key(c))) return;
  }
  bad_input("--baseline: ", path, " has none of the problems, expected e.g. ",
            row_key(cases.front()));
}

std::optional<Baseline::Comparison> Baseline::compare(const Measured& m) const {
  const auto found = rows_.find(row_key(*m.bench_case));
  if (found == rows_.end()) return {};
  const Row& before = found->second;
  if (m.per_yardstick && before.per_yardstick && m.yardstick == before.yardstick) {
    return Comparison{before.min_ms, before.per_yardstick,
                      *m.per_yardstick / *before.per_yardstick - 1};
  }
  return Comparison{before.min_ms, {}, m.time.min * 1e3 / before.min_ms - 1};
}

bool Limits::slow(const Measured& m) const {
  if (!baseline) return false;
  const auto before = baseline->compare(m);
  return before && before->slowdown > max_slowdown;
}

bool Limits::noisy(const Measured& m) const {
  return max_cv && m.time.variation().value_or(0) > *max_cv;
}

Limits limits_of(const Options& options, const std::vector<BenchCase>& cases) {
  const BenchOptions& b = options.bench;
  const bool by_flag = !b.max_slowdown.empty() && options.variables.count("--max-slowdown") == 0;
  if (by_flag && b.baseline.empty()) misuse("--max-slowdown: given without --baseline");
  Limits limits;
  limits.max_slowdown =
      parse_percentage("--max-slowdown", b.max_slowdown.empty() ? "10%" : b.max_slowdown);
  if (!b.max_cv.empty()) {
    limits.max_cv = parse_percentage("--max-cv", b.max_cv);
    if (b.repeat < 2) misuse("--max-cv: one run does not vary; give --repeat 2 or more");
  }
  if (!b.baseline.empty()) limits.baseline.emplace(b.baseline, cases);
  return limits;
}

int judge(const Limits& limits, const Options& options, const std::vector<Measured>& all,
          Json& report) {
  bool slower = false, noisy = false;
  if (limits.baseline) {
    report["baseline"] = compared_json(limits, options, all);
    slower = !report["baseline"]["regressions"].empty();
  }
  if (limits.max_cv) {
    report["noise"] = noise_json(limits, options, all);
    noisy = !report["noise"]["rows"].empty();
  }
  if (slower || noisy) report["status"] = slower ? "slower" : "noisy";
  return slower ? 1 : noisy ? static_cast<int>(ErrorKind::runtime) : 0;
}

}  // namespace convgrad::cli
