// bind_options.cpp - see bind_options.hpp. What several commands have is in shared_options.cpp.
#include "options/bind_options.hpp"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "options/help.hpp"
#include "options/shared_options.hpp"

namespace convgrad::cli {
namespace {

// CLI11 shows flags with their default values in braces; what users type looks like this.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    for (std::size_t begin; (begin = name.find('{')) != name.npos;) {
      name.erase(begin, name.find('}', begin) + 1 - begin);
    }
    return name == "--json" ? "--json[=FILE]" : name;
  }
  // -h is CLI11's plain help, --help its help of all, but each of one command alone.
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    if (mode == CLI::AppFormatMode::Normal) return short_help(*app, name, *this);
    return CLI::Formatter::make_help(app, name, CLI::AppFormatMode::Normal);
  }
};

void set_up(CLI::App& app) {
  app.set_help_flag("-h", "the usual options, in short")->group(kReporting);
  app.set_help_all_flag("--help", "this text")->group(kReporting);
  app.allow_extras();  // what is left over is reported with a suggestion, by main
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(34);
}

CLI::App& add_command(CLI::App& app, const std::string& name, const std::string& help) {
  CLI::App& command = *app.add_subcommand(name, help);
  set_up(command);
  return command;
}

void add_bench(CLI::App& app, BenchOptions& o) {
  constexpr const char* kMeasurement = "Measurement";
  const auto count = [&](const char* name, std::int64_t& value, std::int64_t least,
                         const char* help) {
    option(app, name, value, "N", help, kMeasurement, whole_number(least, std::int64_t{1} << 31));
  };
  add_shape(app, o, "--input-shape",
            "x in data-format order; the tensors are made, from a fixed seed");
  text(app, "--suite", o.suite, "NAME|FILE",
       "one problem a line: a name of --list-suites, or a file (docs/bench.md)", kProblem);
  flag(app, "--list-suites", o.list_suites, "print the suites that have names", kProblem);
  text(app, "--only", o.only, "PART", "the suite's problems whose names hold PART", kProblem);
  text(app, "--dtype", o.dtype, "DTYPE,...", "a list, or all; float32 by default", kProblem);
  text(app, "-a,--algorithm", o.algorithm, "NAME,...",
       "a list, auto (the default), or all that can compute the problem", kExecution);
  text(app, "-t,--threads", o.threads, "N,...", "a list; 0, the default, is all", kExecution);
  count("--warmup", o.warmup, 0, "runs that are not measured; 1 by default");
  count("--repeat", o.repeat, 1, "least number of measured runs; 10 by default");
  option(app, "--min-time", o.min_time, "S",
         "least total of measured runs, in seconds; 0.5 by default", kMeasurement, tolerance());
  flag(app, "--no-peaks", o.no_peaks, "do not measure the machine's peaks", kMeasurement);
  text(app, "--format", o.format, "table|csv|json", "on stdout; table by default", kReporting);
}

constexpr const char* kFailVacuous = "status 1 where the data can show no fault, such as zeros";

