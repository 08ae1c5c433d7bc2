// batch_runner.hpp - which job of a batch is next, and what came of those that are over.
#pragma once

#include <condition_variable>
#include <mutex>

#include "batch/batch.hpp"
#include "report/progress.hpp"

namespace convgrad::cli {

// Threads and memory are divided evenly among jobs at a time; none has less than a thread.
struct Division {
  int jobs = 1;
  Share whole;  // without a limit if there is none, so that messages do not speak of one
  std::uint64_t memory_bytes = 0;

  Division(const Options& options, std::size_t job_count);
  Share of(int worker) const;
  Json json() const;  // as fields of the report's batch
};

// All functions may be called from any thread. The arguments of the constructor are not copied;
// state may be null.
class Runner {
 public:
  Runner(const Manifest& manifest, const BatchOrder& order, const Options& options,
         BatchState* state);

  // The next job by the order of lines of which no earlier one reads or writes the same; from then
  // on it runs on that rank. Waits until there is one, or none can come, if it `waits`; nullopt
  // otherwise.
  std::optional<std::size_t> take(int rank, bool waits);
  // What came of a job; nullopt: it needs everything to itself.
  void end(std::size_t i, std::optional<Outcome> outcome);
  // The process that ran the job is gone.
  void lose(std::size_t i, const std::string& why);
  // No job runs, and none can be taken.
  bool is_over();

  // Takes and runs jobs until none is left to take.
  void work(const Share& share);
  // Runs those that need everything, one after the other.
  void run_deferred(const Share& whole);

  // By the manifest's order; those that are not over are errors.
  const std::vector<Outcome>& outcomes() const { return outcomes_; }
  // "line 3 (layer1) on rank 2, ...".
  std::string running();
  // The JUnit file, if one is wanted, as it is now.
  void write_junit();

 private:
  enum class Phase { waiting, running, deferred, over };

  void run(std::size_t i, const Share& share);
  bool is_any_before(std::size_t i, std::initializer_list<Phase> phases) const;
  std::string why_not(std::size_t i) const;
  bool begin(std::size_t i, int rank);
  void finish(std::size_t i, Outcome outcome, bool is_printed);
  void print(const BatchJob& job, const Outcome& outcome);
  void show(std::size_t i, double part);
  void set_part(std::size_t i, double part);
  void show_all();
  void write_junit_sometimes();
  void write_junit_now() const;

  const Manifest& manifest_;
  const BatchOrder& order_;
  const Options& options_;
  BatchState* const state_;
  const Clock::time_point start_ = Clock::now();
  std::vector<std::string> keys_;  // of the state, if there is one
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Outcome> outcomes_;
  std::vector<Phase> phases_;
  std::size_t first_ = 0;                // nothing before it waits
  std::vector<double> parts_, weights_;  // done of each job, and how much that is
  double total_weight_ = 0, done_weight_ = 0;
  std::size_t over_ = 0;
  Progress progress_;
  Pace junit_pace_;
  bool stop_;
};

}  // namespace convgrad::cli
