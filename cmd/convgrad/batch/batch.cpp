// batch.cpp - runs the jobs of a manifest, some at a time, and says what came of each.
#include "batch/batch.hpp"

#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <regex>

#include "base/clock.hpp"
#include "convgrad/machine.hpp"
#include "convgrad/task_pool.hpp"
#include "convgrad/tensor_name.hpp"
#include "job/job.hpp"
#include "job/job_files.hpp"
#include "options/refuse.hpp"
#include "report/color.hpp"
#include "report/progress.hpp"

namespace convgrad::cli {
namespace {

// Malformed lines that are printed; a file that is no manifest at all has many.
constexpr std::size_t kMaxPrintedLines = 20;

// Threads and memory are divided evenly; no job has less than a thread.
struct Division {
  int jobs = 1;
  Share whole;  // without a limit if there is none, so that messages do not speak of one
  std::uint64_t memory_bytes;

  Division(const Options& options, std::size_t job_count) {
    const Machine& machine = this_machine();
    whole = {options.execution.threads > 0 ? options.execution.threads : machine.threads,
             options.execution.memory_limit};
    memory_bytes = whole.memory_bytes > 0 ? whole.memory_bytes
                                          : static_cast<std::uint64_t>(machine.memory_bytes);
    const int asked = options.batch.jobs == 0 ? whole.threads : options.batch.jobs;
    const auto most =
        static_cast<int>(std::min<std::size_t>(job_count, static_cast<std::size_t>(kMostJobs)));
    jobs = std::max(std::min({asked, whole.threads, most}), 1);
  }

  Share of(int worker) const {
    if (jobs == 1) return whole;
    return {whole.threads / jobs + (worker < whole.threads % jobs ? 1 : 0),
            memory_bytes / static_cast<std::uint64_t>(jobs)};
  }
};

class Runner {
 public:
  Runner(const Manifest& manifest, const BatchOrder& order, const Options& options,
         const Division& division, BatchState* state)
      : manifest_(manifest),
        order_(order),
        options_(options),
        division_(division),
        state_(state),
        outcomes_(manifest.jobs.size()),
        phases_(manifest.jobs.size(), Phase::waiting),
        parts_(manifest.jobs.size(), 0.0),
        progress_("batch"),
        stop_(!manifest.bad.empty() && !options.batch.keep_going) {
    for (const BatchJob& job : manifest.jobs) {
      weights_.push_back(weight_of(job));
      total_weight_ += weights_.back();
    }
  }

  std::vector<Outcome> run() {
    TaskPool pool(division_.jobs);
    pool.run(static_cast<std::int64_t>(outcomes_.size()), [&](std::int64_t task, int worker) {
      step(static_cast<std::size_t>(task), division_.of(worker), division_.jobs == 1);
    });
    // What was too large for a share has everything to itself.
    for (std::size_t i = 0; i < outcomes_.size(); ++i) {
      if (phases_[i] == Phase::deferred) step(i, division_.whole, true);
    }
    progress_.wipe();
    return std::move(outcomes_);
  }

 private:
  enum class Phase { waiting, deferred, over };

  // How long a job takes, roughly: in bytes, and a little for every job.
  static double weight_of(const BatchJob& job) {
    double bytes = 65536;
    for (const auto& [field, path] : job.inputs) {
      std::error_code error;
      const auto size = std::filesystem::file_size(split_tensor_name(path).file, error);
      if (!error) bytes += static_cast<double>(size);
    }
    return bytes;
  }

  void step(std::size_t i, const Share& share, bool is_whole) {
    if (!begin(i, is_whole)) return;
    const auto on_progress = [this, i](double part) { show(i, part); };
    std::optional<Outcome> outcome =
        run_batch_job(manifest_.jobs[i], share, is_whole, options_.execution.dry_run,
                      options_.batch.resume, state_, on_progress);
    if (outcome) {
      finish(i, std::move(*outcome), true);
    } else {
      set_phase(i, Phase::deferred);
    }
  }

  // Waits for the jobs that come before. They have begun, since jobs begin in order. False if this
  // one will not be run, or not now.
  bool begin(std::size_t i, bool is_whole) {
    std::unique_lock lock(mutex_);
    const auto of_any = [&](Phase phase) {
      for (const auto* before : {&order_.needs[i], &order_.follows[i]}) {
        for (const std::size_t j : *before) {
          if (phases_[j] == phase) return true;
        }
      }
      return false;
    };
    changed_.wait(lock, [&] { return !of_any(Phase::waiting); });
    if (!is_whole && of_any(Phase::deferred)) {
      phases_[i] = Phase::deferred;
      changed_.notify_all();
      return false;
    }
    Outcome outcome;
    for (const std::size_t j : order_.needs[i]) {
      if (outcomes_[j].status == 0 && outcomes_[j].verdict != Verdict::not_run) continue;
      outcome.message = cat("reads the output of line ", manifest_.jobs[j].line, ", which failed");
    }
    if (order_.malformed[i] != 0) {
      outcome.message =
          cat("reads the output of line ", order_.malformed[i], ", which is malformed");
    }
    const bool is_blocked = !outcome.message.empty();
    if (stop_ && !is_blocked) outcome.message = "another job failed, and --keep-going is not given";
    if (outcome.message.empty()) return true;
    lock.unlock();
    finish(i, std::move(outcome), is_blocked && !stop_);
    return false;
  }

  void set_phase(std::size_t i, Phase phase) {
    const std::lock_guard lock(mutex_);
    phases_[i] = phase;
    changed_.notify_all();
  }

