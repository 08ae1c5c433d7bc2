// batch_job.cpp - one job of a batch: is it done already, what came of it.
#include <sys/stat.h>

#include "batch/batch.hpp"
#include "compute/compute.hpp"
#include "files/tensor_source.hpp"
#include "job/job_files.hpp"
#include "options/arguments.hpp"
#include "report/values.hpp"
#include "verify/verify.hpp"
#include "version.hpp"

namespace convgrad::cli {
namespace {

// Returns size and time of each file as they are now, or nothing if one is no regular file.
std::optional<Json> stamps_of(const BatchJob& job, FileUse use) {
  Json stamps = Json::array();
  for (const NamedFile& file : files_of(job.options, use)) {
    struct stat status {};
    if (::stat(split_tensor_name(file.path).file.c_str(), &status) != 0) return {};
    if (!S_ISREG(status.st_mode)) return {};
    const auto seconds = std::int64_t{status.st_mtim.tv_sec};
    stamps.push_back({status.st_size, seconds * 1000000000 + status.st_mtim.tv_nsec});
  }
  return stamps;
}

// Returns the line of the state by which the job is done, with its outputs as they are now, or
// nothing for files without stamps: such a job is always run.
std::optional<std::string> state_line(const BatchJob& job, const std::optional<Json>& inputs) {
  const std::optional<Json> outputs = stamps_of(job, FileUse::written);
  if (!inputs || !outputs) return {};
  Json files = *inputs;
  files.insert(files.end(), outputs->begin(), outputs->end());
  return json_text(
      {{"job", job.spelled}, {"program", cat(kVersion, " ", kGitRevision)}, {"files", files}});
}

// Throws Error(input) for a FIFO or the like, since a job opens its files more than once, and for a
// file that has not the hash that the manifest names.
void check_inputs(const BatchJob& job) {
  for (const auto& [flag, path, use] : files_of(job.options, FileUse::read)) {
    const std::string file = split_tensor_name(path).file;
    if (is_special(file)) bad_input(flag, " (", path, "): is no regular file, expected one");
    const auto wanted = job.hashes.find(as_field(flag));
    if (wanted == job.hashes.end()) continue;
    const std::string hash = hash_of_file(file);
    if (hash == wanted->second) continue;
    bad_input(flag, " (", path, "): is ", hash, ", expected ", wanted->second,
              "; the file has changed");
  }
}

void carry_out(const BatchJob& job, const VerifyCommand& options, Outcome& outcome) {
  check_inputs(job);
  outcome.report = job.verifies ? verify(options) : compute(options);
  outcome.status = outcome.report->exit_status();
  outcome.message = outcome.report->in_short();
  outcome.verdict = options.execution.dry_run ? Verdict::planned
                    : outcome.status != 0     ? Verdict::mismatch
                    : job.verifies            ? Verdict::match
                                              : Verdict::ok;
  if (const auto* verified = dynamic_cast<const VerifyReport*>(outcome.report.get())) {
    outcome.vacuous = verified->vacuous;
    outcome.not_tested = verified->not_tested;
  }
}

}  // namespace

Outcome run_batch_job(const BatchJob& job, const Share& share, bool dry_run, bool resumes,
                      BatchState* state, const std::function<void(double)>& on_progress) {
  const auto start = Clock::now();
  Outcome outcome;
  // Before the job reads them: one whose inputs change while it runs is run again.
  const std::optional<Json> inputs =
      state != nullptr ? stamps_of(job, FileUse::read) : std::nullopt;
  try {
    const auto done = resumes && state != nullptr ? state_line(job, inputs) : std::nullopt;
    if (done && state->has(*done)) {
      outcome.verdict = Verdict::skipped;
      outcome.message = "unchanged since it was done";
    } else {
      VerifyCommand options = job.options;
      options.execution.threads = share.threads;
      options.execution.memory_limit = share.memory_bytes;
      options.execution.dry_run = dry_run;
      options.on_progress = on_progress;
      carry_out(job, options, outcome);
    }
  } catch (...) {
    const Error error = handled_error("lower --memory-limit, --threads or --jobs");
    // The command line was right: what a job asks for is input.
    const bool is_usage = error.kind() == ErrorKind::usage;
    outcome.status = static_cast<int>(is_usage ? ErrorKind::input : error.kind());
    outcome.verdict = Verdict::error;
    outcome.message = as_field(error.what());
    outcome.hint = error.hint();
  }
  outcome.elapsed_s = seconds_since(start);
  if (state != nullptr && outcome.status == 0 && outcome.verdict != Verdict::skipped) {
    const std::optional<std::string> line = state_line(job, inputs);
    if (line) state->add(*line);
  }
  return outcome;
}

}  // namespace convgrad::cli
