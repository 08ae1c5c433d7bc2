// job.cpp - see job.hpp.
#include "job/job.hpp"

#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <iomanip>

#include "base/clock.hpp"
#include "base/format_bytes.hpp"
#include "base/suggest.hpp"
#include "convgrad/device.hpp"
#include "convgrad/reference.hpp"
#include "convgrad/tensor_name.hpp"
#include "options/arguments.hpp"
#include "report/progress.hpp"

namespace convgrad::cli {
namespace {

void read_filter_sizes(const Words& given, WgradAttributes& attributes) {
  const Words words = last_list(given);
  if (!is_file_name(words)) {
    attributes.filter_sizes = parse_numbers("--filter-sizes", given);
    return;
  }
  if (looks_like_a_flag(words[0])) {
    throw Error(ErrorKind::usage,
                cat("--filter-sizes: its value is missing, found '", words[0], "'"));
  }
  attributes.filter_sizes = read_npy_integers(words[0]);
  attributes.filter_sizes_name = cat("--filter-sizes (", words[0], ")");
  if (attributes.filter_sizes.empty()) {
    throw Error(ErrorKind::input,
                cat(attributes.filter_sizes_name, ": empty, expected 4 or 5 ", "integers"));
  }
}

}  // namespace

WgradAttributes attributes_of(const ProblemOptions& o) {
  WgradAttributes a;
  a.op = o.op;
  read_filter_sizes(o.filter_sizes, a);
  a.kernel = parse_numbers("--kernel", o.kernel);
  if (!o.filter_like.empty()) {
    NpyReader filter(o.filter_like);
    a.filter_like = filter.header().shape;
    filter.finish();  // its checksum, if it has one, speaks for the header too
    a.filter_like_name = cat("--filter-like (", o.filter_like, ")");
    if (a.filter_like.empty()) {
      throw Error(ErrorKind::input, cat(a.filter_like_name, ": no axes, expected 4 or 5"));
    }
  }
  a.strides = parse_numbers("--strides", o.strides);
  a.dilations = parse_numbers("--dilations", o.dilations);
  a.padding = o.padding;
  a.explicit_paddings = parse_numbers("--explicit-paddings", o.explicit_paddings);
  a.data_format = o.data_format;
  a.filter_format = o.filter_format;
  const std::vector<std::int64_t> groups = parse_numbers("--groups", o.groups);
  if (groups.size() > 1) throw Error(ErrorKind::usage, "--groups: expected one whole number");
  if (!groups.empty()) a.groups = groups[0];
  a.out_dtype = o.out_dtype;
  return a;
}

namespace {

TensorInfo tensor_info(const char* flag, const NpyReader& reader) {
  return {cat(flag, " (", reader.name(), ")"), float_dtype(reader.header(), reader.name()),
          reader.header().shape};
}

// A stream that cannot be read in whole images front to back is held in memory.
std::int64_t held_bytes(const NpyReader& reader, bool rows) {
  const bool held = reader.needs_whole_payload() || (rows && !reader.seekable());
  return held ? reader.header().payload_bytes : 0;
}

}  // namespace

std::optional<Backend> named_backend(const ExecutionOptions& execution) {
  const std::vector<std::string> names = {"auto", "cpu", "cuda", "reference"};
  const std::string& name = execution.backend;
  const std::string& algorithm = execution.algorithm;
  std::optional<Backend> backend;
  if (name == "cpu") backend = Backend::cpu;
  if (name == "cuda") backend = Backend::cuda;
  if (name == "reference") backend = Backend::reference;
  if (!backend && name != "auto") {
    throw Error(ErrorKind::usage, cat("--backend: '", name, "' is unknown, expected ",
                                      join_or(names), did_you_mean(name, names)));
  }
  if (algorithm == "auto") return backend;
  if (backend == Backend::reference) {
    throw Error(ErrorKind::usage, cat("--algorithm: ", algorithm,
                                      " is given with --backend reference, which has none"));
  }
  if (!backend) return is_device_kernel(algorithm) ? Backend::cuda : Backend::cpu;
  if (*backend == Backend::cpu && is_device_kernel(algorithm)) {
    throw Error(ErrorKind::usage, cat("--algorithm: ", algorithm,
                                      " is given with --backend cpu, but is one of cuda"));
  }
  return backend;
}

namespace {

// auto, for a known problem. Nothing is asked of the driver for a job that is too small for it.
void choose_backend(Job& job, int device) {
  const DeviceRule rule = device_rule(job.problem);
  job.backend = Backend::cpu;
  job.backend_reason = rule.sentence;
  if (!rule.worth_it) return;
  try {
    job.device = cuda_device(device);
    PlanOptions options;  // whether it has the memory at all
    options.device = job.device;
    make_plan(job.problem, this_machine(), options);
    job.backend = Backend::cuda;
  } catch (const Error& error) {
    job.backend_reason += cat("; ", error.what());
  }
}

}  // namespace

void check_op(const ProblemOptions& o) {
  if (o.op.empty()) {
    throw Error(ErrorKind::usage,
                "--op is missing, expected conv2d, depthwise or conv3d; see convgrad --help");
  }
  parse_op(o.op);
}

void check_required(const ProblemOptions& o) {
  check_op(o);
  if (o.input.empty())
    throw Error(ErrorKind::usage, "--input is missing, expected a .npy file or -");
  if (o.out_backprop.empty()) {
    throw Error(ErrorKind::usage, "--out-backprop is missing, expected a .npy file or -");
  }
  if (o.input == "-" && o.out_backprop == "-") {
    throw Error(ErrorKind::usage,
                "--input and --out-backprop are both -, expected one array on standard input");
  }
  if (o.filter_like == "-" && (o.input == "-" || o.out_backprop == "-")) {
    throw Error(ErrorKind::usage,
                "--filter-like: - is given twice, expected one array on standard input");
  }
}

Tolerance tolerance_of(const CriterionOptions& o) {
  const int given = int{o.rtol || o.atol} + int{o.max_ulp.has_value()} + int{o.bitwise};
  if (given > 1) {
    throw Error(ErrorKind::usage,
                "--rtol/--atol, --max-ulp and --bitwise exclude each other; give one of them");
  }
  Tolerance tolerance;
  if (o.rtol || o.atol) {
    tolerance.criterion = Criterion::tolerance;
    tolerance.rtol = o.rtol.value_or(0);
    tolerance.atol = o.atol.value_or(0);
  } else if (o.max_ulp) {
    tolerance.criterion = Criterion::max_ulp;
    tolerance.max_ulp = *o.max_ulp;
  } else if (o.bitwise) {
    tolerance.criterion = Criterion::bitwise;
  }
  return tolerance;
}

Job open_job(const Options& options, Json& report) {
  const ProblemOptions& o = options.problem;
  check_required(o);
  Job job;
  job.on_progress = options.on_progress;
  const std::optional<Backend> backend = named_backend(options.execution);
  if (backend) job.backend = *backend;
  if (backend == Backend::cuda) job.device = cuda_device(options.execution.device.value_or(0));
  const WgradAttributes attributes = attributes_of(o);
  job.x = std::make_unique<NpyReader>(o.input);
  job.dy = std::make_unique<NpyReader>(o.out_backprop);
  report["tensors"]["input"] = tensor_json(o.input, job.x->header());
  report["tensors"]["out_backprop"] = tensor_json(o.out_backprop, job.dy->header());
  job.problem = make_problem(tensor_info("--input", *job.x), tensor_info("--out-backprop", *job.dy),
                             attributes);
  if (!backend) choose_backend(job, options.execution.device.value_or(0));
  set_problem(report, job.problem);
  if (!options.json.empty() && !options.execution.dry_run && !options.execution.list_algorithms) {
    add_hash(report["tensors"]["input"]);
    add_hash(report["tensors"]["out_backprop"]);
  }
  return job;
}

Plan plan_job(const Job& job, const Options& options, bool with_reference, bool only_reference,
              const PlanOptions& more) {
  PlanOptions o = more;
  o.algorithm = options.execution.algorithm;
  if (o.threads == 0) o.threads = options.execution.threads;
  o.memory_limit_bytes = static_cast<std::int64_t>(
      std::min<std::uint64_t>(options.execution.memory_limit, std::uint64_t{1} << 62));
  o.with_reference = with_reference;
  o.only_reference = only_reference;
  if (job.backend == Backend::cuda && !only_reference) o.device = job.device;
  o.source_bytes = held_bytes(*job.x, false) + held_bytes(*job.dy, false);
  Plan plan = make_plan(job.problem, this_machine(), o);
  if (plan.blocks.axis > 0) {  // blocks of rows: a stream cannot be read in that order
    o.source_bytes = held_bytes(*job.x, true) + held_bytes(*job.dy, true);
    if (o.source_bytes > 0) plan = make_plan(job.problem, this_machine(), o);
  }
  return plan;
}

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

}  // namespace

