// share_node.cpp - see share_node.hpp.
#include "compute/share_node.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "job/job_plan.hpp"

namespace convgrad::cli {
namespace {

// The processors that this process may run on, as text.
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

}  // namespace

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

void share_node(const Ranks& ranks, Options& options) {
  const std::string node = host_name(), same = cat(node, " ", processors());
  const auto sharing = [&](const std::string& text) {
    const std::vector<std::string> all = ranks.gather(text);
    return std::ranges::count(all, all[static_cast<std::size_t>(ranks.rank())]);
  };
  const auto by_processors = sharing(same);
  const auto by_node = sharing(node);
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
    if (devices > 0) execution.device = ranks.local_rank() % static_cast<int>(devices);
  }
}

}  // namespace convgrad::cli
