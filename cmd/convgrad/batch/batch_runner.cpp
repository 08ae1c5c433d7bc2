// batch_runner.cpp - see batch_runner.hpp.
#include "batch/batch_runner.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "convgrad/tensor_name.hpp"
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

Runner::Runner(const Manifest& manifest, const BatchOrder& order, const Options& options,
               BatchState* state)
    : manifest_(manifest),
      order_(order),
      options_(options),
      state_(state),
      outcomes_(manifest.jobs.size(), unfinished("had not begun")),
      phases_(manifest.jobs.size(), Phase::waiting),
      parts_(manifest.jobs.size(), 0.0),
      progress_("batch"),
      stop_(!manifest.bad.empty() && !options.batch.keep_going) {
  for (const BatchJob& job : manifest.jobs) {
    weights_.push_back(weight_of(job));
    total_weight_ += weights_.back();
    if (state != nullptr) keys_.push_back(job_key(job));
  }
}

std::optional<std::size_t> Runner::take(int rank, bool waits) {
  std::unique_lock lock(mutex_);
  for (;;) {
    bool may_come = false;
    for (std::size_t i = first_; i < phases_.size(); ++i) {
      if (phases_[i] == Phase::waiting && is_any_before(i, {Phase::waiting, Phase::running})) {
        may_come = true;
        continue;
      }
      if (i == first_) ++first_;
      if (phases_[i] == Phase::waiting && begin(i, rank)) return i;
    }
    if (!may_come || !waits) return {};
    changed_.wait(lock);
  }
}

void Runner::end(std::size_t i, std::optional<Outcome> outcome) {
  const std::lock_guard lock(mutex_);
  if (outcome) {
    finish(i, std::move(*outcome), true);
  } else {
    phases_[i] = Phase::deferred;
    changed_.notify_all();
  }
}

void Runner::lose(std::size_t i, const std::string& why) {
  const std::lock_guard lock(mutex_);
  Outcome outcome;
  outcome.verdict = Verdict::error;
  outcome.status = static_cast<int>(ErrorKind::runtime);
  outcome.message = why;
  outcome.rank = outcomes_[i].rank;
  phases_[i] = Phase::over;  // for the state it has not ended
  finish(i, std::move(outcome), true);
}

bool Runner::is_over() {
  const std::lock_guard lock(mutex_);
  return std::ranges::none_of(
      phases_, [](Phase phase) { return phase == Phase::waiting || phase == Phase::running; });
}

void Runner::work(const Share& share) {
  while (const std::optional<std::size_t> i = take(0, true)) run(*i, share);
}

void Runner::run_deferred(const Share& whole) {
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    std::unique_lock lock(mutex_);
    if (phases_[i] != Phase::deferred) continue;
    phases_[i] = Phase::waiting;
    const bool begins = begin(i, 0);
    lock.unlock();
    if (begins) run(i, whole);
  }
  progress_.wipe();
}

void Runner::run(std::size_t i, const Share& share) {
  const bool keeps = state_ != nullptr;
  const BatchState::Record* const done =
      keeps && options_.batch.resume ? state_->find(keys_[i]) : nullptr;
  end(i, run_batch_job(manifest_.jobs[i], share, options_.execution.dry_run, keeps, done,
                       [this, i](double part) { show(i, part); }));
}

bool Runner::is_any_before(std::size_t i, std::initializer_list<Phase> phases) const {
  for (const auto* before : {&order_.needs[i], &order_.follows[i]}) {
    for (const std::size_t j : *before) {
      if (std::ranges::find(phases, phases_[j]) != phases.end()) return true;
    }
  }
  return false;
}

// "" or why the job cannot be run.
std::string Runner::why_not(std::size_t i) const {
  if (order_.malformed[i] != 0) {
    return cat("reads the output of line ", order_.malformed[i], ", which is malformed");
  }
  for (const std::size_t j : order_.needs[i]) {
    if (outcomes_[j].status == 0 && outcomes_[j].verdict != Verdict::not_run) continue;
    return cat("reads the output of line ", manifest_.jobs[j].line, ", which failed");
  }
  return "";
}

// False if the job will not be run, or not now.
bool Runner::begin(std::size_t i, int rank) {
  if (is_any_before(i, {Phase::deferred})) {
    phases_[i] = Phase::deferred;
    return false;
  }
  Outcome outcome;
  outcome.message = why_not(i);
  const bool is_blocked = !outcome.message.empty();
  if (stop_ && !is_blocked) outcome.message = "another job failed, and --keep-going is not given";
  if (!outcome.message.empty()) {
    finish(i, std::move(outcome), is_blocked && !stop_);
    return false;
  }
  phases_[i] = Phase::running;
  outcomes_[i] = unfinished(rank == 0 ? "ran" : cat("ran on rank ", rank));
  outcomes_[i].rank = rank;
  if (state_ != nullptr) state_->begin(keys_[i], manifest_.jobs[i].name);
  write_junit_sometimes();
  return true;
}

void Runner::finish(std::size_t i, Outcome outcome, bool is_printed) {
  // First what must not be lost, so that whatever is printed is kept.
  if (state_ != nullptr && phases_[i] == Phase::running) state_->end(keys_[i], outcome.record);
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

void Runner::show(std::size_t i, double part) {
  const std::lock_guard lock(mutex_);
  set_part(i, part);
  show_all();
}

void Runner::set_part(std::size_t i, double part) {
  done_weight_ += (part - parts_[i]) * weights_[i];
  parts_[i] = part;
}

void Runner::show_all() {
  progress_.show(total_weight_ > 0 ? done_weight_ / total_weight_ : 1,
                 cat(over_, " of ", outcomes_.size(), " jobs"));
}

std::string Runner::running() {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (std::size_t i = 0; i < phases_.size(); ++i) {
    if (phases_[i] != Phase::running) continue;
    const BatchJob& job = manifest_.jobs[i];
    text += cat(text.empty() ? "" : ", ", one_line(job.name), " on rank ", outcomes_[i].rank);
  }
  return text;
}

void Runner::write_junit() {
  const std::lock_guard lock(mutex_);
  write_junit_now();
}

void Runner::write_junit_sometimes() {
  try {
    junit_pace_.maybe([&] { write_junit_now(); });
  } catch (const Error&) {  // the last one says so
  }
}

void Runner::write_junit_now() const {
  if (options_.batch.junit.empty()) return;
  write_file(options_.batch.junit, junit_xml(manifest_, outcomes_, seconds_since(start_)));
}

}  // namespace convgrad::cli
