// job.hpp - from options to a checked problem with its tensors, and through its blocks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "convgrad/npy.hpp"
#include "engine/run.hpp"
#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

struct Job {
  std::unique_ptr<NpyReader> x, dy;
  Tensors tensors;  // both, with hashes where a report will want them
  WgradProblem problem;
  Backend backend = Backend::cpu;
  std::function<void(double)> on_progress;  // Options::on_progress
  Device device;                            // for cuda
  std::string backend_reason;               // what auto decided and why, "" if it was not asked
};

// Returns what --backend and --algorithm name, and nothing for auto, which needs the problem.
// Throws Error(usage) for names that are unknown or do not fit each other.
std::optional<Backend> named_backend(const ExecutionOptions& execution);

// Opens the two files and validates the problem.
Job open_job(const Options& options);

// Reads the blocks and adds them to both sums, with progress. `gradient` and `check` may be null.
Timing run_job(Job& job, const Plan& plan, BlockSum* gradient, BlockSum* check);

}  // namespace convgrad::cli
