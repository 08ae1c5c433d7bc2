// junit_merge.cpp - --merge: the JUnit files of several batches as one.
#include <algorithm>
#include <cstdio>
#include <set>

#include "batch/junit.hpp"
#include "options/arguments.hpp"
#include "options/refuse.hpp"
#include "report/color.hpp"
#include "report/xml_text.hpp"

namespace convgrad::cli {
namespace {

constexpr int kNotDone = static_cast<int>(ErrorKind::runtime);

class Merger {
 public:
  explicit Merger(const Manifest* manifest) : manifest_(manifest) {}

  void add(const std::string& file) {
    for (JunitSuite& suite : read_junit(file)) {
      if (manifest_ != nullptr) suite.name = manifest_->name;
      Merged& to = suite_called(suite.name);
      to.suite.elapsed_s += suite.elapsed_s;
      if (!suite.shard.empty()) add_shard(to, file, suite.shard);
      for (JunitCase& one : suite.cases) add_case(to, file, std::move(one));
    }
  }

  std::vector<JunitSuite> finish() {
    if (manifest_ != nullptr) {
      add_missing_jobs();
    } else {
      for (Merged& merged : all_) add_missing_shards(merged);
    }
    std::vector<JunitSuite> suites;
    for (Merged& merged : all_) suites.push_back(std::move(merged.suite));
    return suites;
  }

 private:
  struct Merged {
    JunitSuite suite;
    std::map<std::string, std::string> jobs;  // in which file they are
    std::set<std::int64_t> shards;
    std::int64_t of_shards = 0;
    std::string of_shards_in;  // the file that said so
  };

  Merged& suite_called(const std::string& name) {
    for (Merged& merged : all_) {
      if (merged.suite.name == name) return merged;
    }
    all_.push_back({{name, "", 0, {}}, {}, {}, 0, ""});
    return all_.back();
  }

  static void add_shard(Merged& to, const std::string& file, const std::string& text) {
    const auto [part, parts] = *parse_share(text);
    if (to.of_shards != 0 && to.of_shards != parts) {
      bad_input("--merge: ", file, " is shard ", text, " of ", to.suite.name, ", but ",
                to.of_shards_in, " one of ", to.of_shards, "; give the files of one run");
    }
    to.of_shards = parts;
    to.of_shards_in = file;
    to.shards.insert(part);
  }

  void add_case(Merged& to, const std::string& file, JunitCase one) {
    const auto [found, is_new] = to.jobs.emplace(one.name, file);
    // Each shard has all malformed lines.
    if (!is_new && one.is_malformed_line) return;
    if (!is_new) {
      bad_input("--merge: job '", one_line(one.name), "' is in ", found->second, " and in ", file,
                found->second == file ? " again" : "", ", expected each job once");
    }
    to.suite.cases.push_back(std::move(one));
  }

  void add_missing_jobs() {
    Merged& merged = suite_called(manifest_->name);
    for (const BatchJob& job : manifest_->jobs) {
      const std::string name = plain_text(xml_text(job.name));
      if (merged.jobs.erase(name) == 0) add_missing(merged.suite, job.name);
    }
    for (const BadLine& bad : manifest_->bad) merged.jobs.erase(cat("line ", bad.line));
    if (merged.jobs.empty()) return;
    const auto& [name, file] = *merged.jobs.begin();
    bad_input("--merge: job '", one_line(name), "' of ", file, " is none of ", manifest_->name,
              "; give the files of its batch, and the --match that it had");
  }

  static void add_missing_shards(Merged& merged) {
    for (std::int64_t part = 1; part <= merged.of_shards; ++part) {
      if (merged.shards.count(part) != 0) continue;
      add_missing(merged.suite, cat("shard ", part, "/", merged.of_shards));
    }
  }

  static void add_missing(JunitSuite& suite, const std::string& what) {
    suite.cases.push_back(
        junit_error(suite.name, what, "is in none of the merged files", kNotDone));
  }

  const Manifest* const manifest_;
  std::vector<Merged> all_;  // in the order in which they were first seen
};

// What came of the cases, one a line where it is not well.
void print(const Options& options, const JunitSuite& suite) {
  for (const JunitCase& one : suite.cases) {
    const std::string what = cat(one_line(one.name), ": ", one_line(one.message));
    if (one.verdict == Verdict::error) {
      say(options, "error", cat(one_line(suite.name), ", ", what));
    } else if (one.verdict == Verdict::mismatch && options.json != "-") {
      std::fprintf(stdout, "mismatch  %s\n", what.c_str());
    }
  }
}

}  // namespace

int merge_junit(const Options& options, const Manifest* manifest, Json& report) {
  const BatchOptions& o = options.batch;
  Merger merger(manifest);
  for (const std::string& file : o.merge) merger.add(file);
  const std::vector<JunitSuite> suites = merger.finish();
  write_file(o.junit, junit_text(suites));

  std::map<Verdict, std::size_t> counts;
  std::size_t jobs = 0;
  const JunitCase* worst = nullptr;
  double elapsed_s = 0;
  for (const JunitSuite& suite : suites) {
    print(options, suite);
    jobs += suite.cases.size();
    elapsed_s += suite.elapsed_s;
    for (const JunitCase& one : suite.cases) {
      ++counts[one.verdict];
      if (worst == nullptr || one.status > worst->status) worst = &one;
    }
  }
  const int status = worst == nullptr ? 0 : worst->status;
  if (options.json != "-") {
    std::fprintf(stdout, "%zu jobs: %zu passed, %zu mismatch, %zu error, %zu skipped; %s s\n", jobs,
                 counts[Verdict::ok], counts[Verdict::mismatch], counts[Verdict::error],
                 counts[Verdict::skipped], fixed(elapsed_s, 3).c_str());
  }
  report["merge"] = {{"files", o.merge},
                     {"output", o.junit},
                     {"counts",
                      {{"jobs", jobs},
                       {"passed", counts[Verdict::ok]},
                       {"mismatch", counts[Verdict::mismatch]},
                       {"error", counts[Verdict::error]},
                       {"skipped", counts[Verdict::skipped]}}},
                     {"elapsed_ms", milliseconds(elapsed_s)}};
  report["status"] = status == 0 ? "ok" : status == 1 ? "mismatch" : "error";
  if (status >= 2) report["error"] = error_json(status, cat(worst->name, ": ", worst->message), {});
  return status;
}

}  // namespace convgrad::cli
