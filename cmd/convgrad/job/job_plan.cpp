// job_plan.cpp - see job_plan.hpp.
#include "job/job_plan.hpp"

#include <cstdio>
#include <iomanip>

#include "base/format_bytes.hpp"

namespace convgrad::cli {
namespace {

void table_row(std::ostream& text, bool best, std::string_view name, const std::string& reason,
               double seconds, const char* where) {
  text << (best ? "* " : "  ") << std::left << std::setw(27) << name;
  if (reason.empty()) {
    text << "estimated " << std::setprecision(3) << seconds * 1e3 << " ms on " << where << "\n";
  } else {
    text << reason << "\n";
  }
}

// Why a kernel computes nothing on this machine: what it says here of a problem that it would
// compute with all instruction sets.
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

std::string algorithm_table(const Job& job) {
  TextWriter text;
  text << describe(job.problem) << "\n";
  const WgradProblem problem = with_channels(job.problem);
  if (job.backend == Backend::cuda) {
    const std::string_view best = choose_device_kernel(problem, job.device).name;
    for (const DeviceKernel& kernel : device_kernels()) {
      table_row(text, kernel.name == best, kernel.name, kernel.why_not(problem, job.device),
                kernel.estimated_seconds(problem, job.device), "a large device");
    }
    return text.str();
  }
  const std::string_view best = choose_kernel(problem, this_machine()).name;
  for (const Kernel& kernel : kernels()) {
    table_row(text, kernel.name == best, kernel.name, kernel.why_not(problem, this_machine()),
              estimated_seconds(kernel, problem, this_machine()), "one core");
  }
  for (const DeviceKernel& kernel : device_kernels()) {
    text << "  " << std::left << std::setw(27) << kernel.name << "with --backend cuda\n";
  }
  return text.str();
}

Json algorithms_json(const CudaInfo* cuda) {
  Json all = Json::array();
  for (const Kernel& kernel : kernels()) {
    all.push_back({{"name", kernel.name}, {"summary", kernel.summary}});
    const std::string why_not = why_not_here(kernel);
    if (!why_not.empty()) all.back()["why_not"] = why_not;
  }
  for (const DeviceKernel& kernel : device_kernels()) {
    all.push_back({{"name", kernel.name}, {"summary", kernel.summary}});
    if (cuda != nullptr && cuda->devices.empty()) all.back()["why_not"] = cuda->why_none;
  }
  return all;
}

std::string algorithms_text(const Json& algorithms) {
  TextWriter text;
  const auto row = [&](const std::string& name, const std::string& summary) {
    text << std::left << std::setw(27) << name << summary << "\n";
  };
  for (const Json& a : algorithms) {
    const std::string why_not = a.value("why_not", "");
    row(a["name"], cat(a["summary"].get<std::string>(),
                       why_not.empty() ? "" : cat(" (not here: ", why_not, ")")));
  }
  row("auto", "the least estimated time for the problem");
  return text.str();
}

bool listed_algorithms(const Options& options, Json& report) {
  if (!options.execution.list_algorithms) return false;
  const bool has_problem = !options.problem.input.empty() && !options.problem.out_backprop.empty();
  report["algorithms"] = algorithms_json();
  const std::string text = has_problem ? algorithm_table(open_job(options, report))
                                       : algorithms_text(report["algorithms"]);
  if (options.json != "-") std::fputs(text.c_str(), stdout);
  return true;
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

void print_timing(const Plan& plan, const Timing& timing, double write_s) {
  const double kernel = timing.kernel_s + timing.reference_s;
  const double gflops = kernel > 0 ? flop_count(plan.problem) / kernel * 1e-9 : 0;
  std::fprintf(stderr, "%s\n%s\n", describe(plan.problem).c_str(), describe(plan).c_str());
  std::fprintf(
      stderr, "read %.2f ms, kernel %.2f ms (%.1f GFLOP/s), write %.2f ms, total %.2f ms\n",
      timing.read_s * 1e3, kernel * 1e3, gflops, write_s * 1e3, (timing.total_s + write_s) * 1e3);
}

}  // namespace convgrad::cli