void bind_verify(CLI::App& app, Options& o) {
  CLI::App& verify = add_command(app, "verify", "check a gradient against the reference");
  add_problem(verify, o.problem);
  add_execution(verify, o.execution);
  constexpr const char* kExtent = "Extent of the check";
  constexpr const char* kMismatch = "On a mismatch";
  const auto count = [&](const char* name, std::optional<std::int64_t>& value, const char* group,
                         std::int64_t least, std::int64_t most, const char* help) {
    option(verify, name, value, "N", help, group, whole_number(least, most));
  };
  verify
      .add_option("--result", o.verify.results,
                  "judge this gradient instead of computing one; again for each run of a kernel")
      ->type_name("FILE")
      ->group(kComparison)
      ->expected(1)
      ->check(not_a_flag())
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  text(verify, "--golden", o.verify.golden, "FILE",
       "judge this gradient too; with a tolerance: compare with it, not with the reference",
       kComparison);
  flag(verify, "--update-golden", o.verify.update_golden,
       "compare with the reference, and on a match write the gradient to --golden", kComparison);
  text(verify, "--criterion", o.verify.criterion, "rounding|bound",
       "errors as rounding makes them, the default, or the worst case", kComparison);
  option(verify, "--slack", o.verify.slack, "X",
         "of --criterion rounding: so many times the errors of a right sum pass; 3 by default",
         kComparison, tolerance());
  count("--longest-sum", o.verify.longest_sum, kComparison, 1, kAnyWhole,
        "the result was summed in runs of at most N pixels, so smaller errors are expected of it");
  text(verify, "--adders", o.verify.adders, "tensor-core|ieee",
       "whether adders may have cut digits off, the default of 16-bit data, or only rounded",
       kComparison);
  text(verify, "--order", o.verify.order, "any|natural",
       "errors of sums in any order that kernels use, the default, or in n, p, q alone",
       kComparison);
  add_criteria(verify, o.verify);
  flag(verify, "--fail-vacuous", o.verify.fail_vacuous, kFailVacuous, kComparison);
  count("--sample", o.verify.sample, kExtent, 1, kAnyWhole,
        "compare N elements, chosen by the seed, and all corners; each costs N*P*Q");
  count("--seed", o.verify.seed, kExtent, 0, kAnyWhole, "of --sample; 1 by default");
  flag(verify, "--diagnosis,!--no-diagnosis", o.verify.diagnosis,
       "look for the fault that explains a mismatch; the default", kMismatch);
  count("--show", o.verify.show, kReporting, 1, 10000, "list the N elements that are most off");
  add_difference(verify, o.verify.save_diff);
  text(verify, "--save-repro", o.verify.save_repro, "DIR",
       "write a small problem that fails, and the command that repeats it", kMismatch);
  add_common(verify, o, kVerifyFooter);
}

void bind_compare(CLI::App& app, Options& o) {
  CLI::App& compare = add_command(app, "compare", "compare two arrays of any shape");
  compare.alias("diff");
  compare.add_option("GOT", o.compare.got, "the array to check; - is stdin")
      ->type_name("FILE")
      ->check(not_a_flag());
  compare.add_option("WANT", o.compare.want, "the expected array; - is stdin")
      ->type_name("FILE")
      ->check(not_a_flag());
  add_criteria(compare, o.compare);
  flag(compare, "--equal-nan,!--no-equal-nan", o.compare.equal_nan, "NaN equals NaN; on by default",
       kComparison);
  add_difference(compare, o.compare.save_diff);
  flag(compare, "--no-clobber", o.execution.no_clobber, "fail if a file to be written exists",
       kOutput);
  add_common(compare, o, kCompareFooter);
}

void bind_batch(CLI::App& app, Options& o) {
  CLI::App& batch = add_command(app, "batch", "compute or verify many problems, one a line");
  constexpr const char* kJobs = "Jobs";
  batch
      .add_option("manifest", o.batch.manifest,
                  "one job a line, JSON Lines, or a JSON array; - is stdin")
      ->type_name("JOBS.jsonl|.json|-");
  text(batch, "--match", o.batch.match, "RE",
       "only jobs in whose name this regular expression (ECMAScript's) is found", kJobs);
  text(batch, "--shard", o.batch.shard, "K/R",
       "the K-th of R parts, K from 1: jobs on lines K, K+R, K+2R, ...", kJobs);
  flag(batch, "--fail-vacuous", o.verify.fail_vacuous, kFailVacuous, kJobs);
  flag(batch, "--keep-going", o.batch.keep_going, "run the other jobs after a failure", kJobs);
  flag(batch, "--resume", o.batch.resume,
       "skip jobs that were done before and whose files are unchanged", kJobs);
  text(batch, "--state", o.batch.state, "FILE",
       "where --resume keeps what was done; MANIFEST.state by default", kJobs);
  option(batch, "-j,--jobs", o.batch.jobs, "N", "jobs at a time; 0 is one per thread; 1 by default",
         kExecution, whole_number(0, kMostJobs));
  add_threads(batch, o.execution, "CPU threads of all jobs together; 0, the default, is all");
  add_memory_limit(batch, o.execution, "memory of all jobs together, e.g. 2GiB");
  text(batch, "-b,--backend", o.execution.backend, "BACKEND", "for jobs that name none",
       kExecution);
  text(batch, "-a,--algorithm", o.execution.algorithm, "NAME", "for jobs that name none",
       kExecution);
  flag(batch, "--dry-run", o.execution.dry_run, "check all jobs and print their plans; run none",
       kExecution);
  text(batch, "--junit", o.batch.junit, "FILE", "the results as JUnit's XML", kReporting);
  add_common(batch, o, kBatchFooter);
}

