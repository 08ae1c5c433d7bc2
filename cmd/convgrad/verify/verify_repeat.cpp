// verify_repeat.cpp - see verify_repeat.hpp.
#include "verify/verify_repeat.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace convgrad::cli {
namespace {

std::vector<double> compute_again(Job& job, const Plan& plan) {
  TaskPool pool(plan.threads);
  const std::unique_ptr<BlockSum> sum = make_sum(plan, pool);
  run_job(job, plan, sum.get(), nullptr);
  const double* const dw = sum->finish();
  std::vector<double> values(dw, dw + job.problem.dw_count());
  for (double& value : values) value = rounded(job.problem.out_dtype, value);
  return values;
}

std::string numbers_text(const std::set<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t n : numbers) text += cat(text.empty() ? "" : ",", n);
  return text;
}

// Threads 1, 2, 3, ... and ever smaller blocks.
PlanOptions varied(const Job& job, const Options& options, std::int64_t run) {
  PlanOptions planned = plan_options(job, options);
  if (options.execution.threads == 0) {
    const int most = std::max(4, 2 * this_machine().threads);
    planned.threads = 1 + static_cast<int>((run - 1) % most);
  }
  if (options.execution.memory_limit == 0) {
    const std::int64_t bytes = job.x->header().payload_bytes + job.dy->header().payload_bytes;
    planned.block_bytes = std::max<std::int64_t>(bytes / (2 * run), 1);
  }
  return planned;
}

}  // namespace

Notes repeat_check(Job& job, const Options& options, const Judged& judged) {
  const std::int64_t runs = *options.verify.repeat_check;
  std::set<std::int64_t> threads, blocks;
  Json differing = Json::array();
  Notes notes;
  const auto note_plan = [&](const Plan& plan) {
    threads.insert(plan.threads);
    blocks.insert(plan.schedule.blocks.count);
  };
  note_plan(plan_check(job, options, true));
  for (std::int64_t run = 1; run < runs; ++run) {
    const Plan plan = plan_job(job, varied(job, options, run));
    note_plan(plan);
    const std::vector<double> again = compute_again(job, plan);
    std::int64_t count = 0, first = -1;
    for (std::size_t i = 0; i < again.size(); ++i) {
      if (same_bits(again[i], judged.first_run[i])) continue;
      if (count++ == 0) first = static_cast<std::int64_t>(i);
    }
    if (count == 0) continue;
    const auto at = static_cast<std::size_t>(first);
    notes.failed = true;
    notes.lines.push_back(cat(
        "repeat check: run ", run + 1, " (", plan.threads, " threads, ", plan.schedule.blocks.count,
        " blocks) differs in ", count, " elements, first at ", element_text(job.problem, first),
        ": ", general(again[at], 17), ", in run 1 ", general(judged.first_run[at], 17)));
    differing.push_back({{"run", run + 1},
                         {"threads", plan.threads},
                         {"blocks", plan.schedule.blocks.count},
                         {"count", count},
                         {"first", element_position(job.problem, first)}});
  }
  if (!notes.failed) {
    notes.lines.push_back(cat("repeat check: ", runs, " runs with ", numbers_text(threads),
                              " threads and ", numbers_text(blocks), " blocks: every bit equal"));
  }
  notes.json["repeat_check"] = {
      {"runs", runs}, {"threads", threads}, {"blocks", blocks}, {"differing", differing}};
  return notes;
}

}  // namespace convgrad::cli
