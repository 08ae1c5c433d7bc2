// batch.cpp - runs the jobs of a manifest, some at a time, and says what came of each.
#include "batch/batch.hpp"

#include <cstdio>
#include <regex>

#include "batch/batch_ranks.hpp"
#include "batch/batch_runner.hpp"
#include "compute/share_node.hpp"
#include "convgrad/machine.hpp"
#include "convgrad/task_pool.hpp"
#include "job/job.hpp"
#include "job/job_files.hpp"
#include "mpi/ranks.hpp"
#include "options/arguments.hpp"
#include "options/refuse.hpp"
#include "report/color.hpp"

namespace convgrad::cli {
namespace {

// Malformed lines that are printed; a file that is no manifest at all has many.
constexpr std::size_t kMaxPrintedLines = 20;

void check_batch_options(Options& options) {
  BatchOptions& o = options.batch;
  if (o.manifest.empty()) {
    misuse(
        "the manifest is missing, expected a file of JSON Lines or CSV, or -; see convgrad batch "
        "--help");
  }
  if (!o.shard.empty() && !parse_share(o.shard)) {
    misuse("--shard: '", o.shard, "', expected K/R, the K-th of R parts, such as 1/8");
  }
  const std::string& algorithm = options.execution.algorithm;
  if (algorithm != "auto" && !is_device_kernel(algorithm)) find_kernel(algorithm);
  if (named_backend(options.execution) == Backend::cuda)
    cuda_device(options.execution.device.value_or(0));
  if (o.resume && o.state.empty()) {
    if (o.manifest == "-") {
      misuse(
          "--state is missing, expected a file with --resume and a manifest from standard input");
    }
    const auto share = parse_share(o.shard);
    o.state = cat(o.manifest, share ? cat(".", share->first, "-of-", share->second) : "", ".state");
  }
  for (const auto& [flag, path] : {std::pair{"--state", o.state}, {"--junit", o.junit}}) {
    if (path == "-") misuse(flag, ": - is for the jobs' lines; name a file");
    if (!path.empty()) check_output(path);
  }
}

void keep_matches(const std::string& pattern, Manifest& manifest) {
  if (pattern.empty()) return;
  std::regex regex;
  try {
    regex.assign(pattern);
  } catch (const std::regex_error&) {
    misuse("--match: '", pattern, "' is no regular expression");
  }
  const std::size_t before = manifest.jobs.size();
  std::erase_if(manifest.jobs,
                [&](const BatchJob& job) { return !std::regex_search(job.name, regex); });
  if (manifest.jobs.empty() && before > 0) {
    misuse("--match: '", pattern, "' is in the name of none of the ", before, " jobs of ",
           manifest.name);
  }
}

void print_bad_lines(const Options& options, const Manifest& manifest) {
  const std::size_t count = manifest.bad.size();
  for (std::size_t i = 0; i < std::min(count, kMaxPrintedLines); ++i) {
    const BadLine& bad = manifest.bad[i];
    say(options, "error", cat(one_line(manifest.name), ", line ", bad.line, ": ", bad.message));
  }
  if (count > kMaxPrintedLines) {
    say(options, "error",
        cat(one_line(manifest.name), ": ", count - kMaxPrintedLines, " more lines are malformed"));
  }
}

int worst_status(const Manifest& manifest, const std::vector<Outcome>& outcomes) {
  int worst = manifest.bad.empty() ? 0 : static_cast<int>(ErrorKind::input);
  for (const Outcome& outcome : outcomes) worst = std::max(worst, outcome.status);
  return worst;
}

// The first line that says what went wrong, for the report of the whole.
void report_error(const Manifest& manifest, const std::vector<Outcome>& outcomes, int worst,
                  Json& report) {
  if (worst < 2) return;
  std::string message;
  if (!manifest.bad.empty()) {
    message = cat(manifest.name, ", line ", manifest.bad[0].line, ": ", manifest.bad[0].message);
  }
  for (std::size_t i = 0; i < outcomes.size() && message.empty(); ++i) {
    if (outcomes[i].status < 2) continue;
    message = cat(place_of(manifest, manifest.jobs[i]), ": ", outcomes[i].message);
  }
  report["error"] = error_json(worst, message, {manifest.name});
}

Options job_defaults(const Options& options) {
  Options defaults;
  defaults.execution.backend = options.execution.backend;
  defaults.execution.algorithm = options.execution.algorithm;
  defaults.verify.fail_vacuous = options.verify.fail_vacuous;
  return defaults;
}

// The jobs of a command line: all that can be refused before one of them runs, and all that is
// written when they are over.
struct Batch {
  Batch(Options& all, Json& into) : options(all), report(into) {}

  Options& options;
  Json& report;
  const Clock::time_point start = Clock::now();
  ManifestText text;
  Manifest manifest;
  FirstReads reads;
  BatchOrder order;
  std::optional<BatchState> state;
  std::optional<Runner> runner;

  void read() {
    text = read_manifest(options.batch.manifest);
    manifest = parse_manifest(text.text, text.name, text.folder, job_defaults(options));
    check_files();
    reads = first_reads(manifest);
    keep_matches(options.batch.match, manifest);
  }

  // What is written must replace nothing that is read, and no file of somebody else's.
  void check_files() {
    try {
      check_own_files(options, manifest);  // of jobs that are left out, too
      check_report_replaces_nothing(options);
    } catch (const Error&) {
      options.json.clear();  // it must not replace what it is
      throw;
    }
    if (!options.batch.junit.empty()) {
      check_replaceable("--junit: ", options.batch.junit, kJunitStart,
                        "JUnit file of convgrad batch");
    }
  }

