// bind_options.cpp - see bind_options.hpp.
#include "options/bind_options.hpp"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Option.hpp>
#include <limits>

#include "options/help.hpp"
#include "options/validators.hpp"

namespace convgrad::cli {
namespace {

constexpr const char* kTensors = "Tensors";
constexpr const char* kOperation = "Operation";
constexpr const char* kExecution = "Execution";
constexpr const char* kReporting = "Reporting";
constexpr const char* kComparison = "Comparison";
constexpr const char* kOutput = "Output";
constexpr const char* kProblem = "Problem";

CLI::Option* flag(CLI::App& app, const std::string& names, bool& value, const std::string& help,
                  const char* group) {
  return app.add_flag(names, value, help)
      ->group(group)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(truth());
}

CLI::Option* text(CLI::App& app, const std::string& names, std::string& value,
                  const std::string& type, const std::string& help, const char* group) {
  return app.add_option(names, value, help)
      ->type_name(type)
      ->group(group)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(not_a_flag());
}

constexpr std::int64_t kAnyWhole = std::numeric_limits<std::int64_t>::max();

CLI::Option* numbers(CLI::App& app, const std::string& names, Words& value, const std::string& type,
                     const std::string& help) {
  return app.add_option(names, value, help)
      ->type_name(type)
      ->group(kOperation)
      ->expected(1, 16)
      ->type_size(1);
}

void add_tensors(CLI::App& app, ProblemOptions& o) {
  text(app, "-i,--input", o.input, "FILE",
       "x: NHWC, NCHW, NDHWC or NCDHW, .npy or FILE.npz:NAME; - is stdin", kTensors);
  text(app, "-g,--out-backprop", o.out_backprop, "FILE", "dy, in the same layout; - is stdin",
       kTensors);
}

void add_output(CLI::App& app, ProblemOptions& o) {
  text(app, "-o,--output", o.output, "FILE", "where the filter gradient goes; - is stdout",
       kTensors);
}

void add_attributes(CLI::App& app, ProblemOptions& o) {
  numbers(app, "--filter-sizes", o.filter_sizes, "R,S,C,K|FILE",
          "shape of the gradient in TensorFlow's order, as numbers or an integer .npy");
  numbers(app, "-k,--kernel", o.kernel, "R,S", "taps alone; the channels follow from the tensors");
  text(app, "--filter-like", o.filter_like, "FILE", "a filter .npy whose shape is the gradient's",
       kOperation);
  numbers(app, "-s,--strides", o.strides, "SH,SW", "1 by default");
  text(app, "-p,--padding", o.padding, "SAME|VALID|EXPLICIT", "as TensorFlow defines them",
       kOperation);
  numbers(app, "--explicit-paddings", o.explicit_paddings, "B,A,...",
          "(before, after) for each spatial axis, or for every axis in data-format order");
  numbers(app, "-d,--dilations", o.dilations, "DH,DW", "1 by default");
  text(app, "-f,--data-format", o.data_format, "FORMAT", "NHWC (default) or NCHW; NDHWC or NCDHW",
       kOperation);
  numbers(app, "--groups", o.groups, "G", "checked against the shapes; needed only with --kernel")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  text(app, "--filter-format", o.filter_format, "FORMAT",
       "order of the gradient's axes: HWIO (default), OIHW or OHWI; with D in front of H in 3-D",
       kOperation);
  text(app, "--out-dtype", o.out_dtype, "DTYPE",
       "dtype of the gradient: float16, bfloat16, float32 or float64; default the inputs'",
       kOperation);
  flag(app, "--use-cudnn-on-gpu,!--no-use-cudnn-on-gpu", o.use_cudnn_on_gpu,
       "TensorFlow's attribute; without effect on the CPU", kOperation);
}

void add_operation(CLI::App& app, ProblemOptions& o) {
  text(app, "--op", o.op, "OP", "conv2d, depthwise or conv3d, or TensorFlow's op name", kOperation);
  add_attributes(app, o);
}

void add_problem(CLI::App& app, ProblemOptions& o) {
  add_tensors(app, o);
  add_output(app, o);
  add_operation(app, o);
}

void add_threads(CLI::App& app, ExecutionOptions& o) {
  app.add_option("-t,--threads", o.threads, "CPU threads; 0, the default, is all")
      ->type_name("N")
      ->group(kExecution)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(whole_number(0, kMostThreads));
}

void add_memory_limit(CLI::App& app, ExecutionOptions& o) {
  app.add_option("--memory-limit", o.memory_limit, "memory for sums and blocks, e.g. 512MiB")
      ->type_name("SIZE")
      ->group(kExecution)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->transform(memory_size());
}

void add_backend(CLI::App& app, ExecutionOptions& o) {
  text(app, "-b,--backend", o.backend, "BACKEND", "auto, cpu, cuda or reference", kExecution);
  app.add_option("--device", o.device, "CUDA device number")
      ->type_name("N")
      ->group(kExecution)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(whole_number(0, 4095));
}

void add_execution(CLI::App& app, ExecutionOptions& o) {
  add_backend(app, o);
  add_threads(app, o);
  text(app, "-a,--algorithm", o.algorithm, "NAME", "a row of --list-algorithms, or auto",
       kExecution);
  flag(app, "--list-algorithms", o.list_algorithms,
       "print the algorithms, and what each makes of the problem if one is given", kExecution);
  app.add_option("--memory-limit", o.memory_limit, "memory for sums and blocks, e.g. 512MiB")
      ->type_name("SIZE")
      ->group(kExecution)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->transform(memory_size());
  flag(app, "--dry-run", o.dry_run, "print the plan, FLOPs, bytes and memory; compute nothing",
       kExecution);
  flag(app, "--accumulate", o.accumulate, "add the gradient to what --output holds", kExecution);
  flag(app, "--no-clobber", o.no_clobber, "fail if --output exists", kExecution);
  flag(app, "-v,--verbose", o.verbose, "plan and timings on stderr", kReporting);
}

void add_json(CLI::App& app, Options& o) {
  app.add_flag("--json{-}", o.json, "report as JSON on stdout, or --json=FILE")
      ->group(kReporting)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void add_criteria(CLI::App& app, CriterionOptions& o) {
  app.add_option("--rtol", o.rtol, "pass if |got-want| <= atol + rtol*|want|")
      ->type_name("X")
      ->group(kComparison)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(tolerance());
  app.add_option("--atol", o.atol, "see --rtol; the one that is not given is 0")
      ->type_name("X")
      ->group(kComparison)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(tolerance());
  app.add_option("--max-ulp", o.max_ulp,
                 "pass if at most N steps between numbers of the dtype apart")
      ->type_name("N")
      ->group(kComparison)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(whole_number(0, kAnyWhole));
  flag(app, "--bitwise", o.bitwise, "pass if every bit is equal (any NaN equals any NaN)",
       kComparison);
}

void add_verify(CLI::App& app, VerifyOptions& o) {
  constexpr const char* kExtent = "Extent of the check";
  constexpr const char* kMismatch = "On a mismatch";
  const auto count = [&](const char* name, std::optional<std::int64_t>& value, const char* group,
                         std::int64_t least, std::int64_t most, const char* help) {
    app.add_option(name, value, help)
        ->type_name("N")
        ->group(group)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->check(whole_number(least, most));
  };
  text(app, "--result", o.result, "FILE", "judge this gradient instead of computing one",
       kComparison);
  text(app, "--golden", o.golden, "FILE", "compare with this gradient, not with the reference",
       kComparison);
  flag(app, "--update-golden", o.update_golden,
       "compare with the reference, and on a match write the gradient to --golden", kComparison);
  add_criteria(app, o);
  count("--sample", o.sample, kExtent, 1, kAnyWhole,
        "compare N elements, chosen by the seed, and all corners; each costs N*P*Q");
  text(app, "--reference", o.reference, "full|adjoint",
       "adjoint: <dW,V> = <dY,conv(X,V)> for random V, in about the time of reading the files",
       kExtent);
  count("--seed", o.seed, kExtent, 0, kAnyWhole, "of --sample and of V; 1 by default");
  count("--repeat-check", o.repeat_check, kExtent, 2, 1000,
        "compute N times, with other threads and blocks, and compare the bits");
  flag(app, "--diagnosis,!--no-diagnosis", o.diagnosis,
       "look for the fault that explains a mismatch; the default", kMismatch);
  text(app, "--save-repro", o.save_repro, "DIR",
       "write a small problem that fails, and the command that repeats it", kMismatch);
}

void add_compare(CLI::App& app, CompareOptions& o) {
  app.add_option("GOT", o.got, "the array in question; - is stdin")
      ->type_name("FILE")
      ->check(not_a_flag());
  app.add_option("WANT", o.want, "what it should be; - is stdin")
      ->type_name("FILE")
      ->check(not_a_flag());
  add_criteria(app, o);
  flag(app, "--equal-nan,!--no-equal-nan", o.equal_nan, "NaN equals NaN; on by default",
       kComparison);
  text(app, "--save-diff", o.save_diff, "FILE",
       "got - want as .npy, 0 where they are equal: float32, or float64 if one of them is",
       kOutput);
  text(app, "--heatmap", o.heatmap, "FILE",
       "picture of |got - want|: filter taps x channels, as .svg", kOutput);
  text(app, "--filter-format", o.filter_format, "FORMAT",
       "for --heatmap: which axes are taps: HWIO (default), OIHW or OHWI", kOutput);
}

void whole(CLI::App& app, const char* name, std::int64_t& value, std::int64_t least,
           const char* type, const char* help, const char* group) {
  app.add_option(name, value, help)
      ->type_name(type)
      ->group(group)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(whole_number(least, std::int64_t{1} << 31));
}

void add_shape(CLI::App& app, ShapeOptions& o, const char* names, const char* help) {
  numbers(app, names, o.input_shape, "N,H,W,C", help)->group(kProblem);
  whole(app, "--out-channels", o.out_channels, 1, "K", "channels of dy, with --kernel", kProblem);
  whole(app, "--multiplier", o.multiplier, 1, "M", "the same for depthwise: K = C*M; 1 by default",
        kProblem);
}

void add_generate(CLI::App& app, Options& o) {
  GenerateOptions& g = o.generate;
  app.add_option("OP,--op", o.problem.op, "conv2d, depthwise or conv3d, or TensorFlow's op name")
      ->type_name("NAME")
      ->group(kProblem)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(not_a_flag());
  add_shape(app, g, "--shape,--input-shape", "shape of x in data-format order");
  text(app, "--dtype", g.dtype, "DTYPE", "float16, bfloat16, float32 (default) or float64",
       kProblem);
  text(app, "--dist", g.dist, "int|normal|uniform|adversarial",
       "what the elements are like; int, the default, has exact gradients", kProblem);
  app.add_option("--seed", g.seed, "the same files for the same seed, anywhere; 1 by default")
      ->type_name("S")
      ->group(kProblem)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(whole_number(0, kAnyWhole));
  flag(app, "--nonfinite", g.nonfinite, "a NaN and an infinity in each tensor", kProblem);
  add_attributes(app, o.problem);
  text(app, "-o,--output", o.problem.output, "DIR",
       "folder for input.npy, out_backprop.npy and gradient.npy; made if it is missing", kOutput);
  flag(app, "--clobber,!--no-clobber", g.clobber, "replace files that are there; off by default",
       kOutput);
}

void add_bench(CLI::App& app, BenchOptions& o) {
  constexpr const char* kMeasurement = "Measurement";
  const auto count = [&](const char* name, std::int64_t& value, std::int64_t least,
                         const char* help) {
    whole(app, name, value, least, "N", help, kMeasurement);
  };
  add_shape(app, o, "--input-shape",
            "x in data-format order; the tensors are made, from a fixed seed");
  text(app, "--suite", o.suite, "FILE", "one problem a line; see docs/bench.md", kProblem);
  text(app, "--only", o.only, "PART", "the suite's problems whose names hold PART", kProblem);
  text(app, "--dtype", o.dtype, "DTYPE,...", "a list, or all; float32 by default", kProblem);
  text(app, "-a,--algorithm", o.algorithm, "NAME,...",
       "a list, auto (the default), or all that can compute the problem", kExecution);
  text(app, "-t,--threads", o.threads, "N,...", "a list; 0, the default, is all", kExecution);
  count("--warmup", o.warmup, 0, "runs that are not measured; 1 by default");
  count("--repeat", o.repeat, 1, "measured runs at least; 10 by default");
  app.add_option("--min-time", o.min_time, "seconds of measured runs at least; 0.5 by default")
      ->type_name("S")
      ->group(kMeasurement)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(tolerance());
  flag(app, "--no-peaks", o.no_peaks, "do not measure the machine's peaks", kMeasurement);
  text(app, "--baseline", o.baseline, "FILE", "compare with this report of an earlier --json=FILE",
       kMeasurement);
  text(app, "--max-slowdown", o.max_slowdown, "P%",
       "with --baseline: status 1 if a median is more than this slower; 10% by default",
       kMeasurement);
  text(app, "--format", o.format, "table|csv|json", "on stdout; table by default", kReporting);
}

// What every command has, whoever adds it.
void add_color(CLI::App& app, Options& o) {
  text(app, "--color", o.color, "auto|always|never", "auto: on a terminal, unless NO_COLOR is set",
       kReporting);
}

// CLI11 shows flags with their default values in braces; what users type looks like this.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    const std::string name = CLI::Formatter::make_option_name(option, is_positional);
    std::string result;
    int depth = 0;
    for (const char c : name) {
      depth += c == '{' ? 1 : 0;
      if (depth == 0) result += c;
      depth -= c == '}' ? 1 : 0;
    }
    return result == "--json" ? "--json[=FILE]" : result;
  }
};

void set_up(CLI::App& app) {
  app.set_help_flag("-h,--help", "this text");
  app.get_help_ptr()->group(kReporting);
  app.allow_extras();  // what is left over is reported with a suggestion, by main
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(34);
}

CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& help) {
  CLI::App& command = *app.add_subcommand(name, help);
  set_up(command);
  return command;
}