void bind_bench(CLI::App& app, Options& o) {
  CLI::App& bench = add_command(app, "bench", "measure the speed of gradients");
  add_tensors(bench, o.problem);
  add_operation(bench, o.problem);
  add_bench(bench, o.bench);
  add_backend(bench, o.execution);
  add_memory_limit(bench, o.execution);
  add_common(bench, o, kBenchFooter);
}

void bind_generate(CLI::App& app, Options& o) {
  CLI::App& generate = add_command(app, "generate", "make x, dy and their golden gradient");
  GenerateOptions& g = o.generate;
  text(generate, "OP,--op", o.problem.op, "NAME",
       "conv2d, depthwise, conv3d or conv1d, or TensorFlow's op name", kProblem);
  add_shape(generate, g, "--shape,--input-shape", "shape of x in data-format order");
  text(generate, "--dtype", g.dtype, "DTYPE", "float16, bfloat16, float32 (default) or float64",
       kProblem);
  text(generate, "--dist", g.dist, "int|normal|uniform|adversarial",
       "distribution of the elements; int, the default, has exact gradients", kProblem);
  option(generate, "--seed", g.seed, "S",
         "the same files for the same seed, anywhere; 1 by default", kProblem,
         whole_number(0, kAnyWhole));
  flag(generate, "--nonfinite", g.nonfinite, "a NaN and an infinity in each tensor", kProblem);
  add_attributes(generate, o.problem);
  text(generate, "-o,--output", o.problem.output, "DIR",
       "folder for input.npy, out_backprop.npy and gradient.npy; made if it is missing", kOutput);
  flag(generate, "--clobber,!--no-clobber", g.clobber,
       "replace files that are there; off by default", kOutput);
  add_threads(generate, o.execution);
  add_memory_limit(generate, o.execution);
  add_common(generate, o, kGenerateFooter);
}

void bind_reduce(CLI::App& app, Options& o) {
  CLI::App& reduce = add_command(app, "reduce", "add the parts of a batch to its gradient");
  reduce.add_option("files", o.reduce_files, "what --batch-range has written, in any order")
      ->type_name("FILE...");
  add_output(reduce, o.problem);
  add_raw(reduce, o.execution);
  flag(reduce, "--no-clobber", o.execution.no_clobber, "fail if --output exists", kExecution);
  flag(reduce, "-v,--verbose", o.execution.verbose, "files and timings on stderr", kReporting);
  add_common(reduce, o, kReduceFooter);
}

}  // namespace

void bind_options(CLI::App& app, Options& o) {
  set_up(app);
  app.set_version_flag("-V,--version", version_and_libraries,
                       "version, what it was built with, BLAS, CUDA and MPI")
      ->group(kReporting);
  add_problem(app, o.problem);
  add_execution(app, o.execution);
  text(app, "--batch-range", o.execution.batch_range, "A:B|K/R",
       "sum images A to B-1, or the K-th of R parts, into a file for convgrad reduce", kExecution);
  flag(app, "--mpi", o.execution.mpi, "one gradient by all processes of mpirun -n R convgrad ...",
       kExecution);
  add_common(app, o, kComputeFooter);
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
  inspect.footer(kInspectFooter);

  CLI::App& info = add_command(app, "info", "say what this program and this machine can do");
  flag(info, "--peaks", o.info_peaks, "measure multiply-adds and memory; takes a second",
       kExecution);
  add_threads(info, o.execution);
  add_json(info, o);
  info.footer(kInfoFooter);

  CLI::App& completion = add_command(app, "completion", "print completions for a shell");
  completion.add_option("shell", o.completion_shell, "the shell that reads them")
      ->type_name("bash|zsh|fish");
  completion.footer(kCompletionFooter);

  const auto add_to_all = [&](CLI::App& command) {
    flag(command, "-q,--quiet", o.quiet,
         "no text but errors: the exit status, files, -o - and --json say it all", kReporting);
    text(command, "--color", o.color, "auto|always|never",
         "auto: on a terminal, unless NO_COLOR is set", kReporting);
  };
  add_to_all(app);
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) add_to_all(*sub);
}

}  // namespace convgrad::cli
