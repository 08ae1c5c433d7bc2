// junit.hpp - JUnit's XML, as Jenkins, GitLab and GitHub's actions read it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "batch/batch.hpp"

namespace convgrad::cli {

struct JunitCase {
  std::string name;
  Verdict verdict = Verdict::ok;  // ok, mismatch, error or skipped: the file knows no others
  int status = 0;                 // exit status of this job alone
  std::string message;
  bool is_malformed_line = false;  // and no job
  std::string xml;                 // its element
};

// An error that is no job's.
JunitCase junit_error(const std::string& suite, const std::string& name, const std::string& message,
                      int status);

struct JunitSuite {
  std::string name;   // of the manifest
  std::string shard;  // "K/R" or ""
  double elapsed_s = 0;
  std::vector<JunitCase> cases;
};

// The whole file, with totals.
std::string junit_text(const std::vector<JunitSuite>& suites);

// What junit_text() has written. Error(input) for any other file.
std::vector<JunitSuite> read_junit(const std::string& path);

}  // namespace convgrad::cli