// What stands last in every command that computes.
void add_common(CLI::App& app, Options& o, const std::string& footer,
                const std::string& config_help = "TOML file of options") {
  add_json(app, o);
  text(app, "--config", o.config, "FILE", config_help, kReporting);
  app.footer(footer);
}

void bind_verify(CLI::App& app, Options& o) {
  CLI::App& verify = add_command(app, "verify", "check a gradient against the reference");
  add_problem(verify, o.problem);
  add_execution(verify, o.execution);
  add_verify(verify, o.verify);
  add_common(verify, o, verify_footer());
}

void bind_compare(CLI::App& app, Options& o) {
  CLI::App& compare = add_command(app, "compare", "compare two arrays of any shape");
  compare.alias("diff");
  add_compare(compare, o.compare);
  flag(compare, "--no-clobber", o.execution.no_clobber, "fail if a file to be written exists",
       kOutput);
  flag(compare, "-q,--quiet", o.compare.quiet, "no text on stdout, the exit status alone",
       kReporting);
  add_common(compare, o, compare_footer());
}

void bind_batch(CLI::App& app, Options& o) {
  CLI::App& batch = add_command(app, "batch", "compute or verify many problems, one a line");
  constexpr const char* kJobs = "Jobs";
  batch.add_option("manifest", o.batch.manifest, "one job a line, JSON Lines or CSV; - is stdin")
      ->type_name("JOBS.jsonl|.csv|-");
  text(batch, "--match", o.batch.match, "RE",
       "only jobs in whose name this regular expression (ECMAScript's) is found", kJobs);
  flag(batch, "--keep-going", o.batch.keep_going, "run the other jobs after a failure", kJobs);
  flag(batch, "--resume", o.batch.resume,
       "skip jobs that were done before and whose files are unchanged", kJobs);
  text(batch, "--state", o.batch.state, "FILE",
       "where --resume keeps what was done; MANIFEST.state by default", kJobs);
  batch.add_option("-j,--jobs", o.batch.jobs, "jobs at a time; 0 is one a thread; 1 by default")
      ->type_name("N")
      ->group(kExecution)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(whole_number(0, kMostJobs));
  add_threads(batch, o.execution);
  batch.get_option("--threads")
      ->description("CPU threads of all jobs together; 0, the default, is all");
  add_memory_limit(batch, o.execution);
  batch.get_option("--memory-limit")->description("memory of all jobs together, e.g. 2GiB");
  text(batch, "-b,--backend", o.execution.backend, "BACKEND", "for jobs that name none",
       kExecution);
  text(batch, "-a,--algorithm", o.execution.algorithm, "NAME", "for jobs that name none",
       kExecution);
  flag(batch, "--dry-run", o.execution.dry_run, "check all jobs and print their plans; run none",
       kExecution);
  text(batch, "--junit", o.batch.junit, "FILE", "the results as JUnit's XML", kReporting);
  add_common(batch, o, batch_footer());
}

