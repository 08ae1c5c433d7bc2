// junit.cpp - see junit.hpp.
#include "batch/junit.hpp"

#include <cstdlib>
#include <filesystem>

#include "files/text_file.hpp"
#include "options/arguments.hpp"
#include "options/refuse.hpp"
#include "report/xml_text.hpp"

namespace convgrad::cli {
namespace {

// What the reader goes by: a line is one of these, or within a case.
constexpr std::string_view kSuiteStart = "  <testsuite ", kSuiteEnd = "  </testsuite>",
                           kShardStart = "    <properties><property name=\"shard\"",
                           kCaseStart = "    <testcase ", kCaseEnd = "    </testcase>",
                           kEnd = "</testsuites>", kMalformed = "malformed line";

std::string attribute(const char* name, std::string_view value) {
  return cat(" ", name, "=\"", xml_text(value), "\"");
}

// An element with a message and, as its text, the message and how to repeat the job.
std::string problem_element(const char* element, const std::string& message, std::string_view type,
                            const std::string& repeat) {
  return cat("      <", element, attribute("message", message), attribute("type", type), ">",
             xml_text(message), repeat.empty() ? "" : "\nrepeat: ", xml_text(repeat), "</", element,
             ">\n");
}

// suite: the manifest's name.
std::string case_element(const std::string& suite, const std::string& name, const std::string& op,
                         double elapsed_s, const std::string& content) {
  const std::string stem = std::filesystem::path(suite).stem().string();
  const std::string head = cat(kCaseStart.substr(0, kCaseStart.size() - 1), attribute("name", name),
                               attribute("classname", cat(stem, op.empty() ? "" : ".", op)),
                               attribute("time", fixed(elapsed_s, 3)));
  return content.empty() ? head + "/>\n" : cat(head, ">\n", content, kCaseEnd, "\n");
}

std::string status_type(int status) { return cat("status ", status); }

JunitCase case_of(const Manifest& manifest, const BatchJob& job, const Outcome& outcome) {
  JunitCase result{job.name, outcome.verdict, outcome.status, outcome.message, false, ""};
  std::string content;
  switch (outcome.verdict) {
    case Verdict::mismatch:
      content = problem_element("failure", outcome.message, "mismatch", job.repeat);
      break;
    case Verdict::error:
      content = problem_element("error", outcome.message, status_type(outcome.status), job.repeat);
      break;
    case Verdict::skipped:
    case Verdict::planned:
    case Verdict::not_run:
      result.verdict = Verdict::skipped;
      content = cat("      <skipped", attribute("message", outcome.message), "/>\n");
      break;
    default:
      result.verdict = Verdict::ok;
      if (outcome.vacuous.empty()) break;
      content = cat("      <system-err>warning: nothing was tested: ", xml_text(outcome.vacuous),
                    "</system-err>\n");
  }
  result.xml =
      case_element(manifest.name, job.name, job.options.problem.op, outcome.elapsed_s, content);
  return result;
}

JunitCase error_case(const std::string& suite, const std::string& name, const std::string& message,
                     int status, std::string_view type) {
  const std::string content = problem_element("error", message, type, "");
  return {name,    Verdict::error,     status,
          message, type == kMalformed, case_element(suite, name, "", 0, content)};
}

struct Totals {
  std::size_t tests = 0, failures = 0, errors = 0, skipped = 0;
  double elapsed_s = 0;

  void add(const JunitSuite& suite) {
    tests += suite.cases.size();
    elapsed_s += suite.elapsed_s;
    for (const JunitCase& one : suite.cases) {
      failures += one.verdict == Verdict::mismatch;
      errors += one.verdict == Verdict::error;
      skipped += one.verdict == Verdict::skipped;
    }
  }
  std::string attributes(bool with_skipped) const {
    return cat(attribute("tests", cat(tests)), attribute("failures", cat(failures)),
               attribute("errors", cat(errors)),
               with_skipped ? attribute("skipped", cat(skipped)) : "",
               attribute("time", fixed(elapsed_s, 3)));
  }
};

std::string suite_element(const JunitSuite& suite) {
  Totals totals;
  totals.add(suite);
  std::string text = cat(kSuiteStart.substr(0, kSuiteStart.size() - 1),
                         attribute("name", suite.name), totals.attributes(true), ">\n");
  if (!suite.shard.empty()) {
    text += cat(kShardStart, attribute("value", suite.shard), "/></properties>\n");
  }
  for (const JunitCase& one : suite.cases) text += one.xml;
  return cat(text, kSuiteEnd, "\n");
}

class Reader {
 public:
  explicit Reader(const std::string& path)
      : path_(path), lines_(read_text(path, {"--merge: ", "a JUnit file of convgrad batch"})) {}

