// batch.cpp - runs the jobs of a manifest, some at a time, and says what came of each.
#include "batch/batch.hpp"

#include <atomic>
#include <cstdio>
#include <regex>

#include "base/task_pool.hpp"
#include "job/job.hpp"
#include "options/arguments.hpp"

namespace convgrad::cli {
namespace {

void write_junit(const Manifest& manifest, const std::vector<Outcome>& outcomes, double elapsed_s,
                 const BatchOptions& options) {
  if (options.junit.empty()) return;
  write_file(options.junit, junit_xml(manifest, outcomes, elapsed_s));
}

// Keeps and prints what came of the jobs that are over. Jobs may be run from any thread. The
// constructor does not copy its arguments.
class Runner {
 public:
  Runner(const Manifest& manifest, const BatchOptions& options, BatchState* state)
      : manifest_(manifest),
        options_(options),
        state_(state),
        outcomes_(manifest.jobs.size()),
        parts_(manifest.jobs.size(), 0.0),
        timed_(std::ssize(manifest.jobs)),
        progress_("batch"),
        stop_(std::ranges::any_of(manifest.jobs, &BatchJob::is_refused) && !options.keep_going) {}

  // Runs a job, or says that it is not run because another failed.
  void run(std::size_t i, const Share& share) {
    const BatchJob& job = manifest_.jobs[i];
    Outcome outcome;
    outcome.message = "another job failed, and --keep-going is not given";
    if (job.is_refused()) {
      outcome = {Verdict::error, static_cast<int>(ErrorKind::input), job.refused, job.hint};
    } else if (!stop_) {
      outcome = run_batch_job(job, share, options_.execution.dry_run, options_.resume, state_,
                              [this, i](double part) {
                                const std::lock_guard lock(mutex_);
                                show(i, part);
                              });
    }
    const std::lock_guard lock(mutex_);
    finish(i, std::move(outcome));
  }

  // Returns the outcomes in the manifest's order. It may be called once.
  std::vector<Outcome> take_outcomes() {
    progress_.wipe();  // no bar any more
    return std::move(outcomes_);
  }

 private:
  void finish(std::size_t i, Outcome outcome) {
    if (outcome.status != 0 && !options_.keep_going) stop_ = true;
    if (outcome.verdict != Verdict::not_run) print(manifest_.jobs[i], outcome);
    const bool took_time =
        outcome.verdict != Verdict::skipped && outcome.verdict != Verdict::not_run;
    if (!took_time) --timed_;
    ++over_;
    show(i, took_time ? 1 : 0);
    outcomes_[i] = std::move(outcome);
  }

  void print(const BatchJob& job, const Outcome& outcome) {
    progress_.wipe();
    if (outcome.verdict == Verdict::error) {
      say(options_, "error", cat(one_line(place_of(manifest_, job)), ": ", outcome.message));
    } else if (options_.json != "-") {
      std::fprintf(stdout, "%s\n", outcome_line(job, outcome).c_str());
      std::fflush(stdout);
    }
  }

  void show(std::size_t i, double part) {
    done_ += part - parts_[i];
    parts_[i] = part;
    progress_.show(timed_ > 0 ? done_ / static_cast<double>(timed_) : 1,
                   cat(over_, " of ", outcomes_.size(), " jobs"));
  }