void bind_bench(CLI::App& app, Options& o) {
  CLI::App& bench = add_command(app, "bench", "measure the speed of gradients");
  add_tensors(bench, o.problem);
  add_operation(bench, o.problem);
  add_bench(bench, o.bench);
  add_backend(bench, o.execution);
  add_memory_limit(bench, o.execution);
  add_common(bench, o, bench_footer());
}

void bind_generate(CLI::App& app, Options& o) {
  CLI::App& generate = add_command(app, "generate", "make x, dy and their golden gradient");
  add_generate(generate, o);
  add_threads(generate, o.execution);
  add_memory_limit(generate, o.execution);
  add_common(generate, o, generate_footer());
}

void bind_reduce(CLI::App& app, Options& o) {
  CLI::App& reduce = add_command(app, "reduce", "add the parts of a batch to its gradient");
  reduce.add_option("files", o.reduce_files, "what --batch-range has written, in any order")
      ->type_name("FILE...");
  add_output(reduce, o.problem);
  flag(reduce, "--no-clobber", o.execution.no_clobber, "fail if --output exists", kExecution);
  flag(reduce, "-v,--verbose", o.execution.verbose, "files and timings on stderr", kReporting);
  add_common(reduce, o, reduce_footer());
}

}  // namespace

void bind_options(CLI::App& app, Options& o) {
  set_up(app);
  app.set_version_flag("--version", version_text(), "version, and what it was built with")
      ->group(kReporting);
  add_problem(app, o.problem);
  add_execution(app, o.execution);
  text(app, "--batch-range", o.execution.batch_range, "A:B|K/R",
       "sum images A to B-1, or the K-th of R parts, into a file for convgrad reduce", kExecution);
  flag(app, "--mpi", o.execution.mpi, "one gradient by all processes of mpirun -n R convgrad ...",
       kExecution);
  add_common(app, o, compute_footer(), "TOML file of options; flags and CONVGRAD_* win over it");
  app.require_subcommand(0, 1);

  bind_verify(app, o);
  bind_compare(app, o);
  bind_batch(app, o);
  bind_bench(app, o);
  bind_generate(app, o);
  bind_reduce(app, o);

  CLI::App& inspect = add_command(app, "inspect", "say what .npy files and archives hold");
  inspect.add_option("files", o.inspect_files, "- is stdin")->type_name("FILE...");
  add_json(inspect, o);
  inspect.footer(inspect_footer());

  CLI::App& info = add_command(app, "info", "say what this program and this machine can do");
  flag(info, "--peaks", o.info_peaks, "measure multiply-adds, GEMM and memory; takes a second",
       kExecution);
  add_threads(info, o.execution);
  add_json(info, o);
  info.footer(info_footer());

  CLI::App& completion = add_command(app, "completion", "print completions for a shell");
  completion.add_option("shell", o.completion_shell, "the shell that reads them")
      ->type_name("bash|zsh|fish");
  completion.footer(completion_footer());

  add_color(app, o);
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) add_color(*sub, o);
}

}  // namespace convgrad::cli
