// junit.cpp - the results as JUnit's XML.
#include <filesystem>

#include "batch/batch.hpp"

namespace convgrad::cli {
namespace {

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

// Returns the element of a job. `suite` is the manifest's name.
std::string case_element(const std::string& suite, const std::string& name, const std::string& op,
                         double elapsed_s, const std::string& content) {
  const std::string stem = std::filesystem::path(suite).stem().string();
  const std::string head = cat("    <testcase", attribute("name", name),
                               attribute("classname", cat(stem, op.empty() ? "" : ".", op)),
                               attribute("time", fixed(elapsed_s, 3)));
  return content.empty() ? head + "/>\n" : cat(head, ">\n", content, "    </testcase>\n");
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

}  // namespace

std::string xml_text(std::string_view text) {
  constexpr const char* kBad = "\xef\xbf\xbd";
  // The text goes through JSON, whose writer replaces what is not UTF-8.
  const std::string valid =
      Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace))
          .get<std::string>();
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
  std::size_t failures = 0, errors = manifest.bad.size(), skipped = 0;
  std::string cases;
  for (const BadLine& bad : manifest.bad) {
    cases += case_element(manifest.name, cat("line ", bad.line), "", 0,
                          problem_element("error", bad.message, "malformed line", ""));
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const std::string content = content_of(manifest.jobs[i], outcomes[i]);
    failures += content.starts_with("      <failure");
    errors += content.starts_with("      <error");
    skipped += content.starts_with("      <skipped");
    cases += case_element(manifest.name, manifest.jobs[i].name, manifest.jobs[i].options.problem.op,
                          outcomes[i].elapsed_s, content);
  }
  const std::string counts =
                        cat(attribute("tests", cat(manifest.bad.size() + outcomes.size())),
                            attribute("failures", cat(failures)), attribute("errors", cat(errors))),
                    time = attribute("time", fixed(elapsed_s, 3));
  return cat(kJunitStart, counts, time, ">\n  <testsuite", attribute("name", manifest.name), counts,
             attribute("skipped", cat(skipped)), time, ">\n", cases,
             "  </testsuite>\n</testsuites>\n");
}

}  // namespace convgrad::cli