std::string algorithm_table(const Job* job) {
  TextWriter text;
  const auto name = [&](std::string_view n) -> std::ostream& {
    return text << std::left << std::setw(27) << n;
  };
  if (job == nullptr) {
    for (const Kernel& kernel : kernels()) name(kernel.name) << kernel.summary << "\n";
    for (const DeviceKernel& kernel : device_kernels()) name(kernel.name) << kernel.summary << "\n";
    name("auto") << "the least estimated time for the problem\n";
    return text.str();
  }
  const WgradProblem& problem = job->problem;
  text << describe(problem) << "\n";
  if (job->backend == Backend::cuda) {
    const std::string_view best = choose_device_kernel(problem, job->device).name;
    for (const DeviceKernel& kernel : device_kernels()) {
      table_row(text, kernel.name == best, kernel.name, kernel.why_not(problem, job->device),
                kernel.estimated_seconds(problem), "a large device");
    }
    return text.str();
  }
  const std::string_view best = choose_kernel(problem, this_machine()).name;
  for (const Kernel& kernel : kernels()) {
    table_row(text, kernel.name == best, kernel.name, kernel.why_not(problem, this_machine()),
              kernel.estimated_seconds(problem), "one core");
  }
  for (const DeviceKernel& kernel : device_kernels()) {
    text << "  " << std::left << std::setw(27) << kernel.name << "with --backend cuda\n";
  }
  return text.str();
}