  void prepare() {
    check_batch_options(options);
    read();
    order = order_jobs(manifest, reads);
    keep_shard(options.batch.shard, manifest, order);
    const bool dry_run = options.execution.dry_run;
    if (!options.batch.state.empty()) state.emplace(options.batch.state, !dry_run);
    print_bad_lines(options, manifest);
    report["batch"] = Json::object();
    if (!options.batch.shard.empty()) report["batch"]["shard"] = options.batch.shard;
    if (state) name_lost_jobs();
    runner.emplace(manifest, order, options, state && !dry_run ? &*state : nullptr);
  }

  // Those that a batch had begun that was killed.
  void name_lost_jobs() {
    for (const BatchJob& job : manifest.jobs) {
      if (!state->was_lost(job_key(job))) continue;
      report["batch"]["lost"].push_back(job.name);
      if (options.json == "-") continue;
      std::fprintf(stdout, "lost      %s  had begun, and not ended when the batch was killed\n",
                   one_line(job.name).c_str());
    }
  }

  int finish() {
    const std::vector<Outcome>& outcomes = runner->outcomes();
    const double elapsed_s = seconds_since(start);
    const bool any_ran = manifest.bad.empty() || options.batch.keep_going;
    if (options.json != "-" && any_ran) {
      std::fprintf(stdout, "%s\n", summary_line(outcomes, manifest.bad.size(), elapsed_s).c_str());
    }
    const int worst = worst_status(manifest, outcomes);
    report_batch(manifest, outcomes, elapsed_s, report);
    report_error(manifest, outcomes, worst, report);
    runner->write_junit();
    if (state && !options.execution.dry_run) state->write();
    return worst;
  }
};

int batch_alone(Options& options, Json& report) {
  Batch batch(options, report);
  batch.prepare();
  const Division division(options, batch.manifest.jobs.size());
  report["batch"].update(division.json());
  TaskPool pool(division.jobs);
  pool.run(division.jobs,
           [&](std::int64_t, int worker) { batch.runner->work(division.of(worker)); });
  batch.runner->run_deferred(division.whole);
  return batch.finish();
}

// Rank 0 has the list and writes everything; the others have the jobs that it gives them.
int batch_on_ranks(Options& options, Json& report) {
  Ranks ranks;
  Batch batch(options, report);
  ranks.together([&] {
    if (ranks.rank() == 0) batch.prepare();
  });
  check_same_program(ranks);
  const ManifestText& text = batch.text;
  const ManifestText shared{ranks.shared(text.text), ranks.shared(text.name),
                            ranks.shared(text.folder)};
  Options share = options;
  share_node(ranks, share);
  if (ranks.rank() != 0) {
    const Manifest all =
        parse_manifest(shared.text, shared.name, shared.folder, job_defaults(options));
    do_jobs_of_rank_0(ranks, all, share);
    throw SilentEnd{};
  }
  report["batch"].update(
      give_jobs_to_ranks(ranks, batch.manifest, share, batch.state, *batch.runner));
  batch.runner->run_deferred(Division(options, batch.manifest.jobs.size()).whole);
  return batch.finish();
}

int merge_into(Options& options, Json& report) {
  const BatchOptions& o = options.batch;
  const std::pair<const char*, bool> excluded[] = {
      {"--shard", !o.shard.empty()},
      {"--mpi", options.execution.mpi},
      {"--resume", o.resume},
      {"--state", !o.state.empty()},
      {"--dry-run", options.execution.dry_run},
      {"--match", !o.match.empty() && o.manifest.empty()}};
  for (const auto& [flag, is_given] : excluded) {
    if (is_given) misuse("--merge: given with ", flag, ", but runs no job; leave one of them out");
  }
  if (o.junit.empty()) misuse("--merge: --junit is missing, expected the file to write");
  if (o.junit == "-") misuse("--junit: - is for the jobs' lines; name a file");
  check_output(o.junit);
  Batch batch(options, report);
  if (o.manifest.empty()) {
    batch.check_files();
    return merge_junit(options, nullptr, report);
  }
  batch.read();
  return merge_junit(options, &batch.manifest, report);
}

int batch_into(Options& options, Json& report) {
  if (!options.batch.merge.empty()) return merge_into(options, report);
  return options.execution.mpi ? batch_on_ranks(options, report) : batch_alone(options, report);
}

}  // namespace

Division::Division(const Options& options, std::size_t job_count) {
  const ExecutionOptions& execution = options.execution;
  const Machine& machine = this_machine();
  whole = {execution.threads > 0 ? execution.threads : machine.threads, execution.memory_limit,
           true, execution.device};
  memory_bytes = whole.memory_bytes > 0 ? whole.memory_bytes
                                        : static_cast<std::uint64_t>(machine.memory_bytes);
  const int asked = options.batch.jobs == 0 ? whole.threads : options.batch.jobs;
  const auto most =
      static_cast<int>(std::min<std::size_t>(job_count, static_cast<std::size_t>(kMostJobs)));
  jobs = std::max(std::min({asked, whole.threads, most}), 1);
}

Share Division::of(int worker) const {
  if (jobs == 1) return whole;
  return {whole.threads / jobs + (worker < whole.threads % jobs ? 1 : 0),
          memory_bytes / static_cast<std::uint64_t>(jobs), false, whole.device};
}

Json Division::json() const {
  return {
      {"jobs_at_a_time", jobs}, {"threads", whole.threads}, {"memory_limit_bytes", memory_bytes}};
}

CommandResult batch(Options& options) { return result_of(batch_into, options); }

}  // namespace convgrad::cli
