// bench.hpp - the parts of `convgrad bench`: problems -> cases -> measurements -> report.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convgrad/buffer.hpp"
#include "convgrad/plan.hpp"
#include "cpu/peaks.hpp"
#include "job/job_plan.hpp"
#include "options/made_problem.hpp"
#include "options/options.hpp"
#include "report/command_result.hpp"

namespace convgrad::cli {

// A problem as a suite or the flags spell it.
struct BenchProblem : MadeRequest {
  std::int64_t count = 1;  // how often it occurs in its network
  std::string origin;      // put in front of messages: "--suite: FILE, line 3: "
};

// The problems of a suite, by its name or its file, in its order. Error(input) names the file and
// the line.
std::vector<BenchProblem> read_suite(const std::string& suite);
// The command --list-suites: fills the report, or prints a line for each.
void list_suites(const Options& options, Json& report);

// One line of the result.
struct BenchCase {
  std::string name;
  std::int64_t count = 1;
  WgradProblem problem;
  std::vector<std::int64_t> input_shape, out_backprop_shape;
  std::string algorithm;  // as asked for: auto, or a kernel's name
  Plan plan;
  PlanOptions plan_options;
  std::size_t tensors = 0;  // neighbours with the same number share their tensors
  bool cold_cache = false;  // each run begins with the tensors out of the caches
};

// All cases, checked and planned, so that nothing is measured before everything is known to work.
// job: set if the tensors come from files.
std::vector<BenchCase> plan_cases(const Options& options, std::optional<Job>& job, Json& report);

struct Tensors {
  Buffer x, dy;
};
Tensors made_tensors(const WgradProblem& problem, int threads);
Tensors read_tensors(Job& job);

// So many products in AMX tiles make one of the case's; 0: it is not computed there.
int amx_products(const BenchCase& bench_case);

struct Runs {
  std::vector<double> seconds;  // of each run
  // Time is cut into slices of some milliseconds: the shortest run of each, over the yardstick's
  // time at its beginning. Empty for a device, and where caches are cold: the yardstick's are not.
  std::vector<double> per_yardstick;
  std::string yardstick;  // its name

  void append(const Runs& more);
};
// At least `repeat` runs, which take at least `min_time` seconds.
Runs measure_runs(const BenchCase& bench_case, const Tensors& tensors, const BenchOptions& options,
                  std::int64_t repeat, double min_time);
struct Statistics {  // of seconds
  std::int64_t n = 0;
  double min = 0, median = 0, p95 = 0, mean = 0, deviation = 0;

  std::optional<double> variation() const;  // deviation / mean; none of one run
};
Statistics statistics(std::vector<double> times);

struct Measured {
  const BenchCase* bench_case = nullptr;
  Statistics time;  // of the attempt with the least variation, but min is of all
  int attempts = 1;
  std::optional<double> per_yardstick;  // Runs' median, the least of all attempts
  std::string yardstick;
  std::optional<Peaks> peaks;  // on as many threads
};

// Of one attempt.
Measured measured(const BenchCase& bench_case, Runs runs);

// Measures all cases, which share what disturbs the machine: their runs are interleaved, in rounds
// over all of them. on_done(row) is called in the last one.
class Measurement {
 public:
  // job: of the cases whose tensors are files. All must outlive it.
  Measurement(const std::vector<BenchCase>& cases, std::optional<Job>& job, const Options& options)
      : cases_(cases), job_(job), options_(options) {}

  std::vector<Measured> all(const std::function<void(Measured&)>& on_done);
  // Measures the rows again, up to three times, that are in doubt: a disturbance passes, a slower
  // program does not.
  void again(std::vector<Measured>& rows, const std::function<bool(const Measured&)>& in_doubt);

 private:
  const Tensors& tensors_of(const BenchCase& bench_case);

  const std::vector<BenchCase>& cases_;
  std::optional<Job>& job_;
  const Options& options_;
  Tensors tensors_;
  const BenchCase* owner_ = nullptr;  // of tensors_
};

Json measured_json(const Measured& measured);
Json totals_json(const std::vector<Measured>& all);

// Text lines, without the line's end.
std::string peaks_line(const Peaks& peaks);
std::string table_header(const std::vector<BenchCase>& cases);
std::string table_row(const Measured& measured, const std::vector<BenchCase>& cases);
std::string totals_text(const std::vector<Measured>& all, const std::vector<BenchCase>& cases);
// With a column for each tag.
std::string csv_header(const Options& options);
std::string csv_row(const Measured& measured, const Options& options);

// The speeds of an earlier report.
class Baseline {
 public:
  // Error(input) if the file is none, or has none of the cases.
  Baseline(const std::string& path, const std::vector<BenchCase>& cases);

  struct Comparison {
    double min_ms = 0;                    // in the baseline
    std::optional<double> per_yardstick;  // there too; none: compared by the shortest times
    double slowdown = 0;                  // 0.1 for a row that takes 10 % longer
  };
  // By the yardstick, if both were measured by the same one; nothing if the baseline lacks the row.
  std::optional<Comparison> compare(const Measured& measured) const;

 private:
  struct Row {
    double min_ms = 0;
    std::optional<double> per_yardstick;
    std::string yardstick;
  };
  std::map<std::string, Row> rows_;
};

// What a row must be like. Nothing is asked of it by default.
struct Limits {
  std::optional<Baseline> baseline;
  double max_slowdown = 0;
  std::optional<double> max_cv;

  bool slow(const Measured& measured) const;
  bool noisy(const Measured& measured) const;
  bool asked() const { return baseline || max_cv; }
};
// Error(usage) if --max-slowdown or --max-cv cannot be, Error(input) for the baseline.
Limits limits_of(const Options& options, const std::vector<BenchCase>& cases);

// Writes a line on standard error for each row that is slower, noisy or new, and fills the report's
// status, baseline and noise. The exit status: 1 if a row is slower whose times can be trusted,
// else 5 if a row is noisy.
int judge(const Limits& limits, const Options& options, const std::vector<Measured>& all,
          Json& report);

// --format json is --json, for errors too.
void use_bench_format(Options& options);
// The command.
CommandResult bench(const Options& options);

}  // namespace convgrad::cli
