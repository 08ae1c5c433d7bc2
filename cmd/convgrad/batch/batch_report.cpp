// batch_report.cpp - what came of the jobs: lines of text, the JSON report, JUnit's XML.
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "batch/batch.hpp"
#include "report/xml_text.hpp"

namespace convgrad::cli {
namespace {

constexpr std::string_view kJunitStart =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"convgrad batch\"";

std::string milliseconds_text(double seconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f ms", seconds * 1e3);
  return text;
}

std::string seconds_text(double seconds) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3f", seconds);
  return text;
}

std::string stem_of(const Manifest& manifest) {
  return std::filesystem::path(manifest.name).stem().string();
}

struct Counts {
  std::array<std::size_t, 7> of{};
  std::size_t& operator[](Verdict verdict) { return of[static_cast<std::size_t>(verdict)]; }
};

Counts count(const std::vector<Outcome>& outcomes, std::size_t bad_lines) {
  Counts counts;
  for (const Outcome& outcome : outcomes) ++counts[outcome.verdict];
  counts[Verdict::error] += bad_lines;
  return counts;
}

constexpr Verdict kVerdicts[] = {Verdict::ok,      Verdict::match,    Verdict::planned,
                                 Verdict::skipped, Verdict::mismatch, Verdict::error,
                                 Verdict::not_run};

Json job_json(const BatchJob& job, const Outcome& outcome) {
  Json json = {{"name", job.name},
               {"line", job.line},
               {"command", job.verifies ? "verify" : "compute"},
               {"status", verdict_name(outcome.verdict)},
               {"exit_code", outcome.status},
               {"elapsed_ms", std::round(outcome.elapsed_s * 1e6) / 1e3}};
  json["command_line"] = job.repeat;
  for (const auto& [key, value] : outcome.report.items()) {
    if (!json.contains(key)) json[key] = value;
  }
  if (outcome.status >= 2) {
    json["error"] = error_json(outcome.status, outcome.message, {});
  }
  return json;
}

Json bad_line_json(const BadLine& bad) {
  return {{"name", cat("line ", bad.line)},
          {"line", bad.line},
          {"status", "error"},
          {"exit_code", static_cast<int>(ErrorKind::input)},
          {"error", error_json(static_cast<int>(ErrorKind::input), bad.message, {})}};
}

std::string attribute(const char* name, std::string_view value) {
  return cat(" ", name, "=\"", xml_text(value), "\"");
}

// An element with a message and, as its text, the message and how to repeat the job.
std::string problem_element(const char* element, const std::string& message,
                            const std::string& type, const std::string& repeat) {
  return cat("      <", element, attribute("message", message), attribute("type", type), ">",
             xml_text(message), repeat.empty() ? "" : "\nrepeat: ", xml_text(repeat), "</", element,
             ">\n");
}

std::string testcase(const Manifest& manifest, const std::string& name, const std::string& op,
                     double elapsed_s, const std::string& content) {
  const std::string head =
      cat("    <testcase", attribute("name", name),
          attribute("classname", cat(stem_of(manifest), op.empty() ? "" : ".", op)),
          attribute("time", seconds_text(elapsed_s)));
  return content.empty() ? head + "/>\n" : cat(head, ">\n", content, "    </testcase>\n");
}

std::string job_testcase(const Manifest& manifest, const BatchJob& job, const Outcome& outcome) {
  std::string content;
  switch (outcome.verdict) {
    case Verdict::mismatch:
      content = problem_element("failure", outcome.message, "mismatch", job.repeat);
      break;
    case Verdict::error:
      content =
          problem_element("error", outcome.message, cat("status ", outcome.status), job.repeat);
      break;
    case Verdict::skipped:
    case Verdict::planned:
    case Verdict::not_run:
      content = cat("      <skipped", attribute("message", outcome.message), "/>\n");
      break;
    default:
      break;
  }
  return testcase(manifest, job.name, job.options.problem.op, outcome.elapsed_s, content);
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  static constexpr std::string_view kNames[] = {"ok",      "match",   "mismatch", "error",
                                                "skipped", "planned", "not run"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::string outcome_line(const BatchJob& job, const Outcome& outcome) {
  std::string text(verdict_name(outcome.verdict));
  text.resize(std::max<std::size_t>(text.size(), 8), ' ');
  text += cat("  ", one_line(job.name));
  switch (outcome.verdict) {
    case Verdict::ok:
      return cat(text, "  ", one_line(job.options.problem.output), ", ",
                 milliseconds_text(outcome.elapsed_s));
    case Verdict::match:
      return cat(text, "  ", milliseconds_text(outcome.elapsed_s));
    default:
      return cat(text, "  ", outcome.message);
  }
}

std::string summary_line(const std::vector<Outcome>& outcomes, std::size_t bad_lines,
                         double elapsed_s) {
  Counts counts = count(outcomes, bad_lines);
  const std::size_t jobs = outcomes.size() + bad_lines;
  std::string text = cat(jobs, jobs == 1 ? " job" : " jobs");
  const char* separator = ": ";
  for (const Verdict verdict : kVerdicts) {
    if (counts[verdict] == 0) continue;
    text += cat(separator, counts[verdict], " ", verdict_name(verdict));
    separator = ", ";
  }
  return cat(text, "; ", seconds_text(elapsed_s), " s");
}

void report_batch(const Manifest& manifest, const std::vector<Outcome>& outcomes, double elapsed_s,
                  Json& report) {
  Counts counts = count(outcomes, manifest.bad.size());
  Json numbers = {{"jobs", outcomes.size() + manifest.bad.size()}};
  for (const Verdict verdict : kVerdicts) {
    std::string name(verdict_name(verdict));
    if (verdict == Verdict::not_run) name = "not_run";
    numbers[name] = counts[verdict];
  }
  report["batch"]["manifest"] = manifest.name;
  report["batch"]["counts"] = numbers;
  report["batch"]["elapsed_ms"] = std::round(elapsed_s * 1e6) / 1e3;
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

void check_junit_file(const std::string& path) {
  if (path.empty() || is_replaceable(path, kJunitStart, "--junit: ")) return;
  throw Error(ErrorKind::usage,
              cat("--junit: ", path, " exists and is no JUnit file of convgrad batch; remove it, ",
                  "or name another file"));
}

std::string junit_xml(const Manifest& manifest, const std::vector<Outcome>& outcomes,
                      double elapsed_s) {
  Counts counts = count(outcomes, manifest.bad.size());
  const std::string totals = cat(attribute("tests", cat(outcomes.size() + manifest.bad.size())),
                                 attribute("failures", cat(counts[Verdict::mismatch])),
                                 attribute("errors", cat(counts[Verdict::error])));
  const std::string skipped = attribute(
      "skipped",
      cat(counts[Verdict::skipped] + counts[Verdict::planned] + counts[Verdict::not_run]));
  const std::string time = attribute("time", seconds_text(elapsed_s));
  std::string text = cat(kJunitStart, totals, time, ">\n");
  text += cat("  <testsuite", attribute("name", manifest.name), totals, skipped, time, ">\n");
  for (const BadLine& bad : manifest.bad) {
    text += testcase(manifest, cat("line ", bad.line), "", 0,
                     problem_element("error", bad.message, "malformed line", ""));
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    text += job_testcase(manifest, manifest.jobs[i], outcomes[i]);
  }
  return text + "  </testsuite>\n</testsuites>\n";
}

}  // namespace convgrad::cli
