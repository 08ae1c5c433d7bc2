// batch_job.cpp - one job of a batch: is it done already, what came of it.
#include <sys/stat.h>

#include <algorithm>
#include <new>

#include "base/clock.hpp"
#include "base/format_bytes.hpp"
#include "batch/batch.hpp"
#include "compute/compute.hpp"
#include "files/tensor_name.hpp"
#include "options/refuse.hpp"
#include "report/tensor_hash.hpp"
#include "verify/verify.hpp"
#include "version.hpp"

namespace convgrad::cli {
namespace {

// Adds size and time of each file as they are now, whatever the order of fields; false if one is no
// regular file.
bool add_stamps(std::vector<std::pair<std::string, std::string>> files, Json& stamps) {
  std::ranges::sort(files);
  for (const auto& [field, path] : files) {
    struct stat status {};
    if (path.empty()) continue;
    if (::stat(split_tensor_name(path).file.c_str(), &status) != 0) return false;
    if (!S_ISREG(status.st_mode)) return false;
    const auto seconds = std::int64_t{status.st_mtim.tv_sec};
    stamps.push_back({status.st_size, seconds * 1000000000 + status.st_mtim.tv_nsec});
  }
  return true;
}

// Of the inputs, as they are before the job reads them.
std::optional<Json> input_stamps(const BatchJob& job) {
  Json stamps = Json::array();
  if (!add_stamps(job.inputs, stamps)) return {};
  return stamps;
}

// The line of the state by which the job is done, with its outputs as they are now. Without one the
// job is always run.
std::optional<std::string> state_line(const BatchJob& job, const std::optional<Json>& inputs) {
  if (!inputs) return {};
  Json files = *inputs;
  if (!add_stamps(job.outputs, files)) return {};
  return Json{{"job", job.spelled}, {"program", cat(kVersion, " ", kGitRevision)}, {"files", files}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_done(const BatchJob& job, const std::optional<Json>& inputs, const BatchState& state) {
  const std::optional<std::string> line = state_line(job, inputs);
  return line && state.has(*line);
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

void check_attributes(const BatchJob& job, const WgradProblem& problem) {
  const Json attrs = problem_json(problem);
  for (const auto& [field, wanted] : job.expected.items()) {
    const Json found = attrs.value(field, Json());
    if (found == wanted) continue;
    bad_input(field, ": the tensors and attributes give ", text_of(found), ", expected ",
              text_of(wanted));
  }
}

int run_command(const BatchJob& job, const VerifyCommand& options, Json& report) {
  report = {{"command_line", job.repeat}};
  return job.verifies ? verify(options, report) : compute(options, report);
}

// "3 of 36 elements fail, errors 31.2 times rounding's (25.4 allowed), largest error/bound 12.5 at
// [0,1,2,3]: got 1.5, want 1.25; diagnosis: ...".
std::string mismatch_text(const Json& compare) {
  if (compare.value("reason", "") == "vacuous") {
    return cat("nothing was tested: ", compare.at("why_vacuous").get<std::string>());
  }
  auto text = compare.at("failing").get<std::string>();
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

void carry_out(const BatchJob& job, const VerifyCommand& options, Outcome& outcome) {
  check_regular(job);
  outcome.status = run_command(job, options, outcome.report);
  if (options.execution.dry_run) {
    outcome.verdict = Verdict::planned;
    outcome.message = plan_line(outcome.report);
    return;
  }
  outcome.verdict = outcome.status != 0 ? Verdict::mismatch
                    : job.verifies      ? Verdict::match
                                        : Verdict::ok;
  if (job.verifies) outcome.vacuous = outcome.report["compare"].value("why_vacuous", "");
  if (outcome.status != 0) outcome.message = mismatch_text(outcome.report["compare"]);
}

void fail(Outcome& outcome, ErrorKind kind, const std::string& message) {
  // The command line was right: what a job asks for is input.
  outcome.status = static_cast<int>(kind == ErrorKind::usage ? ErrorKind::input : kind);
  outcome.verdict = Verdict::error;
  outcome.message = as_field(message);
}

VerifyCommand options_of(const BatchJob& job, const Share& share, bool dry_run,
                         const std::function<void(double)>& on_progress) {
  VerifyCommand options = job.options;
  options.execution.threads = share.threads;
  options.execution.memory_limit = share.memory_bytes;
  options.execution.dry_run = dry_run;
  options.on_progress = on_progress;
  options.on_problem = [&job](const WgradProblem& problem) {
    check_attributes(job, problem);
    check_hashes(job);
  };
  return options;
}

}  // namespace

Outcome run_batch_job(const BatchJob& job, const Share& share, bool dry_run, bool resumes,
                      BatchState* state, const std::function<void(double)>& on_progress) {
  const auto start = Clock::now();
  Outcome outcome;
  const std::optional<Json> inputs = state != nullptr ? input_stamps(job) : std::nullopt;
  try {
    if (resumes && state != nullptr && is_done(job, inputs, *state)) {
      outcome.verdict = Verdict::skipped;
      outcome.message = "unchanged since it was done";
    } else {
      carry_out(job, options_of(job, share, dry_run, on_progress), outcome);
    }
  } catch (const Error& error) {
    fail(outcome, error.kind(), error.what());
    if (!share.is_whole && outcome.message.starts_with("--memory-limit is ")) {
      outcome.message += "; with --jobs 1 each job has all of it";
    }
  } catch (const std::bad_alloc&) {
    fail(outcome, ErrorKind::runtime, "out of memory; lower --memory-limit, --threads or --jobs");
  } catch (const std::exception& error) {
    fail(outcome, ErrorKind::runtime, one_line(error.what()));
  }
  outcome.elapsed_s = seconds_since(start);
  if (state != nullptr && outcome.status == 0 && outcome.verdict != Verdict::skipped) {
    const std::optional<std::string> line = state_line(job, inputs);
    if (line) state->add(*line);
  }
  return outcome;
}

}  // namespace convgrad::cli
