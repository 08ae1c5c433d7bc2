// batch_runner.hpp - what came of the jobs of a batch that are over, and what is said of it.
#pragma once

#include <mutex>

#include "base/clock.hpp"
#include "batch/batch.hpp"
#include "report/progress.hpp"

namespace convgrad::cli {

// All functions may be called from any thread. The arguments of the constructor are not copied;
// state may be null.
class Runner {
 public:
  Runner(const Manifest& manifest, const Options& options, BatchState* state);

  // Runs a job, or says that it is not run because another failed.
  void run(std::size_t i, const Share& share);

  // By the manifest's order; those that are not over are errors.
  const std::vector<Outcome>& outcomes() const { return outcomes_; }
  // The JUnit file, if one is wanted, as it is now.
  void write_junit() const;
  // No bar any more.
  void end_progress() { progress_.wipe(); }

 private:
  bool begin(std::size_t i);
  void finish(std::size_t i, Outcome outcome);
  void print(const BatchJob& job, const Outcome& outcome);
  void set_part(std::size_t i, double part);
  void show_all();
  void write_junit_sometimes();

  const Manifest& manifest_;
  const Options& options_;
  BatchState* const state_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::vector<Outcome> outcomes_;
  std::vector<double> parts_, weights_;  // done of each job, and how much that is
  double total_weight_ = 0, done_weight_ = 0;
  std::size_t over_ = 0;
  Progress progress_;
  Clock::time_point next_junit_;
  bool stop_;
};

}  // namespace convgrad::cli
