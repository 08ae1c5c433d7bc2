// batch_report.cpp - what came of the jobs: lines of text and the JSON report.
#include <algorithm>
#include <array>

#include "batch/batch.hpp"

namespace convgrad::cli {
namespace {

struct Counts {
  std::array<std::size_t, std::size(kVerdictNames)> of{};
  std::size_t& operator[](Verdict verdict) { return of[static_cast<std::size_t>(verdict)]; }
};

Counts count(const std::vector<Outcome>& outcomes, std::size_t bad_lines) {
  Counts counts;
  for (const Outcome& outcome : outcomes) ++counts[outcome.verdict];
  counts[Verdict::error] += bad_lines;
  return counts;
}

Json job_json(const BatchJob& job, const Outcome& outcome) {
  Json json = {{"name", job.name},
               {"line", job.line},
               {"command", job.verifies ? "verify" : "compute"},
               {"status", verdict_name(outcome.verdict)},
               {"exit_code", outcome.status},
               {"elapsed_ms", milliseconds(outcome.elapsed_s)},
               {"command_line", job.repeat}};
  for (const auto& [key, value] : outcome.report.items()) {
    if (!json.contains(key)) json[key] = value;
  }
  if (outcome.status >= 2) json["error"] = error_json(outcome.status, outcome.message, {});
  return json;
}

Json bad_line_json(const BadLine& bad) {
  return {{"name", cat("line ", bad.line)},
          {"line", bad.line},
          {"status", "error"},
          {"exit_code", static_cast<int>(ErrorKind::input)},
          {"error", error_json(static_cast<int>(ErrorKind::input), bad.message, {})}};
}

}  // namespace

std::string outcome_line(const BatchJob& job, const Outcome& outcome) {
  std::string text(verdict_name(outcome.verdict));
  text.resize(std::max<std::size_t>(text.size(), 8), ' ');
  text += cat("  ", one_line(job.name));
  const bool ok = outcome.verdict == Verdict::ok;
  if (!ok && outcome.verdict != Verdict::match) return cat(text, "  ", outcome.message);
  text += cat("  ", ok ? one_line(job.options.problem.output) + ", " : "",
              fixed(outcome.elapsed_s * 1e3, 1), " ms",
              outcome.vacuous.empty() ? "" : "; warning: nothing was tested: ", outcome.vacuous);
  for (const Json& what : outcome.report.value("/compare/not_tested"_json_pointer, Json::array())) {
    text += "; not tested: " + what.get<std::string>();
  }
  return text;
}

std::string summary_line(const std::vector<Outcome>& outcomes, std::size_t bad_lines,
                         double elapsed_s) {
  Counts counts = count(outcomes, bad_lines);
  const std::size_t jobs = outcomes.size() + bad_lines;
  std::string text = cat(jobs, jobs == 1 ? " job" : " jobs");
  const char* separator = ": ";
  for (std::size_t i = 0; i < counts.of.size(); ++i) {
    if (counts.of[i] == 0) continue;
    text += cat(separator, counts.of[i], " ", kVerdictNames[i]);
    separator = ", ";
  }
  return cat(text, "; ", fixed(elapsed_s, 3), " s");
}

void report_batch(const Manifest& manifest, const std::vector<Outcome>& outcomes, double elapsed_s,
                  Json& report) {
  Counts counts = count(outcomes, manifest.bad.size());
  Json numbers = {{"jobs", outcomes.size() + manifest.bad.size()}};
  for (std::size_t i = 0; i < counts.of.size(); ++i) {
    std::string name(kVerdictNames[i]);
    std::ranges::replace(name, ' ', '_');
    numbers[name] = counts.of[i];
  }
  report["batch"]["manifest"] = manifest.name;
  report["batch"]["counts"] = numbers;
  report["batch"]["elapsed_ms"] = milliseconds(elapsed_s);
  Json jobs = Json::array();
  std::size_t bad = 0;
  const auto add_bad_before = [&](std::int64_t line) {
    for (; bad < manifest.bad.size() && manifest.bad[bad].line < line; ++bad) {
      jobs.push_back(bad_line_json(manifest.bad[bad]));
    }
  };
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    add_bad_before(manifest.jobs[i].line);
    jobs.push_back(job_json(manifest.jobs[i], outcomes[i]));
  }
  add_bad_before(INT64_MAX);
  report["jobs"] = std::move(jobs);
  report["status"] = counts[Verdict::error] > 0      ? "error"
                     : counts[Verdict::mismatch] > 0 ? "mismatch"
                                                     : "ok";
}

}  // namespace convgrad::cli
