#include "job/job.hpp"

#include <cstdio>

#include "options/arguments.hpp"
#include "options/problems.hpp"

namespace convgrad::cli {
namespace {

// Opens a tensor. `dtype` is what the user says that it has, or "".
std::unique_ptr<NpyReader> open_tensor(const std::string& path, const char* flag,
                                       const std::string& dtype) {
  auto reader = std::make_unique<NpyReader>(path);
  if (!dtype.empty()) reader->take_for(parse_stored_dtype(flag, dtype), flag);
  return reader;
}

TensorInfo tensor_info(const char* flag, const NpyReader& reader) {
  return {cat(flag, " (", reader.name(), ")"),
          float_dtype(reader.header(), reader.name(), cat(flag, "-dtype")), reader.header().shape};
}

// Makes the problem by the attributes of the options, or by the line that says them all, from which
// tensors may not differ.
WgradProblem problem_of(const Options& options, const TensorInfo& x, const TensorInfo& dy) {
  if (options.problem.line.empty()) return make_problem(x, dy, attributes_of(options.problem));
  const WgradProblem asked = problem_of_line(options).problem;
  WgradProblem made = make_problem(x, dy, parse_problem(describe(asked)).attributes);
  if (made == asked) return made;
  bad_input("--problem: the tensors are ", describe(made), ", expected ", describe(asked));
}

// numpy makes float64 where nobody says float32, so one tensor alone of it is likely a slip.
void note_float64(const Options& options, const WgradProblem& problem) {
  const bool is_mixed = problem.dtype == DType::f64 && problem.x_dtype != problem.dy_dtype;
  if (!is_mixed || options.on_progress) return;  // a batch has many
  say(options, "note",
      cat("--input is ", dtype_name(problem.x_dtype), " and --out-backprop ",
          dtype_name(problem.dy_dtype), ", so the gradient is computed in float64"));
}

// Decides what auto is. The driver is asked nothing for a job that is too small for a device.
void choose_backend(Job& job, int device) {
  const DeviceRule rule = device_rule(job.problem);
  job.backend_reason = rule.sentence;
  if (!rule.worth_it) return;
  const Feasible<Device> found = find_cuda_device(device);
  if (found) {
    job.device = *found;
    const PlanOptions options = {.backend = Backend::cuda, .device = job.device};
    const Feasible<Plan> plan = find_plan(job.problem, this_machine(), options);  // by its memory
    if (!plan) job.backend_reason += cat("; ", plan.why_not());
    if (plan) job.backend = Backend::cuda;
  } else {
    job.backend_reason += cat("; ", found.why_not());
  }
}

std::string table_row(bool best, std::string_view name, std::string_view what) {
  return cat(best ? "* " : "  ", padded(name, 27), what, "\n");
}

std::string estimate_of(const Kernel& kernel, const WgradProblem& problem) {
  const double seconds = estimated_seconds(kernel, problem, this_machine());
  return cat("estimated ", general(seconds * 1e3, 3), " ms on one core");
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
  std::string text = describe(job.problem) + "\n";
  const WgradProblem problem = with_channels(job.problem);
  if (job.backend == Backend::cuda) {
    const std::string_view best = find_device_kernel(problem, job.device).or_throw()->name;
    for (const DeviceKernel& kernel : device_kernels()) {
      const std::string why_not = kernel.why_not(problem, job.device);
      const bool by_name = kernel.auto_takes == nullptr;
      text += table_row(kernel.name == best, kernel.name,
                        !why_not.empty() ? why_not
                        : by_name        ? "by name only"
                                         : "available");
    }
    return text;
  }
  const std::string_view best = find_kernel(problem, this_machine()).or_throw()->name;
  for (const Kernel& kernel : kernels()) {
    const std::string why_not = kernel.why_not(problem, this_machine());
    text += table_row(kernel.name == best, kernel.name,
                      why_not.empty() ? estimate_of(kernel, problem) : why_not);
  }
  for (const DeviceKernel& kernel : device_kernels()) {
    text += table_row(false, kernel.name, "with --backend cuda");
  }
  return text;
}

}  // namespace

std::optional<Backend> named_backend(const ExecutionOptions& execution) {
  const std::string& name = execution.backend;
  const std::string& algorithm = execution.algorithm;
  std::optional<Backend> backend;
  if (name == "cpu") backend = Backend::cpu;
  if (name == "cuda") backend = Backend::cuda;
  if (name == "reference") backend = Backend::reference;
  if (algorithm == "auto") return backend;
  if (backend == Backend::reference) {
    misuse("--algorithm: ", algorithm, " is given with --backend reference, which has none");
  }
  if (!backend) return is_device_kernel(algorithm) ? Backend::cuda : Backend::cpu;
  if (*backend == Backend::cpu && is_device_kernel(algorithm)) {
    misuse("--algorithm: ", algorithm, " is given with --backend cpu, but is one of cuda");
  }
  return backend;
}

Job open_job(const Options& options) {
  const ProblemOptions& o = options.problem;
  check_required(o);
  Job job;
  job.on_progress = options.on_progress;
  const std::optional<Backend> backend = named_backend(options.execution);
  if (backend) job.backend = *backend;
  if (backend == Backend::cuda) job.device = cuda_device(options.execution.device.value_or(0));
  job.x = open_tensor(o.input, "--input-dtype", o.input_dtype);
  job.dy = open_tensor(o.out_backprop, "--out-backprop-dtype", o.out_backprop_dtype);
  job.problem =
      problem_of(options, tensor_info("--input", *job.x), tensor_info("--out-backprop", *job.dy));
  const std::string_view dtype = dtype_name(job.problem.dtype);
  if (!o.dtype.empty() && o.dtype != dtype) {
    bad_input("dtype: the tensors give ", dtype, ", expected ", o.dtype);
  }
  note_float64(options, job.problem);
  const bool is_hashed =
      !options.json.empty() && !options.execution.dry_run && !options.execution.list_algorithms;
  job.tensors = {{"input", tensor_report(o.input, job.x->header(), is_hashed)},
                 {"out_backprop", tensor_report(o.out_backprop, job.dy->header(), is_hashed)}};
  job.x->widen_to(job.problem.dtype);
  job.dy->widen_to(job.problem.dtype);
  if (!backend) choose_backend(job, options.execution.device.value_or(0));
  return job;
}

Timing run_blocks(const Plan& plan, BlockSource& source, BlockSum* gradient, BlockSum* check,
                  const std::function<void(double)>& show) {
  Timing timing;
  double& gradient_s = plan.cpu() || plan.cuda() ? timing.kernel_s : timing.reference_s;
  const double blocks = static_cast<double>(plan.schedule.blocks.count);
  const auto add = [&](BlockSum& sum, const Block& block, std::int64_t index) {
    sum.add(block, index, [&](std::int64_t done, std::int64_t total) {
      const double part = static_cast<double>(done) / static_cast<double>(total);
      show((static_cast<double>(index) + part) / blocks);
    });
  };
  stream_blocks(
      plan, source,
      [&](const Block& block, std::int64_t index) {
        if (gradient) gradient_s += seconds_of([&] { add(*gradient, block, index); });
        if (check) timing.reference_s += seconds_of([&] { add(*check, block, index); });
      },
      timing, [&](std::int64_t done, std::int64_t) { show(static_cast<double>(done) / blocks); });
  return timing;
}

Timing run_job(Job& job, const Plan& plan, BlockSum* gradient, BlockSum* check) {
  const bool by_kernel = plan.cpu() || plan.cuda();
  Progress line(check != nullptr || !by_kernel ? "reference" : "gradient");
  double hold_s = 0;
  if (plan.schedule.blocks.axis > 0) {  // blocks of rows overlap, and a stream goes by only once
    hold_s = seconds_of([&] {
      job.x->hold();
      job.dy->hold();
    });
  }
  const auto convert_seconds = [&] { return job.x->convert_seconds() + job.dy->convert_seconds(); };
  const double converted_before = convert_seconds();
  NpySource source(*job.x, *job.dy);
  Timing timing = run_blocks(plan, source, gradient, check, [&](double fraction) {
    job.on_progress ? job.on_progress(fraction) : line.show(fraction);
  });
  timing.convert_s = convert_seconds() - converted_before;
  timing.read_s += hold_s - timing.convert_s;
  timing.total_s += hold_s;
  return timing;
}

PlanOptions plan_options(const Options& options) {
  PlanOptions plan;
  plan.threads = options.execution.threads;
  plan.memory_limit_bytes = static_cast<std::int64_t>(options.execution.memory_limit);
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
  std::string text;
  for (const auto& [name, summary, why_not] : rows) {
    text += cat(padded(name, 27), summary);
    if (!why_not.empty()) text += cat(" (not here: ", why_not, ")");
    text += "\n";
  }
  return cat(text, padded("auto", 27), "the least estimated time for the problem\n");
}

ReportPointer listed_algorithms(const Options& options) {
  if (!options.execution.list_algorithms) return nullptr;
  const std::vector<AlgorithmRow> rows = all_algorithms();
  std::string lines = algorithms_text(rows);
  Json fields = Json::object();
  if (!options.problem.input.empty() && !options.problem.out_backprop.empty()) {
    const Job job = open_job(options);
    lines = algorithm_table(job);
    fields["tensors"] = tensors_json(job.tensors);
    fields.update(problem_fields(job.problem));
  }
  fields["algorithms"] = algorithms_json(rows);
  return std::make_unique<PlainReport>(std::move(lines), std::move(fields));
}

Json plan_fields(const Tensors& tensors, const Plan& plan, const Json& more) {
  Json json = {{"tensors", tensors_json(tensors)}};
  json.update(problem_fields(plan.problem));
  json["execution"] = plan_json(plan);
  json.update(more);
  return json;
}

ReportPointer plan_report(const Job& job, const Plan& plan, const Options& options,
                          const std::string& more_lines, const Json& more) {
  const WgradProblem& pb = plan.problem;
  const Json work = work_json(pb);
  std::string text =
      cat("problem    ", describe(pb), "\ngradient   ", filter_format_name(pb), " ",
          bracketed(dw_shape(pb)), " ", dtype_name(pb.out_dtype), "\nplan       ", describe(plan),
          "\nwork       ", general(work["flops"].get<double>(), 4), " FLOPs, ",
          format_bytes(work["bytes"].get<double>()), " of tensors\nmemory     ",
          describe(plan.memory), "; limit ", format_bytes(plan.memory_limit_bytes), "\n");
  if (plan.cuda()) {
    const DeviceMemory& need = plan.cuda()->memory;
    text += cat("device     ", describe(need), "; limit ", format_bytes(need.limit), "\n");
  }
  if (!job.backend_reason.empty()) {
    text += cat("backend    ", backend_name(plan), ": ", job.backend_reason, "\n");
  }
  if (options.execution.algorithm == "auto" && (plan.cpu() || plan.cuda())) {
    text += "algorithms\n" + algorithm_table(job);
  }
  return std::make_unique<PlainReport>(
      text + more_lines, plan_fields(job.tensors, plan, more),
      cat(describe(pb), ": ", algorithm_name(plan), ", ", format_bytes(plan.memory.total())));
}

void print_timing(const Plan& plan, const JobTiming& job) {
  const Timing& timing = job.timing;
  const double kernel = job.gradient_s();
  const double gflops = kernel > 0 ? flop_count(plan.problem) / kernel * 1e-9 : 0;
  std::fprintf(stderr, "%s\n%s\n", describe(plan.problem).c_str(), describe(plan).c_str());
  std::fprintf(stderr, "read %.2f ms, kernel %.2f ms (%.1f GFLOP/s)", timing.read_s * 1e3,
               kernel * 1e3, gflops);
  if (timing.kernel_s > 0 && timing.reference_s > 0) {
    std::fprintf(stderr, ", reference %.2f ms", timing.reference_s * 1e3);
  }
  std::fprintf(stderr, ", write %.2f ms, total %.2f ms\n", job.write_s * 1e3,
               (timing.total_s + job.write_s) * 1e3);
}

}  // namespace convgrad::cli
