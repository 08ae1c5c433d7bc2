// batch_runner.cpp - see batch_runner.hpp.
#include "batch/batch_runner.hpp"

#include <cstdio>
#include <filesystem>

#include "files/tensor_name.hpp"
#include "options/refuse.hpp"
#include "report/color.hpp"

namespace convgrad::cli {
namespace {

// How long a job takes, roughly: in bytes, and a little for every job.
double weight_of(const BatchJob& job) {
  double bytes = 65536;
  for (const auto& [field, path] : job.inputs) {
    std::error_code error;
    const auto size = std::filesystem::file_size(split_tensor_name(path).file, error);
    if (!error) bytes += static_cast<double>(size);
  }
  return bytes;
}

// What is said of a job as long as it is not over. A file that a killed batch leaves must not look
// as if all was well.
Outcome unfinished(const std::string& what) {
  Outcome outcome;
  outcome.verdict = Verdict::error;
  outcome.status = static_cast<int>(ErrorKind::runtime);
  outcome.message = what + " when this was written: if nothing runs any more, the batch was killed";
  return outcome;
}

}  // namespace

Runner::Runner(const Manifest& manifest, const Options& options, BatchState* state)
    : manifest_(manifest),
      options_(options),
      state_(state),
      outcomes_(manifest.jobs.size(), unfinished("had not begun")),
      parts_(manifest.jobs.size(), 0.0),
      progress_("batch"),
      stop_(!manifest.bad.empty() && !options.batch.keep_going) {
  for (const BatchJob& job : manifest.jobs) {
    weights_.push_back(weight_of(job));
    total_weight_ += weights_.back();
  }
}

void Runner::run(std::size_t i, const Share& share) {
  if (!begin(i)) return;
  Outcome outcome = run_batch_job(manifest_.jobs[i], share, options_.execution.dry_run,
                                  options_.batch.resume, state_, [this, i](double part) {
                                    const std::lock_guard lock(mutex_);
                                    set_part(i, part);
                                    show_all();
                                  });
  const std::lock_guard lock(mutex_);
  print(manifest_.jobs[i], outcome);
  finish(i, std::move(outcome));
}

// False if the job will not be run.
bool Runner::begin(std::size_t i) {
  const std::lock_guard lock(mutex_);
  if (stop_) {
    Outcome outcome;
    outcome.message = "another job failed, and --keep-going is not given";
    finish(i, std::move(outcome));
    return false;
  }
  outcomes_[i] = unfinished("ran");
  write_junit_sometimes();
  return true;
}

void Runner::finish(std::size_t i, Outcome outcome) {
  if (outcome.status != 0 && !options_.batch.keep_going) stop_ = true;
  set_part(i, 0);
  if (outcome.verdict == Verdict::skipped || outcome.verdict == Verdict::not_run) {
    total_weight_ -= weights_[i];  // it took no time
    weights_[i] = 0;
  }
  set_part(i, 1);
  ++over_;
  outcomes_[i] = std::move(outcome);
  show_all();
  write_junit_sometimes();
}

void Runner::print(const BatchJob& job, const Outcome& outcome) {
  progress_.wipe();
  if (outcome.verdict == Verdict::error) {
    say(options_, "error", cat(one_line(place_of(manifest_, job)), ": ", outcome.message));
  } else if (options_.json != "-") {
    std::fprintf(stdout, "%s\n", outcome_line(job, outcome).c_str());
    std::fflush(stdout);
  }
}

void Runner::set_part(std::size_t i, double part) {
  done_weight_ += (part - parts_[i]) * weights_[i];
  parts_[i] = part;
}

void Runner::show_all() {
  progress_.show(total_weight_ > 0 ? done_weight_ / total_weight_ : 1,
                 cat(over_, " of ", outcomes_.size(), " jobs"));
}

// A twentieth of the time at most.
void Runner::write_junit_sometimes() {
  const auto start = Clock::now();
  if (start < next_junit_) return;
  try {
    write_junit();
  } catch (const Error&) {  // the last one says so
  }
  const auto end = Clock::now();
  next_junit_ = end + (end - start) * 20;
}

void Runner::write_junit() const {
  if (options_.batch.junit.empty()) return;
  write_file(options_.batch.junit, junit_xml(manifest_, outcomes_, seconds_since(start_)));
}

}  // namespace convgrad::cli
