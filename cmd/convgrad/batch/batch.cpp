// batch.cpp - runs the jobs of a manifest, some at a time, and says what came of each.
#include "batch/batch.hpp"

#include <cstdio>
#include <regex>

#include "base/clock.hpp"
#include "job/job.hpp"
#include "job/job_files.hpp"
#include "options/arguments.hpp"
#include "report/report.hpp"

namespace convgrad::cli {
namespace {

// At most so many malformed lines are printed, since a file that is no manifest has many.
constexpr std::size_t kMaxPrintedLines = 20;

void check_batch_options(BatchOptions& options) {
  if (options.manifest.empty()) {
    misuse("the manifest is missing, expected a file of JSON Lines, or -",
           Hint("see convgrad batch "
                "--help"));
  }
  if (!options.shard.empty() && !parse_share(options.shard)) {
    misuse("--shard: '", options.shard, "', expected K/R, the K-th of R parts, such as 1/8");
  }
  const std::string& algorithm = options.execution.algorithm;
  if (algorithm != "auto" && !is_device_kernel(algorithm)) find_kernel(algorithm);
  if (named_backend(options.execution) == Backend::cuda)
    cuda_device(options.execution.device.value_or(0));
  if (options.resume && options.state.empty()) {
    if (options.manifest == "-") {
      misuse(
          "--state is missing, expected a file with --resume and a manifest from standard input");
    }
    const auto share = parse_share(options.shard);
    options.state =
        cat(options.manifest, share ? cat(".", share->first, "-of-", share->second) : "", ".state");
  }
  for (const auto& [flag, path] :
       {std::pair{"--state", options.state}, {"--junit", options.junit}}) {
    if (path == "-") misuse(flag, ": - is for the jobs' lines", Hint("name a file"));
    if (!path.empty()) check_output(path);
  }
}

void keep_matches(const std::string& pattern, Manifest& manifest) {
  if (pattern.empty()) return;
  std::regex regex;
  try {
    regex.assign(pattern);
  } catch (const std::regex_error&) {
    misuse("--match: '", pattern, "' is no regular expression");
  }
  const std::size_t before = manifest.jobs.size();
  std::erase_if(manifest.jobs,
                [&](const BatchJob& job) { return !std::regex_search(job.name, regex); });
  if (manifest.jobs.empty() && before > 0 && manifest.bad.empty()) {
    misuse("--match: '", pattern, "' is in the name of none of the ", before, " jobs of ",
           manifest.name);
  }
}

void print_bad_lines(const BatchOptions& options, const Manifest& manifest) {
  const std::size_t count = manifest.bad.size();
  for (std::size_t i = 0; i < std::min(count, kMaxPrintedLines); ++i) {
    const BadLine& bad = manifest.bad[i];
    say(options, "error", cat(one_line(manifest.name), ", line ", bad.line, ": ", bad.message));
  }
  if (count > kMaxPrintedLines) {
    say(options, "error",
        cat(one_line(manifest.name), ": ", count - kMaxPrintedLines, " more lines are malformed"));
  }
}

VerifyCommand job_defaults(const BatchOptions& options) {
  VerifyCommand defaults;
  defaults.execution.backend = options.execution.backend;
  defaults.execution.algorithm = options.execution.algorithm;
  defaults.verify.fail_vacuous = options.fail_vacuous;
  return defaults;
}

// Keeps the K-th of R parts: the jobs on lines K, K + R, K + 2 R and so on.
void keep_shard(const std::string& shard, Manifest& manifest) {
  const auto share = parse_share(shard);
  if (!share) return;
  const std::int64_t part = share->first, parts = share->second;
  std::erase_if(manifest.jobs, [&](const BatchJob& job) { return (job.line - part) % parts != 0; });
}

// Throws if what the batch writes would replace what is read, or a file of somebody else's.
void check_files(BatchOptions& options, const Manifest& manifest) {
  try {
    check_own_files(options, manifest);
    check_report_replaces_nothing(options);
  } catch (const Error&) {
    options.json.clear();  // the report of this error must replace nothing
    throw;
  }
  if (!options.junit.empty()) {
    check_replaceable("--junit: ", options.junit, kJunitStart, "JUnit file of convgrad batch");
  }
}

Manifest read_jobs(BatchOptions& options) {
  Manifest manifest = read_manifest(options.manifest, job_defaults(options));
  // All jobs count here: those that are left out below may have run, or will run later.
  check_files(options, manifest);
  refuse_conflicts(manifest);
  keep_matches(options.match, manifest);
  keep_shard(options.shard, manifest);
  return manifest;
}

}  // namespace

ReportPointer batch(BatchOptions& options) {
  const auto start = Clock::now();
  check_batch_options(options);
  Manifest jobs = read_jobs(options);
  const Division division = divide(options, jobs.jobs.size());
  auto report = std::make_unique<BatchReport>(std::move(jobs), division, options.shard);
  const Manifest& manifest = report->manifest;
  std::optional<BatchState> state;
  if (!options.state.empty() && !options.execution.dry_run) {
    state.emplace(options.state);
  }
  print_bad_lines(options, manifest);
  report->outcomes = run_jobs(manifest, options, division, state ? &*state : nullptr);
  report->elapsed_s = seconds_since(start);
  report->any_ran = manifest.bad.empty() || options.keep_going;
  write_junit(manifest, report->outcomes, report->elapsed_s, options);
  if (state) state->check();
  return report;
}

}  // namespace convgrad::cli