  std::vector<JunitSuite> read() {
    const std::string first = next() + "\n";
    if (!(first + next()).starts_with(kJunitStart)) refuse();
    std::vector<JunitSuite> suites;
    for (next(); line_ != kEnd; next()) {
      if (!line_.starts_with(kSuiteStart)) refuse();
      suites.push_back(suite());
    }
    if (std::getline(lines_, line_)) refuse();
    return suites;
  }

 private:
  [[noreturn]] void refuse() const {
    bad_input("--merge: ", path_, ", line ", number_,
              ": is not what convgrad batch --junit writes; give its files, unchanged");
  }

  const std::string& next() {
    ++number_;
    // A last line without its end is a file that was cut off.
    if (!std::getline(lines_, line_) || lines_.eof()) refuse();
    return line_;
  }

  std::string value_of(const std::string& name) const {
    const std::string start = cat(" ", name, "=\"");
    const std::size_t at = line_.find(start), begin = at + start.size();
    const std::size_t end = line_.find('"', begin);
    if (at == line_.npos || end == line_.npos) refuse();
    return plain_text(std::string_view(line_).substr(begin, end - begin));
  }

  JunitSuite suite() {
    JunitSuite suite{value_of("name"), "", std::strtod(value_of("time").c_str(), nullptr), {}};
    for (next(); line_ != kSuiteEnd; next()) {
      if (line_.starts_with(kShardStart)) {
        suite.shard = value_of("value");
        if (!parse_share(suite.shard)) refuse();
      } else if (line_.starts_with(kCaseStart)) {
        suite.cases.push_back(one_case());
      } else {
        refuse();
      }
    }
    return suite;
  }

  JunitCase one_case() {
    JunitCase one;
    one.name = value_of("name");
    one.xml = line_ + "\n";
    if (line_.ends_with("/>")) return one;
    next();
    judge(one);
    for (; line_ != kCaseEnd; next()) one.xml += line_ + "\n";
    one.xml += line_ + "\n";
    return one;
  }

  void judge(JunitCase& one) const {
    if (line_.starts_with("      <skipped ")) {
      one.verdict = Verdict::skipped;
    } else if (line_.starts_with("      <failure ")) {
      one.verdict = Verdict::mismatch;
      one.status = 1;
    } else if (line_.starts_with("      <error ")) {
      one.verdict = Verdict::error;
      const std::string type = value_of("type");
      one.is_malformed_line = type == kMalformed;
      one.status = static_cast<int>(ErrorKind::input);
      for (const ErrorKind kind : {ErrorKind::unavailable, ErrorKind::runtime}) {
        if (type == status_type(static_cast<int>(kind))) one.status = static_cast<int>(kind);
      }
    } else if (!line_.starts_with("      <system-err>")) {
      refuse();
    }
    if (one.verdict != Verdict::ok) one.message = value_of("message");
  }

  const std::string path_;
  TextReader lines_;
  std::string line_;
  std::int64_t number_ = 0;
};

}  // namespace

JunitCase junit_error(const std::string& suite, const std::string& name, const std::string& message,
                      int status) {
  return error_case(suite, name, message, status, status_type(status));
}

std::string junit_text(const std::vector<JunitSuite>& suites) {
  Totals totals;
  std::string elements;
  for (const JunitSuite& suite : suites) {
    totals.add(suite);
    elements += suite_element(suite);
  }
  return cat(kJunitStart, totals.attributes(false), ">\n", elements, kEnd, "\n");
}

std::vector<JunitSuite> read_junit(const std::string& path) { return Reader(path).read(); }

std::string junit_xml(const Manifest& manifest, const std::vector<Outcome>& outcomes,
                      double elapsed_s) {
  JunitSuite suite{manifest.name, manifest.shard, elapsed_s, {}};
  for (const BadLine& bad : manifest.bad) {
    suite.cases.push_back(error_case(manifest.name, cat("line ", bad.line), bad.message,
                                     static_cast<int>(ErrorKind::input), kMalformed));
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    suite.cases.push_back(case_of(manifest, manifest.jobs[i], outcomes[i]));
  }
  return junit_text({suite});
}

}  // namespace convgrad::cli
