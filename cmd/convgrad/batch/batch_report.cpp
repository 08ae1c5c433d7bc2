// batch_report.cpp - what came of the jobs: lines of text, the JSON report, JUnit's XML.
#include <algorithm>
#include <filesystem>

#include "base/messages.hpp"
#include "batch/batch.hpp"
#include "options/arguments.hpp"

namespace convgrad::cli {
namespace {

constexpr std::string_view kVerdictNames[] = {"ok",       "match", "planned", "skipped",
                                              "mismatch", "error", "not run"};
std::string_view verdict_name(Verdict verdict) {
  return kVerdictNames[static_cast<std::size_t>(verdict)];
}

std::size_t count(const std::vector<Outcome>& outcomes, Verdict verdict) {
  return static_cast<std::size_t>(std::ranges::count(outcomes, verdict, &Outcome::verdict));
}

// Returns how many jobs came to each verdict, in the order of Verdict.
std::vector<std::pair<std::string, std::size_t>> counts_of(const BatchReport& r) {
  std::vector<std::pair<std::string, std::size_t>> counts;
  for (const std::string_view name : kVerdictNames) {
    counts.emplace_back(name, count(r.outcomes, static_cast<Verdict>(counts.size())));
  }
  return counts;
}

Json job_json(const BatchJob& job, const Outcome& outcome) {
  Json json = {{"name", job.name},
               {"line", job.line},
               {"status", verdict_name(outcome.verdict)},
               {"exit_code", outcome.status}};
  if (!job.is_refused()) {
    json["command"] = job.verifies ? "verify" : "compute";
    json["elapsed_ms"] = milliseconds(outcome.elapsed_s);
    json["command_line"] = job.repeat;
  }
  if (outcome.report) json.update(outcome.report->json());
  if (outcome.status >= 2)
    json["error"] = error_json(outcome.status, outcome.message, outcome.hint);
  return json;
}

std::string attribute(const char* name, std::string_view value) {
  return cat(" ", name, "=\"", xml_text(value), "\"");
}

// Returns an element with a message and, as its text, the message and how to repeat the job.
std::string problem_element(const char* element, const std::string& message, std::string_view type,
                            const std::string& repeat) {
  return cat("      <", element, attribute("message", message), attribute("type", type), ">",
             xml_text(message), repeat.empty() ? "" : "\nrepeat: ", xml_text(repeat), "</", element,
             ">\n");
}

std::string content_of(const BatchJob& job, const Outcome& outcome) {
  switch (outcome.verdict) {
    case Verdict::mismatch:
      return problem_element("failure", outcome.message, "mismatch", job.repeat);
    case Verdict::error:
      return problem_element("error", outcome.message, cat("status ", outcome.status), job.repeat);
    case Verdict::skipped:
    case Verdict::planned:
    case Verdict::not_run:
      return cat("      <skipped", attribute("message", outcome.message), "/>\n");
    default:
      if (outcome.vacuous.empty()) return "";
      return cat("      <system-err>warning: nothing was tested: ", xml_text(outcome.vacuous),
                 "</system-err>\n");
  }
}

// Returns the element of a job. `suite` is the manifest's name.
std::string case_element(const std::string& suite, const BatchJob& job, const Outcome& outcome) {
  const std::string stem = std::filesystem::path(suite).stem().string();
  const std::string content = content_of(job, outcome);
  const std::string& op = job.options.problem.op;
  const std::string head = cat("    <testcase", attribute("name", job.name),
                               attribute("classname", cat(stem, op.empty() ? "" : ".", op)),
                               attribute("time", fixed(outcome.elapsed_s, 3)));
  return content.empty() ? head + "/>\n" : cat(head, ">\n", content, "    </testcase>\n");
}

}  // namespace

std::string outcome_line(const BatchJob& job, const Outcome& outcome) {
  std::string text = cat(padded(verdict_name(outcome.verdict), 8), "  ", one_line(job.name));
  const bool ok = outcome.verdict == Verdict::ok;
  if (!ok && outcome.verdict != Verdict::match) return cat(text, "  ", outcome.message);
  text += cat("  ", ok ? one_line(job.options.problem.output) + ", " : "",
              fixed(outcome.elapsed_s * 1e3, 1), " ms",
              outcome.vacuous.empty() ? "" : "; warning: nothing was tested: ", outcome.vacuous);
  for (const std::string& what : outcome.not_tested) text += "; not tested: " + what;
  return text;
}

int BatchReport::exit_status() const {
  int worst = 0;
  for (const Outcome& outcome : outcomes) worst = std::max(worst, outcome.status);
  return worst;
}

std::string BatchReport::text() const {
  if (!any_ran) return "";
  std::string text = counted(outcomes.size(), "job");
  const char* separator = ": ";
  for (const auto& [name, count] : counts_of(*this)) {
    if (count == 0) continue;
    text += cat(separator, count, " ", name);
    separator = ", ";
  }
  return cat(text, "; ", fixed(elapsed_s, 3), " s\n");
}

Json BatchReport::json() const {
  Json json = {{"batch",
                {{"jobs_at_a_time", division.jobs},
                 {"threads", division.whole.threads},
                 {"memory_limit_bytes", division.memory_bytes}}}};
  if (!shard.empty()) json["batch"]["shard"] = shard;
  json["batch"]["manifest"] = manifest.name;
  Json& counts = json["batch"]["counts"] = {{"jobs", outcomes.size()}};
  for (auto& [name, count] : counts_of(*this)) {
    std::ranges::replace(name, ' ', '_');
    counts[name] = count;
  }
  json["batch"]["elapsed_ms"] = milliseconds(elapsed_s);
  json["jobs"] = Json::array();
  Json first_error;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const BatchJob& job = manifest.jobs[i];
    const Outcome& outcome = outcomes[i];
    json["jobs"].push_back(job_json(job, outcome));
    if (outcome.status < 2 || !first_error.is_null()) continue;
    first_error = error_json(exit_status(), cat(place_of(manifest, job), ": ", outcome.message),
                             outcome.hint);
  }
  if (!first_error.is_null()) json["error"] = first_error;
  return json;
}

