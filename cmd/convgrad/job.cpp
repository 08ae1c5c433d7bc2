// job.cpp - see job.hpp.
#include "job.hpp"

#include <cstdio>
#include <filesystem>
#include <iomanip>

#include "convgrad/clock.hpp"
#include "convgrad/device.hpp"
#include "convgrad/reference.hpp"
#include "convgrad/suggest.hpp"
#include "convgrad/tensor_name.hpp"
#include "progress.hpp"

namespace convgrad::cli {
namespace {

void read_filter_sizes(const Words& given, WgradAttributes& attributes) {
  const Words words = last_list(given);
  const bool is_file =
      words.size() == 1 && words[0].find_first_not_of("0123456789+- ,[]()\t") != std::string::npos;
  if (!is_file) {
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

Backend choose_backend(const std::string& name) {
  if (name == "auto" || name == "cpu") return Backend::cpu;
  if (name == "reference") return Backend::reference;
  const std::vector<std::string> names = {"auto", "cpu", "cuda", "reference"};
  if (name != "cuda") {
    throw Error(ErrorKind::usage, cat("--backend: '", name, "' is unknown, expected ",
                                      join_or(names), did_you_mean(name, names)));
  }
  const CudaInfo info = cuda_info();
  throw Error(ErrorKind::unavailable,
              cat("--backend cuda: ",
                  info.devices.empty() ? info.why_none : "this version has no CUDA kernels",
                  "; use --backend cpu"));
}

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
  job.backend = choose_backend(options.execution.backend);
  if (job.backend == Backend::reference && options.execution.algorithm != "auto") {
    throw Error(ErrorKind::usage, cat("--algorithm: ", options.execution.algorithm,
                                      " is given with --backend reference, which has none"));
  }
  const WgradAttributes attributes = attributes_of(o);
  job.x = std::make_unique<NpyReader>(o.input);
  job.dy = std::make_unique<NpyReader>(o.out_backprop);
  report["tensors"]["input"] = tensor_json(o.input, job.x->header());
  report["tensors"]["out_backprop"] = tensor_json(o.out_backprop, job.dy->header());
  job.problem = make_problem(tensor_info("--input", *job.x), tensor_info("--out-backprop", *job.dy),
                             attributes);
  report["attrs"] = problem_json(job.problem);
  report["work"] = work_json(job.problem);
  return job;
}

Plan plan_job(const Job& job, const Options& options, bool with_reference, bool only_reference) {
  PlanOptions o;
  o.algorithm = options.execution.algorithm;
  o.threads = options.execution.threads;
  o.memory_limit_bytes = static_cast<std::int64_t>(
      std::min<std::uint64_t>(options.execution.memory_limit, std::uint64_t{1} << 62));
  o.with_reference = with_reference;
  o.only_reference = only_reference;
  o.source_bytes = held_bytes(*job.x, false) + held_bytes(*job.dy, false);
  Plan plan = make_plan(job.problem, this_machine(), o);
  if (plan.blocks.axis > 0) {  // blocks of rows: a stream cannot be read in that order
    o.source_bytes = held_bytes(*job.x, true) + held_bytes(*job.dy, true);
    if (o.source_bytes > 0) plan = make_plan(job.problem, this_machine(), o);
  }
  return plan;
}

std::string algorithm_table(const WgradProblem* problem) {
  std::ostringstream text;
  if (problem == nullptr) {
    for (const Kernel& kernel : kernels()) {
      text << std::left << std::setw(27) << kernel.name << kernel.summary << "\n";
    }
    text << std::left << std::setw(27) << "auto"
         << "the least estimated time for the problem\n";
    return text.str();
  }
  text << describe(*problem) << "\n";
  const std::string_view best = choose_kernel(*problem, this_machine()).name;
  for (const Kernel& kernel : kernels()) {
    const std::string reason = kernel.why_not(*problem, this_machine());
    text << (kernel.name == best ? "* " : "  ") << std::left << std::setw(27) << kernel.name;
    if (reason.empty()) {
      text << "estimated " << std::setprecision(3) << kernel.estimated_seconds(*problem) * 1e3
           << " ms on one core\n";
    } else {
      text << reason << "\n";
    }
  }
  return text.str();
}

bool listed_algorithms(const Options& options, Json& report) {
  if (!options.execution.list_algorithms) return false;
  const bool has_problem = !options.problem.input.empty() && !options.problem.out_backprop.empty();
  std::string text;
  if (has_problem) {
    const Job job = open_job(options, report);
    text = algorithm_table(&job.problem);
  } else {
    text = algorithm_table(nullptr);
  }
  for (const Kernel& kernel : kernels()) {
    report["algorithms"].push_back({{"name", kernel.name}, {"summary", kernel.summary}});
  }
  if (options.json != "-") std::fputs(text.c_str(), stdout);
  return true;
}

std::string plan_text(const Plan& plan, const std::string& algorithm) {
  const WgradProblem& pb = plan.problem;
  const Json work = work_json(pb);
  const auto bytes = [](std::int64_t n) { return format_bytes(static_cast<double>(n)); };
  std::ostringstream text;
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
  if (algorithm == "auto" && plan.kernel != nullptr) {
    text << "algorithms\n" << algorithm_table(&pb);
  }
  return text.str();
}

Timing run_job(Job& job, const Plan& plan, GradientSum* gradient, ReferenceSum* reference) {
  Timing timing;
  Progress progress(reference != nullptr ? "reference" : "gradient");
  if (plan.blocks.axis > 0) {  // blocks of rows overlap, and a stream goes by only once
    job.x->hold();
    job.dy->hold();
  }
  NpySource source(*job.x, *job.dy);
  const double blocks = static_cast<double>(plan.blocks.count);
  stream_blocks(
      plan, source,
      [&](const Block& block, std::int64_t index) {
        if (gradient != nullptr) {
          timing.kernel_s += seconds_of([&] { gradient->add(block, index); });
        }
        if (reference != nullptr) {
          const auto start = Clock::now();
          reference->add(block, [&](std::int64_t done, std::int64_t total) {
            const double part = static_cast<double>(done) / static_cast<double>(total);
            progress.show((static_cast<double>(index) + part) / blocks);
          });
          timing.reference_s += seconds_since(start);
        }
      },
      timing,
      [&](std::int64_t done, std::int64_t) { progress.show(static_cast<double>(done) / blocks); });
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

bool same_file(const std::string& first, const std::string& second) {
  std::error_code ignored;
  namespace fs = std::filesystem;
  if (first.empty() || second.empty() || first == "-" || second == "-") return false;
  const std::string a = split_tensor_name(first).file, b = split_tensor_name(second).file;
  if (fs::exists(a, ignored) && fs::exists(b, ignored)) {
    return fs::is_regular_file(a, ignored) && fs::equivalent(a, b, ignored);
  }
  return fs::weakly_canonical(a, ignored) == fs::weakly_canonical(b, ignored);
}

void check_report_is_its_own(const Options& options) {
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
}

namespace {

// A tensor may be replaced by the gradient that was made of it, an archive of several may not.
void check_archives_are_kept(const Options& options) {
  const ProblemOptions& o = options.problem;
  const std::pair<const char*, const std::string*> tensors[] = {
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
  check_report_is_its_own(options);
  check_archives_are_kept(options);
  if (options.problem.output == "-" && options.json == "-") {
    throw Error(ErrorKind::usage,
                "--json and --output - both write to standard output; use --json=FILE");
  }
}

}  // namespace convgrad::cli