  void finish(std::size_t i, Outcome outcome, bool is_printed) {
    const std::lock_guard lock(mutex_);
    if (is_printed) print(manifest_.jobs[i], outcome);
    if (outcome.status != 0 && !options_.batch.keep_going) stop_ = true;
    set_part(i, 0);
    if (outcome.verdict == Verdict::skipped || outcome.verdict == Verdict::not_run) {
      total_weight_ -= weights_[i];  // it took no time
      weights_[i] = 0;
    }
    set_part(i, 1);
    ++over_;
    outcomes_[i] = std::move(outcome);
    phases_[i] = Phase::over;
    changed_.notify_all();
    show_locked();
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
    const std::lock_guard lock(mutex_);
    set_part(i, part);
    show_locked();
  }

  void set_part(std::size_t i, double part) {
    done_weight_ += (part - parts_[i]) * weights_[i];
    parts_[i] = part;
  }

  void show_locked() {
    progress_.show(total_weight_ > 0 ? done_weight_ / total_weight_ : 1,
                   cat(over_, " of ", outcomes_.size(), " jobs"));
  }

  const Manifest& manifest_;
  const BatchOrder& order_;
  const Options& options_;
  const Division& division_;
  BatchState* const state_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Outcome> outcomes_;
  std::vector<Phase> phases_;
  std::vector<double> parts_, weights_;  // done of each job, and how much that is
  double total_weight_ = 0, done_weight_ = 0;
  std::size_t over_ = 0;
  Progress progress_;
  bool stop_;
};

void check_batch_options(Options& options) {
  BatchOptions& o = options.batch;
  if (o.manifest.empty()) {
    misuse(
        "the manifest is missing, expected a file of JSON Lines or CSV, or -; see convgrad batch "
        "--help");
  }
  const std::string& algorithm = options.execution.algorithm;
  if (algorithm != "auto" && !is_device_kernel(algorithm)) find_kernel(algorithm);
  if (named_backend(options.execution) == Backend::cuda)
    cuda_device(options.execution.device.value_or(0));
  if (o.resume && o.state.empty()) {
    if (o.manifest == "-") {
      misuse(
          "--state is missing, expected a file with --resume and a manifest from standard input");
    }
    o.state = o.manifest + ".state";
  }
  for (const auto& [flag, path] : {std::pair{"--state", o.state}, {"--junit", o.junit}}) {
    if (path == "-") misuse(flag, ": - is for the jobs' lines; name a file");
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
  if (manifest.jobs.empty() && before > 0) {
    misuse("--match: '", pattern, "' is in the name of none of the ", before, " jobs of ",
           manifest.name);
  }
}

void print_bad_lines(const Options& options, const Manifest& manifest) {
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

int worst_status(const Manifest& manifest, const std::vector<Outcome>& outcomes) {
  int worst = manifest.bad.empty() ? 0 : static_cast<int>(ErrorKind::input);
  for (const Outcome& outcome : outcomes) worst = std::max(worst, outcome.status);
  return worst;
}

// The first line that says what went wrong, for the report of the whole.
void report_error(const Manifest& manifest, const std::vector<Outcome>& outcomes, int worst,
                  Json& report) {
  if (worst < 2) return;
  std::string message;
  if (!manifest.bad.empty()) {
    message = cat(manifest.name, ", line ", manifest.bad[0].line, ": ", manifest.bad[0].message);
  }
  for (std::size_t i = 0; i < outcomes.size() && message.empty(); ++i) {
    if (outcomes[i].status < 2) continue;
    message = cat(place_of(manifest, manifest.jobs[i]), ": ", outcomes[i].message);
  }
  report["error"] = error_json(worst, message, {manifest.name});
}

int batch_into(Options& options, Json& report) {
  const auto start = Clock::now();
  check_batch_options(options);
  const Options& o = options;
  Options defaults;
  defaults.execution.backend = o.execution.backend;
  defaults.execution.algorithm = o.execution.algorithm;
  defaults.verify.fail_vacuous = o.verify.fail_vacuous;
  Manifest manifest = read_manifest(o.batch.manifest, defaults);
  try {
    check_own_files(o, manifest);  // of jobs that are left out, too
    check_report_replaces_nothing(o);
  } catch (const Error&) {
    options.json.clear();  // it must not replace what it is
    throw;
  }
  if (!o.batch.junit.empty()) {
    check_replaceable("--junit: ", o.batch.junit, kJunitStart, "JUnit file of convgrad batch");
  }
  keep_matches(o.batch.match, manifest);
  const BatchOrder order = order_jobs(manifest);
  std::optional<BatchState> state;
  if (!o.batch.state.empty()) state.emplace(o.batch.state);
  const Division division(o, manifest.jobs.size());
  report["batch"] = {{"jobs_at_a_time", division.jobs},
                     {"threads", division.whole.threads},
                     {"memory_limit_bytes", division.memory_bytes}};
  print_bad_lines(o, manifest);
  const std::vector<Outcome> outcomes =
      Runner(manifest, order, o, division, state ? &*state : nullptr).run();
  const double elapsed_s = seconds_since(start);
  const bool any_ran = manifest.bad.empty() || o.batch.keep_going;
  if (o.json != "-" && any_ran) {
    std::fprintf(stdout, "%s\n", summary_line(outcomes, manifest.bad.size(), elapsed_s).c_str());
  }
  const int worst = worst_status(manifest, outcomes);
  report_batch(manifest, outcomes, elapsed_s, report);
  report_error(manifest, outcomes, worst, report);
  if (!o.batch.junit.empty()) {
    write_file(o.batch.junit, junit_xml(manifest, outcomes, elapsed_s));
  }
  if (state && !o.execution.dry_run) state->write();
  return worst;
}

}  // namespace

CommandResult batch(Options& options) { return result_of(batch_into, options); }

}  // namespace convgrad::cli