std::string xml_text(std::string_view text) {
  constexpr const char* kBad = "\xef\xbf\xbd";
  // The text goes through JSON, whose writer replaces what is not UTF-8.
  const std::string valid = Json::parse(json_text(text)).get<std::string>();
  std::string result;
  for (std::size_t i = 0; i < valid.size(); ++i) {
    const char c = valid[i];
    const std::string_view rest = std::string_view(valid).substr(i);
    const bool is_control = static_cast<unsigned char>(c) < 0x20;
    // XML 1.0 cannot hold all characters: https://www.w3.org/TR/xml/#charsets
    if (rest.starts_with("\xef\xbf\xbe") || rest.starts_with("\xef\xbf\xbf")) {
      result += kBad;
      i += 2;
    } else if (is_control && c != '\t' && c != '\n' && c != '\r') {
      result += kBad;
    } else if (is_control || c == '&' || c == '<' || c == '>' || c == '"') {
      result += cat("&#", static_cast<int>(c), ";");  // an attribute would make line ends spaces
    } else {
      result += c;
    }
  }
  return result;
}

std::string junit_xml(const Manifest& manifest, const std::vector<Outcome>& outcomes,
                      double elapsed_s) {
  const auto count_of = [&](Verdict verdict) { return count(outcomes, verdict); };
  std::string cases;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    cases += case_element(manifest.name, manifest.jobs[i], outcomes[i]);
  }
  const std::size_t skipped =
      count_of(Verdict::skipped) + count_of(Verdict::planned) + count_of(Verdict::not_run);
  const std::string tests = cat(attribute("tests", cat(outcomes.size())),
                                attribute("failures", cat(count_of(Verdict::mismatch))),
                                attribute("errors", cat(count_of(Verdict::error))));
  const std::string time = attribute("time", fixed(elapsed_s, 3));
  return cat(kJunitStart, tests, time, ">\n  <testsuite", attribute("name", manifest.name), tests,
             attribute("skipped", cat(skipped)), time, ">\n", cases,
             "  </testsuite>\n</testsuites>\n");
}

}  // namespace convgrad::cli
