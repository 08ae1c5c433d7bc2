// compute_ranks.cpp - --mpi: one gradient by the processes of mpirun. Each sums its part of the
// batch, the parts are added in the tree of all slices, and rank 0 writes.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "compute/compute.hpp"
#include "engine/partial_file.hpp"
#include "files/tensor_source.hpp"
#include "job/job_files.hpp"
#include "mpi/ranks.hpp"
#include "options/arguments.hpp"
#include "options/help.hpp"

namespace convgrad::cli {
namespace {

void check_rank_options(const Options& options) {
  const ExecutionOptions& execution = options.execution;
  if (!execution.batch_range.empty()) {
    misuse("--mpi: given with --batch-range, but gives each rank its own",
           Hint("leave one of them out"));
  }
  if (execution.backend == "reference") {
    misuse("--mpi: given with --backend reference, which sums the batch in one go",
           Hint("use --backend cpu"));
  }
  if (execution.list_algorithms) {
    misuse("--mpi: given with --list-algorithms, which computes nothing", Hint("leave it out"));
  }
  for (const auto& [flag, path, use] : files_of(options, FileUse::read)) {
    if (!is_standard_input(path) && !is_special(split_tensor_name(path).file)) continue;
    misuse("--mpi: ", flag, " ", path, " is no regular file, expected one that all ranks can read");
  }
}

// Returns the processors that this process may run on, as text.
std::string processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return "";
  std::string text;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) text += cat(cpu, ",");
  }
  return text;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

// Fills in what is not given of threads, memory and device. Ranks that mpirun has not bound to
// processors of their own share threads; those of one node share its memory and take its devices in
// turn. All ranks must call it.
void share_node(const Ranks& ranks, Options& options) {
  const std::vector<std::string> nodes = ranks.gather(host_name());
  const std::vector<std::string> sets = ranks.gather(cat(host_name(), " ", processors()));
  const auto own = static_cast<std::size_t>(ranks.rank());
  const auto by_processors = std::ranges::count(sets, sets[own]);
  const auto by_node = std::ranges::count(nodes, nodes[own]);
  const auto before = std::count(nodes.begin(), nodes.begin() + ranks.rank(), nodes[own]);
  ExecutionOptions& execution = options.execution;
  const Machine& machine = this_machine();
  if (execution.threads == 0) {
    execution.threads = std::max(1, machine.threads / static_cast<int>(by_processors));
  }
  if (execution.memory_limit == 0) {
    execution.memory_limit = static_cast<std::uint64_t>(machine.memory_bytes / by_node);
  }
  const bool cuda = named_backend(execution) == Backend::cuda || execution.backend == "auto";
  if (cuda && !execution.device && ranks.size() > 1 && by_node > 1) {
    const auto devices = std::ssize(cuda_info().devices);
    if (devices > 0) execution.device = static_cast<int>(before % devices);
  }
}

// Returns how many bytes this process has read so far, from files and elsewhere.
std::int64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string name;
  std::int64_t value = 0;
  return io >> name >> value && name == "rchar:" ? value : 0;
}

// Throws if ranks differ: unlike machines could choose unlike algorithms, and see unlike files.
void check_one_job(const Ranks& ranks, const Plan& plan) {
  PartialHeader header = partial_header(plan, version_text());
  const std::vector<std::string> all = ranks.gather(partial_header_text(header));
  ranks.together([&] {
    const std::string difference = partial_difference(parse_partial_header(all[0], "rank 0"),
                                                      header, "rank 0", cat("rank ", ranks.rank()));
    if (!difference.empty()) {
      bad_input(difference, Hint("give all ranks the same files and one --algorithm"));
    }
  });
}

struct RankTiming {
  Timing timing;
  double add_s = 0;  // with the other ranks, and waiting for them
  std::int64_t read_bytes = 0;
};