bool listed_algorithms(const Options& options, Json& report) {
  if (!options.execution.list_algorithms) return false;
  const bool has_problem = !options.problem.input.empty() && !options.problem.out_backprop.empty();
  std::string text;
  if (has_problem) {
    const Job job = open_job(options, report);
    text = algorithm_table(&job);
  } else {
    text = algorithm_table(nullptr);
  }
  for (const Kernel& kernel : kernels()) {
    report["algorithms"].push_back({{"name", kernel.name}, {"summary", kernel.summary}});
  }
  for (const DeviceKernel& kernel : device_kernels()) {
    report["algorithms"].push_back({{"name", kernel.name}, {"summary", kernel.summary}});
  }
  if (options.json != "-") std::fputs(text.c_str(), stdout);
  return true;
}

std::string plan_text(const Job& job, const Plan& plan, const std::string& algorithm) {
  const WgradProblem& pb = plan.problem;
  const Json work = work_json(pb);
  const auto bytes = [](std::int64_t n) { return format_bytes(static_cast<double>(n)); };
  TextWriter text;
  text << "problem    " << describe(pb) << "\n";
  text << "gradient   " << filter_format_name(pb) << " [";
  for (std::size_t i = 0; i < dw_shape(pb).size(); ++i) {
    text << (i > 0 ? "," : "") << dw_shape(pb)[i];
  }
  text << "] " << dtype_name(pb.out_dtype) << "\n";
  text << "plan       " << describe(plan) << "\n";
  text << "work       " << std::setprecision(4) << work["flops"].get<double>() << " FLOPs, "
       << format_bytes(work["bytes"].get<double>()) << " of tensors\n";
  text << "memory     " << bytes(plan.memory.total()) << ": partial sums "
       << bytes(plan.memory.partials) << ", blocks " << bytes(plan.memory.blocks) << ", workspaces "
       << bytes(plan.memory.workspaces) << ", reference " << bytes(plan.memory.reference)
       << ", streams " << bytes(plan.memory.sources) << ", output " << bytes(plan.memory.output)
       << ", program " << bytes(plan.memory.program) << "; limit " << bytes(plan.memory_limit_bytes)
       << "\n";
  if (plan.device_kernel != nullptr) {
    const DeviceMemory& need = plan.device_memory;
    text << "device     " << bytes(need.total()) << ": partial sums " << bytes(need.partials)
         << ", blocks " << bytes(need.buffers * (need.x_block + need.dy_block)) << ", rearranged "
         << bytes(need.packed) << "; limit " << bytes(need.limit) << "\n";
  }
  if (!job.backend_reason.empty()) {
    text << "backend    " << backend_name(plan) << ": " << job.backend_reason << "\n";
  }
  if (algorithm == "auto" && backend_name(plan) != "reference") {
    text << "algorithms\n" << algorithm_table(&job);
  }
  return text.str();
}

