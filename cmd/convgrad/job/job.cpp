// job.cpp - see job.hpp.
#include "job/job.hpp"

#include "base/clock.hpp"
#include "options/arguments.hpp"
#include "options/attributes.hpp"
#include "options/made_problem.hpp"
#include "report/progress.hpp"

namespace convgrad::cli {

std::optional<Backend> named_backend(const ExecutionOptions& execution) {
  const std::string& name = execution.backend;
  check_known("--backend", name, {"auto", "cpu", "cuda", "reference"});
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
  const WgradProblem asked = problem_of_line(options);
  WgradProblem made = make_problem(x, dy, parse_problem(describe(asked)).attributes);
  if (made == asked) return made;
  bad_input("--problem: the tensors are ", describe(made), ", expected ", describe(asked));
}

// Decides what auto is. The driver is asked nothing for a job that is too small for a device.
void choose_backend(Job& job, int device) {
  const DeviceRule rule = device_rule(job.problem);
  job.backend_reason = rule.sentence;
  if (!rule.worth_it) return;
  const auto why_not = [&]() -> std::optional<Error> {
    const Feasible<Device> found = find_cuda_device(device);
    if (!found) return found.why_not();
    job.device = *found;
    PlanOptions options;  // whether it has the memory at all
    options.backend = Backend::cuda;
    options.device = job.device;
    const Feasible<Plan> plan = find_plan(job.problem, this_machine(), options);
    if (!plan) return plan.why_not();
    return std::nullopt;
  }();
  if (why_not) {
    job.backend_reason += cat("; ", why_not->what());
  } else {
    job.backend = Backend::cuda;
  }
}

}  // namespace

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
  const bool is_hashed =
      !options.json.empty() && !options.execution.dry_run && !options.execution.list_algorithms;
  job.tensors = {{"input", tensor_report(o.input, job.x->header(), is_hashed)},
                 {"out_backprop", tensor_report(o.out_backprop, job.dy->header(), is_hashed)}};
  job.x->widen_to(job.problem.dtype);
  job.dy->widen_to(job.problem.dtype);
  if (!backend) choose_backend(job, options.execution.device.value_or(0));
  return job;
}

Timing run_job(Job& job, const Plan& plan, BlockSum* gradient, BlockSum* check) {
  Timing timing;
  const bool by_kernel = plan.cpu() || plan.cuda();
  Progress line(check != nullptr || !by_kernel ? "reference" : "gradient");
  const auto show = [&](double fraction) {
    if (job.on_progress) {
      job.on_progress(fraction);
    } else {
      line.show(fraction);
    }
  };
  if (plan.schedule.blocks.axis > 0) {  // blocks of rows overlap, and a stream goes by only once
    timing.read_s = timing.total_s = seconds_of([&] {
      job.x->hold();
      job.dy->hold();
    });
  }
  const auto convert_seconds = [&] { return job.x->convert_seconds() + job.dy->convert_seconds(); };
  const double converted_before = convert_seconds();
  NpySource source(*job.x, *job.dy);
  const double blocks = static_cast<double>(plan.schedule.blocks.count);
  const auto add = [&](BlockSum& sum, const Block& block, std::int64_t index) {
    sum.add(block, index, [&](std::int64_t done, std::int64_t total) {
      const double part = static_cast<double>(done) / static_cast<double>(total);
      show((static_cast<double>(index) + part) / blocks);
    });
  };
  double& gradient_s = by_kernel ? timing.kernel_s : timing.reference_s;
  stream_blocks(
      plan, source,
      [&](const Block& block, std::int64_t index) {
        if (gradient) gradient_s += seconds_of([&] { add(*gradient, block, index); });
        if (check) timing.reference_s += seconds_of([&] { add(*check, block, index); });
      },
      timing, [&](std::int64_t done, std::int64_t) { show(static_cast<double>(done) / blocks); });
  timing.convert_s = convert_seconds() - converted_before;
  timing.read_s -= timing.convert_s;
  return timing;
}

}  // namespace convgrad::cli