// Returns what all ranks say of themselves, on each of them.
Json all_ranks(const Ranks& ranks, const Plan& plan, const RankTiming& t) {
  const Json own = {{"rank", ranks.rank()},
                    {"host", host_name()},
                    {"images", {plan.schedule.part.images.begin, plan.schedule.part.images.end}},
                    {"threads", plan.threads},
                    {"device", plan.cuda() ? Json(plan.cuda()->device.number) : Json()},
                    {"read_bytes", t.read_bytes},
                    {"timing_ms",
                     {{"read", milliseconds(t.timing.read_s)},
                      {"kernel", milliseconds(t.timing.kernel_s)},
                      {"add", milliseconds(t.add_s)},
                      {"total", milliseconds(t.timing.total_s)}}}};
  Json all = Json::array();
  for (const std::string& text : ranks.gather(own.dump())) all.push_back(Json::parse(text));
  return {{"ranks", all}};
}

// Returns the sum of all ranks on rank 0, and null on the others.
double* sum_of_ranks(Ranks& ranks, ReadyJob& ready, BlockSum& sum, RankTiming& timing) {
  const Plan& plan = ready.plan;
  const std::int64_t before = bytes_read();
  timing.timing = run_job(ready.job, plan, &sum, nullptr);
  timing.read_bytes = bytes_read() - before;
  double* dw = nullptr;
  timing.add_s = seconds_of([&] {
    std::vector<NodeSums> nodes;
    for (std::size_t node = 0; node < plan.schedule.nodes.size(); ++node) {
      nodes.push_back({plan.schedule.nodes[node], sum.finish(node)});
    }
    std::vector<Range> parts;  // slices of each rank
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const BatchPart part =
          batch_part(plan.schedule.chunks, plan.schedule.slices, {{}, rank, ranks.size()});
      parts.push_back(plan.schedule.slices.slices_of(part.partitions));
    }
    dw = add_ranks(ranks, parts, nodes, plan.problem.dw_count());
  });
  timing.timing.total_s += timing.add_s;
  return dw;
}

// Returns null on all ranks but 0.
ReportPointer sum_and_write(Ranks& ranks, ReadyJob& ready, const Options& options) {
  TaskPool pool(ready.plan.threads);
  const std::unique_ptr<BlockSum> sum = checked_sum(ready.plan, pool, options.execution);
  RankTiming timing;
  double write_s = 0;
  double* const dw = sum_of_ranks(ranks, ready, *sum, timing);
  ranks.together([&] {
    if (ranks.rank() == 0) write_s = seconds_of([&] { write_sums(ready, dw, options); });
  });
  const Json all = all_ranks(ranks, ready.plan, timing);
  if (ranks.rank() != 0) return nullptr;
  return computed_report(ready, options, {timing.timing, write_s, part_problem(ready.plan)}, all);
}

ReportPointer run_rank(Ranks& ranks, Options options) {
  share_node(ranks, options);
  std::optional<ReadyJob> ready;
  ranks.together([&] {
    const BatchRange share = {{}, ranks.rank(), ranks.size()};
    ready.emplace(make_ready(options, share, ranks.rank() == 0));
  });
  check_one_job(ranks, ready->plan);
  if (!options.execution.dry_run) return sum_and_write(ranks, *ready, options);
  return plan_report(ready->job, ready->plan, options, "", all_ranks(ranks, ready->plan, {}));
}

}  // namespace

ReportPointer compute_on_ranks(const Options& options) {
  check_compute_options(options);
  check_rank_options(options);
  Ranks ranks;
  ReportPointer report;
  try {
    report = run_rank(ranks, options);
  } catch (...) {
    if (ranks.all_failed()) throw;
    // The other ranks wait for this one, and together() has told them nothing.
    const Error error = handled_error("lower --memory-limit");
    say(options, "error", cat("rank ", ranks.rank(), ": ", error));
    ranks.abort(static_cast<int>(error.kind()));
  }
  if (ranks.rank() > 0) throw SilentEnd{};
  return report;
}

}  // namespace convgrad::cli