Timing run_job(Job& job, const Plan& plan, GradientSum* gradient, BlockSum* check) {
  Timing timing;
  Progress line(check != nullptr ? "reference" : "gradient");
  const auto show = [&](double fraction) {
    if (job.on_progress) {
      job.on_progress(fraction);
    } else {
      line.show(fraction);
    }
  };
  if (plan.blocks.axis > 0) {  // blocks of rows overlap, and a stream goes by only once
    timing.read_s = timing.total_s = seconds_of([&] {
      job.x->hold();
      job.dy->hold();
    });
  }
  const auto convert_seconds = [&] { return job.x->convert_seconds() + job.dy->convert_seconds(); };
  const double converted_before = convert_seconds();
  NpySource source(*job.x, *job.dy);
  const double blocks = static_cast<double>(plan.blocks.count);
  stream_blocks(
      plan, source,
      [&](const Block& block, std::int64_t index) {
        if (gradient != nullptr) {
          timing.kernel_s += seconds_of([&] { gradient->add(block, index); });
        }
        if (check != nullptr) {
          const auto start = Clock::now();
          check->add(block, [&](std::int64_t done, std::int64_t total) {
            const double part = static_cast<double>(done) / static_cast<double>(total);
            show((static_cast<double>(index) + part) / blocks);
          });
          timing.reference_s += seconds_since(start);
        }
      },
      timing, [&](std::int64_t done, std::int64_t) { show(static_cast<double>(done) / blocks); });
  timing.convert_s = convert_seconds() - converted_before;
  timing.read_s -= timing.convert_s;
  return timing;
}

void print_timing(const Plan& plan, const Timing& timing, double write_s) {
  const double kernel = timing.kernel_s + timing.reference_s;
  const double gflops = kernel > 0 ? flop_count(plan.problem) / kernel * 1e-9 : 0;
  std::fprintf(stderr, "%s\n%s\n", describe(plan.problem).c_str(), describe(plan).c_str());
  std::fprintf(
      stderr, "read %.2f ms, kernel %.2f ms (%.1f GFLOP/s), write %.2f ms, total %.2f ms\n",
      timing.read_s * 1e3, kernel * 1e3, gflops, write_s * 1e3, (timing.total_s + write_s) * 1e3);
}

std::string file_key(const std::string& path) {
  namespace fs = std::filesystem;
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    return S_ISREG(status.st_mode) ? cat(status.st_dev, ":", status.st_ino) : "";
  }
  std::error_code ignored;
  fs::path name = fs::absolute(path, ignored);
  constexpr int kMaxLinks = 40;                                           // as the kernel
  for (int i = 0; i < kMaxLinks && fs::is_symlink(name, ignored); ++i) {  // to nothing yet
    name = name.parent_path() / fs::read_symlink(name, ignored);
  }
  return fs::weakly_canonical(name, ignored).string();
}

bool same_file(const std::string& file, const std::string& tensor) {
  if (file.empty() || tensor.empty() || file == "-" || tensor == "-") return false;
  const std::string key = file_key(file);
  return !key.empty() && key == file_key(split_tensor_name(tensor).file);
}

void check_report_replaces_nothing(const Options& options) {
  const ProblemOptions& o = options.problem;
  const std::pair<const char*, const std::string*> files[] = {
      {"--output", &o.output},
      {"--input", &o.input},
      {"--out-backprop", &o.out_backprop},
      {"--filter-like", &o.filter_like},
      {"--result", &options.verify.result},
      {"--golden", &options.verify.golden},
      {"GOT", &options.compare.got},
      {"WANT", &options.compare.want},
      {"--save-diff", &options.compare.save_diff},
      {"--heatmap", &options.compare.heatmap},
      {"--suite", &options.bench.suite},
      {"--baseline", &options.bench.baseline},
      {"--config", &options.config}};
  for (const auto& [flag, path] : files) {
    if (same_file(options.json, *path)) {
      throw Error(ErrorKind::usage, cat("--json=", options.json, " is the ", flag,
                                        " file too; name another file for the report"));
    }
  }
  if (!options.json.empty()) check_report_file(options.json);
}

namespace {

// A tensor may be replaced by the gradient that was made of it, an archive of several may not.
void check_archives_are_kept(const Options& options) {
  const ProblemOptions& o = options.problem;
  const Words sizes = last_list(o.filter_sizes);
  const std::string sizes_file = is_file_name(sizes) ? sizes.front() : "";
  const std::pair<const char*, const std::string*> tensors[] = {
      {"--filter-sizes", &sizes_file},
      {"--input", &o.input},
      {"--out-backprop", &o.out_backprop},
      {"--filter-like", &o.filter_like},
      {"--golden", &options.verify.golden}};
  for (const auto& [flag, argument] : tensors) {
    if (split_tensor_name(*argument).member && same_file(o.output, *argument)) {
      throw Error(ErrorKind::usage, cat("--output: ", o.output, " is the archive of ", flag,
                                        "; name another file for the gradient"));
    }
  }
}

}  // namespace

void check_stdout_is_free(const Options& options) {
  check_archives_are_kept(options);
  if (options.problem.output == "-" && options.json == "-") {
    throw Error(ErrorKind::usage,
                "--json and --output - both write to standard output; use --json=FILE");
  }
}

}  // namespace convgrad::cli
