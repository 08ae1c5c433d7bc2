// job_plan.cpp - see job_plan.hpp.
#include "job/job_plan.hpp"

#include <cstdio>
#include <iomanip>

#include "base/messages.hpp"

namespace convgrad::cli {
namespace {

void table_row(std::ostream& text, bool best, std::string_view name, std::string_view what) {
  text << (best ? "* " : "  ") << std::left << std::setw(27) << name << what << "\n";
}

std::string estimate_of(const Kernel& kernel, const WgradProblem& problem) {
  TextWriter text;
  text << "estimated " << std::setprecision(3)
       << estimated_seconds(kernel, problem, this_machine()) * 1e3 << " ms on one core";
  return text.str();
}

// Returns why a kernel computes nothing on this machine: what it says here of a problem that it
// would compute with all instruction sets.
std::string why_not_here(const Kernel& kernel) {
  Machine every = this_machine();
  every.instruction_sets = known_instruction_sets();
  for (const char* op : {"conv2d", "depthwise"}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      const TensorInfo tensor = {"", dtype, {1, 8, 8, 64}};
      WgradAttributes attributes;
      attributes.op = op;
      attributes.kernel = {3};
      attributes.padding = "SAME";
      const WgradProblem problem = make_problem(tensor, tensor, attributes);
      if (kernel.why_not(problem, every).empty()) return kernel.why_not(problem, this_machine());
    }
  }
  return "";
}

// Returns the table of algorithms: what each makes of the job's problem.
std::string algorithm_table(const Job& job) {
  TextWriter text;
  text << describe(job.problem) << "\n";
  const WgradProblem problem = with_channels(job.problem);
  if (job.backend == Backend::cuda) {
    const std::string_view best = choose_device_kernel(problem, job.device).name;
    for (const DeviceKernel& kernel : device_kernels()) {
      const std::string why_not = kernel.why_not(problem, job.device);
      const bool by_name = kernel.auto_takes == nullptr;
      table_row(text, kernel.name == best, kernel.name,
                !why_not.empty() ? why_not
                : by_name        ? "by name only"
                                 : "available");
    }
    return text.str();
  }
  const std::string_view best = choose_kernel(problem, this_machine()).name;
  for (const Kernel& kernel : kernels()) {
    const std::string why_not = kernel.why_not(problem, this_machine());
    table_row(text, kernel.name == best, kernel.name,
              why_not.empty() ? estimate_of(kernel, problem) : why_not);
  }
  for (const DeviceKernel& kernel : device_kernels()) {
    text << "  " << std::left << std::setw(27) << kernel.name << "with --backend cuda\n";
  }
  return text.str();
}

struct AlgorithmsReport final : Report {
  std::string text() const override { return lines; }
  Json json() const override {
    Json json = Json::object();
    if (problem) {
      json["tensors"] = tensors_json(tensors);
      json.update(problem_fields(*problem));
    }
    json["algorithms"] = algorithms_json(rows);
    return json;
  }

  std::vector<AlgorithmRow> rows = all_algorithms();
  Tensors tensors;
  std::optional<WgradProblem> problem;
  std::string lines;
};

}  // namespace

PlanOptions plan_options(const Options& options) {
  PlanOptions plan;
  plan.threads = options.execution.threads;
  plan.memory_limit_bytes = static_cast<std::int64_t>(
      std::min<std::uint64_t>(options.execution.memory_limit, std::uint64_t{1} << 62));
  return plan;
}

PlanOptions plan_options(const Job& job, const Options& options) {
  PlanOptions plan = plan_options(options);
  plan.backend = job.backend;
  plan.device = job.device;
  plan.algorithm = options.execution.algorithm;
  return plan;
}

Plan plan_job(const Job& job, const PlanOptions& options) {
  return plan_for_files(job.problem, *job.x, *job.dy, options);
}

std::vector<AlgorithmRow> all_algorithms(const CudaInfo* cuda) {
  std::vector<AlgorithmRow> rows;
  for (const Kernel& kernel : kernels()) {
    rows.push_back({kernel.name, kernel.summary, why_not_here(kernel)});
  }
  const bool is_missing = cuda != nullptr && cuda->devices.empty();
  for (const DeviceKernel& kernel : device_kernels()) {
    rows.push_back({kernel.name, kernel.summary, is_missing ? cuda->why_none : ""});
  }
  return rows;
}