  const Manifest& manifest_;
  const BatchOptions& options_;
  BatchState* const state_;
  std::mutex mutex_;
  std::vector<Outcome> outcomes_;
  std::vector<double> parts_;  // of each job: what is done of it, from 0 to 1
  double done_ = 0;            // their sum
  std::ptrdiff_t timed_;       // jobs that took time, or may
  std::size_t over_ = 0;
  Progress progress_;
  std::atomic<bool> stop_;
};

// Divides evenly; no job has less than a thread.
Division divide(const BatchOptions& options, std::size_t job_count) {
  const ExecutionOptions& execution = options.execution;
  const Machine& machine = this_machine();
  const Share whole = {execution.threads > 0 ? execution.threads : machine.threads,
                       execution.memory_limit};
  const int asked = options.jobs == 0 ? whole.threads : options.jobs;
  const auto most =
      static_cast<int>(std::min<std::size_t>(job_count, static_cast<std::size_t>(kMostJobs)));
  return {std::max(std::min({asked, whole.threads, most}), 1), whole,
          whole.memory_bytes > 0 ? whole.memory_bytes
                                 : static_cast<std::uint64_t>(machine.memory_bytes)};
}

void check_batch_options(BatchOptions& options) {
  if (options.manifest.empty()) {
    misuse("the manifest is missing, expected a file of JSON Lines, or -",
           Hint("see convgrad batch --help"));
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
  std::erase_if(manifest.jobs, [&](const BatchJob& job) {
    return !job.is_refused() && !std::regex_search(job.name, regex);
  });
  if (manifest.jobs.empty()) {
    misuse("--match: '", pattern, "' is in the name of none of the ", before, " jobs of ",
           manifest.name);
  }
}

Fields job_defaults(const BatchOptions& options) {
  Fields defaults;
  for (const auto& [name, value] : {std::pair{"backend", options.execution.backend},
                                    {"algorithm", options.execution.algorithm}}) {
    if (value != "auto") defaults.push_back({name, {value}});
  }
  if (options.fail_vacuous) defaults.push_back({"fail_vacuous", {"true"}});
  return defaults;
}

Manifest read_jobs(BatchOptions& options) {
  Manifest manifest = read_manifest(options.manifest, job_defaults(options));
  // All jobs count here: those that are left out below may have run, or will run later.
  try {
    check_own_files(options, manifest);
  } catch (const Error&) {
    options.json.clear();  // the report of this error must replace nothing
    throw;
  }
  if (!options.junit.empty()) {
    check_replaceable("--junit: ", options.junit, kJunitStart, "JUnit file of convgrad batch");
  }
  refuse_conflicts(manifest);
  keep_matches(options.match, manifest);
  const auto share = parse_share(options.shard);
  std::erase_if(manifest.jobs, [&](const BatchJob& job) {
    return share && !job.is_refused() && (job.line - share->first) % share->second != 0;
  });
  return manifest;
}

}  // namespace

Share Division::of(int worker) const {
  if (jobs == 1) return whole;
  return {whole.threads / jobs + (worker < whole.threads % jobs ? 1 : 0),
          memory_bytes / static_cast<std::uint64_t>(jobs)};
}

ReportPointer batch(BatchOptions& options) {
  const auto start = Clock::now();
  check_batch_options(options);
  Manifest jobs = read_jobs(options);
  const Division division = divide(options, jobs.jobs.size());
  auto report = std::make_unique<BatchReport>(std::move(jobs), division, options.shard);
  const Manifest& manifest = report->manifest;
  std::optional<BatchState> state;
  if (!options.state.empty() && !options.execution.dry_run) state.emplace(options.state);
  // A file that a killed batch leaves must not look as if all was well.
  const Outcome unfinished = {
      Verdict::error, static_cast<int>(ErrorKind::runtime),
      "had not ended when this was written: if nothing runs any more, the batch was killed"};
  write_junit(manifest, std::vector(manifest.jobs.size(), unfinished), 0, options);
  Runner runner(manifest, options, state ? &*state : nullptr);
  TaskPool(division.jobs).run(std::ssize(manifest.jobs), [&](std::int64_t i, int worker) {
    runner.run(static_cast<std::size_t>(i), division.of(worker));
  });
  report->outcomes = runner.take_outcomes();
  report->elapsed_s = seconds_since(start);
  report->any_ran =
      std::ranges::none_of(manifest.jobs, &BatchJob::is_refused) || options.keep_going;
  write_junit(manifest, report->outcomes, report->elapsed_s, options);
  if (state) state->check();
  return report;
}

}  // namespace convgrad::cli
