// batch_job.cpp - one job of a batch: is it done already, does it fit, what came of it.
#include <sys/stat.h>

#include <new>

#include "base/clock.hpp"
#include "base/format_bytes.hpp"
#include "batch/batch.hpp"
#include "compute/compute.hpp"
#include "convgrad/tensor_name.hpp"
#include "options/refuse.hpp"
#include "verify/verify.hpp"
#include "version.hpp"

namespace convgrad::cli {
namespace {

using Hashes = std::map<std::string, HashedFile>;

bool is_regular(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

// The hashes of what the job reads; empty if a file is none that has one. Such a job is always
// run, and says what is wrong.
std::optional<Hashes> hashed_inputs(const BatchJob& job) {
  Hashes hashes;
  for (const auto& [field, path] : job.inputs) {
    const std::string file = split_tensor_name(path).file;
    if (!is_regular(file)) return {};
    hashes.emplace(field, HashedFile(file));
  }
  return hashes;
}

bool is_done(const BatchJob& job, const BatchState::Record* record, const Hashes& hashes) {
  if (record == nullptr || record->files.size() != hashes.size()) return false;
  for (const auto& [field, file] : hashes) {
    const auto found = record->files.find(field);
    if (found == record->files.end() || found->second != file.hash()) return false;
  }
  const std::string output = split_tensor_name(job.options.problem.output).file;
  if (output.empty()) return record->output.empty();
  return is_regular(output) && hash_of_file(output) == record->output;
}

std::optional<BatchState::Record> record_of(const BatchJob& job, const Outcome& outcome,
                                            const Hashes& hashes) {
  BatchState::Record record{job.name, std::string(verdict_name(outcome.verdict)), "", {}};
  for (const auto& [field, file] : hashes) {
    if (!file.unchanged()) return {};
    record.files[field] = file.hash();
  }
  const std::string output = split_tensor_name(job.options.problem.output).file;
  if (!output.empty()) {
    if (!is_regular(output)) return {};
    try {
      record.output = hash_of_file(output);
    } catch (const Error&) {  // somebody took it away: then it is not done
      return {};
    }
  }
  return record;
}

// A job opens its files more than once, which a FIFO does not allow.
void check_regular(const BatchJob& job) {
  struct stat status {};
  for (const auto& [field, path] : job.inputs) {
    if (::stat(split_tensor_name(path).file.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
      bad_input(field, " (", path, "): is a ",
                S_ISDIR(status.st_mode) ? "folder" : "device or FIFO", ", expected a file");
    }
  }
}

// What the manifest says that the files are.
void check_hashes(const BatchJob& job) {
  for (const auto& [field, path] : job.inputs) {
    const auto wanted = job.hashes.find(field);
    if (wanted == job.hashes.end()) continue;
    const std::string hash = hash_of_file(split_tensor_name(path).file);
    if (hash == wanted->second) continue;
    bad_input(field, " (", path, "): is ", hash, ", expected ", wanted->second,
              "; the file has changed");
  }
}

std::string text_of(const Json& json) {
  return json.is_string() ? json.get<std::string>() : json.dump();
}

void check_attributes(const BatchJob& job, const Json& attrs) {
  for (const auto& [field, wanted] : job.expected.items()) {
    const Json found = attrs.value(field, Json());
    if (found == wanted) continue;
    bad_input(field, ": the tensors and attributes give ", text_of(found), ", expected ",
              text_of(wanted));
  }
}

int run_command(const BatchJob& job, const Options& options, Json& report) {
  report = {{"command_line", job.repeat}};
  return (job.verifies ? verify(options) : compute(options)).into(report);
}

// "3 of 36 elements fail, errors 31.2 times rounding's (25.4 allowed), largest error/bound 12.5 at
// [0,1,2,3]: got 1.5, want 1.25; diagnosis: ...".
std::string mismatch_text(const Json& compare) {
  if (compare.value("reason", "") == "vacuous") {
    return cat("nothing was tested: ", compare.at("why_vacuous").get<std::string>());
  }
  std::string text = cat(text_of(compare.at("mismatches")), " of ", text_of(compare.at("count")),
                         " elements fail");
  const Json group = compare.value("/rounding/group"_json_pointer, Json::object());
  if (!group.empty()) {
    const Json& rms = group["rms"];
    text += cat(", errors ", rms.is_number() ? general(rms.get<double>(), 3) : text_of(rms),
                " times rounding's (", general(group["allowed"].get<double>(), 3), " allowed)");
  }
  const bool has_bound = compare.contains("max_ratio");
  const Json error = compare.value(has_bound ? "max_ratio" : "max_abs", Json::object());
  if (error.contains("index")) {
    text += cat(", largest ", has_bound ? "error/bound " : "error ", text_of(error["value"]),
                " at ", error["index"].dump(), ": got ", text_of(error["got"]), ", want ",
                text_of(error["want"]));
  }
  if (!compare.value("/repeat_check/differing"_json_pointer, Json::array()).empty()) {
    text += "; repeated runs differ";
  }
  const Json findings = compare.value("/diagnosis/findings"_json_pointer, Json::array());
  if (!findings.empty()) text += cat("; diagnosis: ", findings[0].at("text").get<std::string>());
  return text;
}

// "conv2d float32 NHWC n2 ...: direct, 25.0 MiB".
std::string plan_line(const Json& report) {
  const Json& execution = report.at("execution");
  return cat(report.at("attrs").at("line").get<std::string>(), ": ",
             execution.at("algorithm").get<std::string>(), ", ",
             format_bytes(execution.at("memory_bytes").get<double>()));
}

// Checks, plans and runs; false if the plan is over the share.
bool carry_out(const BatchJob& job, Options options, bool is_whole, Outcome& outcome) {
  const bool dry_run = options.execution.dry_run;
  check_regular(job);
  options.execution.dry_run = true;
  try {
    run_command(job, options, outcome.report);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::runtime && !is_whole) return false;
    throw;
  }
  check_attributes(job, outcome.report["attrs"]);
  check_hashes(job);
  outcome.verdict = Verdict::planned;
  if (dry_run) {
    outcome.message = plan_line(outcome.report);
    return true;
  }
  options.execution.dry_run = false;
  outcome.status = run_command(job, options, outcome.report);
  outcome.verdict = outcome.status != 0 ? Verdict::mismatch
                    : job.verifies      ? Verdict::match
                                        : Verdict::ok;
  if (job.verifies) outcome.vacuous = outcome.report["compare"].value("why_vacuous", "");
  if (outcome.status != 0) outcome.message = mismatch_text(outcome.report["compare"]);
  return true;
}

void fail(Outcome& outcome, ErrorKind kind, const std::string& message) {
  // The command line was right: what a job asks for is input.
  outcome.status = static_cast<int>(kind == ErrorKind::usage ? ErrorKind::input : kind);
  outcome.verdict = Verdict::error;
  outcome.message = as_field(message);
}

}  // namespace

std::string job_key(const BatchJob& job) {
  const ExecutionOptions& o = job.options.execution;
  return hash_of_text(cat(kVersion, " ", kGitRevision, "\n", job.verifies ? "verify" : "compute",
                          "\n", o.backend, " ", o.algorithm, "\n", job.spelled));
}

std::optional<Outcome> run_batch_job(const BatchJob& job, const Share& share, bool dry_run,
                                     bool keeps, const BatchState::Record* done,
                                     const std::function<void(double)>& on_progress) {
  const auto start = Clock::now();
  Outcome outcome;
  std::optional<Hashes> hashes;
  const auto over = [&] {
    outcome.elapsed_s = seconds_since(start);
    return outcome;
  };
  try {
    if (keeps) hashes = hashed_inputs(job);
    if (hashes && is_done(job, done, *hashes)) {
      outcome.verdict = Verdict::skipped;
      outcome.message = "unchanged since it was done";
      return over();
    }
    Options options = job.options;
    options.execution.threads = share.threads;
    options.execution.memory_limit = share.memory_bytes;
    options.execution.dry_run = dry_run;
    options.command_line = job.repeat;
    if (!options.execution.device) options.execution.device = share.device;
    options.on_progress = on_progress;
    if (!carry_out(job, std::move(options), share.is_whole, outcome)) return {};
  } catch (const Error& error) {
    fail(outcome, error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    fail(outcome, ErrorKind::runtime, "out of memory; lower --memory-limit, --threads or --jobs");
  } catch (const std::exception& error) {
    fail(outcome, ErrorKind::runtime, one_line(error.what()));
  }
  over();
  if (hashes && outcome.status == 0) outcome.record = record_of(job, outcome, *hashes);
  return outcome;
}

}  // namespace convgrad::cli