Json algorithms_json(const std::vector<AlgorithmRow>& rows) {
  Json all = Json::array();
  for (const auto& [name, summary, why_not] : rows) {
    all.push_back({{"name", name}, {"summary", summary}});
    if (!why_not.empty()) all.back()["why_not"] = why_not;
  }
  return all;
}

std::string algorithms_text(const std::vector<AlgorithmRow>& rows) {
  TextWriter text;
  text << std::left;
  for (const auto& [name, summary, why_not] : rows) {
    text << std::setw(27) << name << summary;
    if (!why_not.empty()) text << " (not here: " << why_not << ")";
    text << "\n";
  }
  text << std::setw(27) << "auto"
       << "the least estimated time for the problem\n";
  return text.str();
}

ReportPointer listed_algorithms(const Options& options) {
  if (!options.execution.list_algorithms) return nullptr;
  auto report = std::make_unique<AlgorithmsReport>();
  if (options.problem.input.empty() || options.problem.out_backprop.empty()) {
    report->lines = algorithms_text(report->rows);
    return report;
  }
  const Job job = open_job(options);
  report->tensors = job.tensors;
  report->problem = job.problem;
  report->lines = algorithm_table(job);
  return report;
}

Json PlanReport::json() const {
  Json json = {{"tensors", tensors_json(tensors)}};
  json.update(problem_fields(plan.problem));
  json["execution"] = plan_json(plan);
  json.update(more);
  return json;
}

std::string PlanReport::in_short() const {
  return cat(describe(plan.problem), ": ", algorithm_name(plan), ", ",
             format_bytes(static_cast<double>(plan.memory.total())));
}

std::string plan_text(const Job& job, const Plan& plan, const std::string& algorithm) {
  const WgradProblem& pb = plan.problem;
  const Json work = work_json(pb);
  const auto bytes = [](std::int64_t n) { return format_bytes(static_cast<double>(n)); };
  TextWriter text;
  text << "problem    " << describe(pb) << "\n";
  text << "gradient   " << filter_format_name(pb) << " " << bracketed(dw_shape(pb)) << " "
       << dtype_name(pb.out_dtype) << "\n";
  text << "plan       " << describe(plan) << "\n";
  text << "work       " << std::setprecision(4) << work["flops"].get<double>() << " FLOPs, "
       << format_bytes(work["bytes"].get<double>()) << " of tensors\n";
  text << "memory     " << bytes(plan.memory.total()) << ": partial sums "
       << bytes(plan.memory.partials) << ", blocks " << bytes(plan.memory.blocks) << ", workspaces "
       << bytes(plan.memory.workspaces) << ", reference " << bytes(plan.memory.reference)
       << ", streams " << bytes(plan.memory.sources) << ", output " << bytes(plan.memory.output)
       << ", program " << bytes(plan.memory.program) << "; limit " << bytes(plan.memory_limit_bytes)
       << "\n";
  if (plan.cuda()) {
    const DeviceMemory& need = plan.cuda()->memory;
    text << "device     " << bytes(need.total()) << ": partial sums " << bytes(need.partials)
         << ", blocks " << bytes(need.buffers * (need.x_block + need.dy_block)) << ", rearranged "
         << bytes(need.packed) << "; limit " << bytes(need.limit) << "\n";
  }
  if (!job.backend_reason.empty()) {
    text << "backend    " << backend_name(plan) << ": " << job.backend_reason << "\n";
  }
  if (algorithm == "auto" && backend_name(plan) != "reference") {
    text << "algorithms\n" << algorithm_table(job);
  }
  return text.str();
}

void print_timing(const Plan& plan, const JobTiming& job) {
  const Timing& timing = job.timing;
  const double kernel = timing.kernel_s + timing.reference_s;
  const double gflops = kernel > 0 ? flop_count(plan.problem) / kernel * 1e-9 : 0;
  std::fprintf(stderr, "%s\n%s\n", describe(plan.problem).c_str(), describe(plan).c_str());
  std::fprintf(stderr,
               "read %.2f ms, kernel %.2f ms (%.1f GFLOP/s), write %.2f ms, total %.2f ms\n",
               timing.read_s * 1e3, kernel * 1e3, gflops, job.write_s * 1e3,
               (timing.total_s + job.write_s) * 1e3);
}

}  // namespace convgrad::cli
