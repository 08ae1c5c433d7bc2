// bench.hpp - the parts of `convgrad bench`: problems -> cases -> measurements -> report.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cpu/peaks.hpp"
#include "engine/plan.hpp"
#include "job/job.hpp"
#include "options/options.hpp"
#include "options/problems.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

struct BenchProblem : NamedProblem {
  std::int64_t count = 1;   // how often it occurs in its network
  std::string origin = {};  // put in front of messages: "--suite: FILE, line 3: "
};

ReportPointer list_suites();

struct BenchCase : BenchProblem {
  std::string algorithm;  // as asked for: auto, or a kernel's name
  Plan plan;
  PlanOptions plan_options;
  std::size_t tensors = 0;  // neighbours with the same number share their tensors
};

// Checks and plans all cases, so that nothing is measured before everything is known to work. Sets
// `job` if the tensors come from files.
std::vector<BenchCase> plan_cases(const BenchOptions& options, std::optional<Job>& job);

struct Statistics {  // of seconds
  std::int64_t n = 0;
  double min = 0, median = 0, p95 = 0;
  std::optional<double> variation;  // standard deviation / mean; none of one run
};

struct Measured {
  const BenchCase* bench_case = nullptr;
  Statistics time;
  std::optional<Peaks> peaks;  // on as many threads
};

// Measures all cases, which share what disturbs the machine: their runs are interleaved, in rounds
// over all of them. `job` has the tensors that are files. Calls on_done(row) in the last round.
std::vector<Measured> measure(const std::vector<BenchCase>& cases, std::optional<Job>& job,
                              const BenchOptions& options,
                              const std::function<void(Measured&)>& on_done);

ReportPointer bench(const BenchOptions& options);

}  // namespace convgrad::cli
