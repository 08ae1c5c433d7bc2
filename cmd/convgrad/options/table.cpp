// table.cpp - see table.hpp. The order of rows is that of --help.
#include "options/table.hpp"

#include <functional>

#include "convgrad/dtype.hpp"
#include "engine/kernel.hpp"
#include "options/arguments.hpp"
#include "options/help.hpp"
#include "options/problems.hpp"

namespace convgrad::cli {
namespace {

using enum About;
using enum FileUse;

constexpr const char* kTensors = "Tensors";
constexpr const char* kOperation = "Operation";
constexpr const char* kExecution = "Execution";
constexpr const char* kComparison = "Comparison";
constexpr const char* kOutput = "Output";
constexpr const char* kProblem = "Problem";
constexpr const char* kMeasurement = "Measurement";
constexpr const char* kExtent = "Extent of the check";
constexpr const char* kMismatch = "On a mismatch";
constexpr const char* kJobs = "Jobs";
constexpr const char* kBackends = "auto|cpu|cuda|reference";
constexpr std::int64_t kMuch = std::int64_t{1} << 31;

std::string names_of(const auto& things, auto name) {
  Words names;
  for (const auto& thing : things) names.emplace_back(std::invoke(name, thing));
  return joined(names);
}

// These return the known values of options, for completions.
std::string operations() { return "conv2d depthwise conv3d conv1d"; }
std::string paddings() { return "SAME VALID EXPLICIT"; }
std::string data_formats() { return "NHWC NCHW NDHWC NCDHW NWC NCW"; }
std::string filter_formats() { return "HWIO OIHW OHWI DHWIO OIDHW ODHWI WIO OIW OWI"; }
std::string computed_dtypes() { return "float16 bfloat16 float32 float64"; }
std::string stored_dtypes() { return names_of(kStoredDTypes, dtype_name); }
std::string algorithms() { return "auto " + names_of(kernels(), &Kernel::name); }
std::string suites() { return joined(suite_names()); }

void add_tensors(Rows& rows, ProblemOptions& o) {
  rows.add({"input", 'i'}, "FILE", kTensors,
           "x: NHWC, NCHW, ...: .npy, FILE.npz:NAME, or raw FILE:DTYPE[N,H,W,C]; - is stdin",
           &o.input, {.file = read, .question = "problem", .way = "files"});
  rows.add({"out-backprop", 'g'}, "FILE", kTensors, "dy, in the same layout; - is stdin",
           &o.out_backprop, {.file = read, .question = "problem", .way = "files"});
  rows.add({"input-dtype"}, "DTYPE", kTensors,
           "of x, where its file holds uint16 or raw bytes instead: bfloat16, float8_e4m3fn, ...",
           &o.input_dtype, {.values = stored_dtypes});
  rows.add({"out-backprop-dtype"}, "DTYPE", kTensors, "the same for dy", &o.out_backprop_dtype,
           {.values = stored_dtypes});
}

// A variable sets it only with `of_job`, since variables say how the main job writes gradients.
void add_output(Rows& rows, ProblemOptions& o, bool of_job = true) {
  rows.add({"output", 'o'}, "FILE", kTensors,
           "filter gradient: FILE.npy, FILE.npz[:NAME], FILE.safetensors[:NAME]; - is stdout",
           &o.output, {.variable = of_job, .file = written});
}

void add_attributes(Rows& rows, ProblemOptions& o) {
  rows.add({"filter-sizes"}, "R,S,C,K|FILE", kOperation,
           "shape of the gradient in TensorFlow's order, as numbers or an integer .npy",
           NumberList{&o.filter_sizes}, {.file = read, .question = "filter", .about = operation});
  rows.add({.name = "kernel", .letter = 'k', .alias = "kernel-size"}, "R,S", kOperation,
           "taps alone; the channels follow from the tensors", NumberList{&o.kernel},
           {.question = "filter", .about = operation});
  rows.add({"filter-like"}, "FILE", kOperation, "a filter .npy whose shape is the gradient's",
           &o.filter_like, {.file = read, .question = "filter", .about = operation});
  rows.add({"strides", 's'}, "SH,SW", kOperation, "1 by default", NumberList{&o.strides},
           {.about = operation});
  rows.add({"padding", 'p'}, "PADDING", kOperation,
           "SAME, VALID, EXPLICIT, or numbers: 1 or 1,2 as PyTorch has them, or pairs", &o.padding,
           {.values = paddings, .question = "padding", .about = operation});
  rows.add({"explicit-paddings"}, "B,A,...", kOperation,
           "(before, after) for each spatial axis, or for every axis in data-format order",
           NumberList{&o.explicit_paddings}, {.question = "padding", .about = operation});
  rows.add({"dilations", 'd'}, "DH,DW", kOperation, "1 by default", NumberList{&o.dilations},
           {.about = operation});
  rows.add({"data-format", 'f'}, "FORMAT", kOperation,
           "NHWC (default) or NCHW; NDHWC or NCDHW; NWC or NCW; or channels_last, channels_first",
           &o.data_format, {.values = data_formats, .about = format});
  rows.add({"groups"}, "G", kOperation, "checked against the shapes; needed only with --kernel",
           &o.groups, {.about = operation});
  rows.add({"filter-format"}, "FORMAT", kOperation,
           "order of the gradient's axes: HWIO (default), OIHW or OHWI; D before H in 3-D, "
           "no H in 1-D; or RSCK, KCRS, KRSC",
           &o.filter_format, {.values = filter_formats, .about = format});
  rows.add(
      {"out-dtype"}, "DTYPE", kOperation,
      "dtype of the gradient: float16, bfloat16, float32 or float64; default the inputs', if alike",
      &o.out_dtype, {.values = computed_dtypes, .about = format});
  rows.add({.name = "use-cudnn-on-gpu", .off = "no-use-cudnn-on-gpu"}, "", kOperation,
           "accepted for TensorFlow's sake; has no effect", &o.use_cudnn_on_gpu);
}

void add_problem(Rows& rows, ProblemOptions& o, const char* group) {
  rows.add({"problem"}, "LINE", group,
           "all in a line: conv2d n8 h56 w56 c64 k128 r3 s3 stride2 pad_same, or benchdnn's or "
           "MIOpenDriver's",
           &o.line, {.question = "problem"});
}

void add_operation(Rows& rows, ProblemOptions& o) {
  rows.add({"op"}, "OP", kOperation,
           "conv2d, depthwise, conv3d or conv1d, or what TensorFlow or PyTorch calls it", &o.op,
           {.values = operations, .usual = true, .about = operation});
  add_attributes(rows, o);
}

// Adds the shapes of tensors that are made. `names` and `help` are those of the option for x.
void add_shape(Rows& rows, ShapeOptions& o, const OptionNames& names, const char* help) {
  rows.add(names, "N,H,W,C", kProblem, help, NumberList{&o.input_shape},
           {.usual = true, .question = "problem", .way = "shape"});
  rows.add({"out-channels"}, "K", kProblem, "channels of dy, with --kernel",
           Whole{&o.out_channels, 1, kMuch},
           {.question = "problem", .way = "shape", .about = operation});
  rows.add({"multiplier"}, "M", kProblem, "the same for depthwise: K = C*M; 1 by default",
           Whole{&o.multiplier, 1, kMuch},
           {.question = "problem", .way = "shape", .about = operation});
}

void add_backend(Rows& rows, ExecutionOptions& o) {
  rows.add({"backend", 'b'}, kBackends, kExecution, "auto decides by the problem and the machine",
           Choice{&o.backend});
  rows.add({"device"}, "N", kExecution, "CUDA device number", Whole{&o.device, 0, 4095});
}

void add_threads(Rows& rows, ExecutionOptions& o,
                 const char* help = "CPU threads; 0, the default, is all") {
  rows.add({"threads", 't'}, "N", kExecution, help, Whole{&o.threads, 0, kMostThreads},
           {.is_field = false});
}

void add_memory_limit(Rows& rows, ExecutionOptions& o,
                      const char* help = "memory for sums and blocks, e.g. 512MiB") {
  rows.add({"memory-limit"}, "SIZE", kExecution, help, Bytes{&o.memory_limit}, {.is_field = false});
}

void add_raw(Rows& rows, ExecutionOptions& o, bool of_job = true) {
  rows.add({"raw"}, "", kTensors,
           "the elements alone in --output: little endian, C order, no header", &o.raw,
           {.variable = of_job});
}

void add_no_clobber(Rows& rows, ExecutionOptions& o, bool of_job = true) {
  rows.add({"no-clobber"}, "", kExecution, "fail if --output exists", &o.no_clobber,
           {.variable = of_job});
}

void add_verbose(Rows& rows, ExecutionOptions& o, const char* help) {
  rows.add({"verbose", 'v'}, "", kReporting, help, &o.verbose,
           {.is_field = false, .question = "text"});
}

// Adds what the main job and verify have in common.
void add_job(Rows& rows, Options& o, bool of_job) {
  ExecutionOptions& e = o.execution;
  add_tensors(rows, o.problem);
  add_output(rows, o.problem, of_job);
  add_operation(rows, o.problem);
  add_problem(rows, o.problem, kOperation);
  add_backend(rows, e);
  add_threads(rows, e);
  rows.add({"algorithm", 'a'}, "NAME", kExecution, "a row of --list-algorithms, or auto",
           &e.algorithm, {.values = algorithms});
  rows.add({"list-algorithms"}, "", kExecution,
           "print the algorithms and, if a problem is given, which of them can compute it",
           &e.list_algorithms, {.is_field = false});
  add_memory_limit(rows, e);
  rows.add({"dry-run"}, "", kExecution, "print the plan, FLOPs, bytes and memory; compute nothing",
           &e.dry_run, {.is_field = false});
  add_no_clobber(rows, e, of_job);
  add_raw(rows, e, of_job);
  add_verbose(rows, e, "plan and timings on stderr");
}

// `usual` says whether -h explains them.
void add_criteria(Rows& rows, CriterionOptions& o, bool usual) {
  rows.add({"rtol"}, "X", kComparison, "pass if |got-want| <= atol + rtol*|want|", &o.rtol,
           {.usual = usual, .question = "criterion"});
  rows.add({"atol"}, "X", kComparison, "see --rtol; the one that is not given is 0", &o.atol,
           {.usual = usual, .question = "criterion"});
  rows.add({"max-ulp"}, "N", kComparison,
           "pass if at most N steps between numbers of the dtype apart", Whole{&o.max_ulp},
           {.question = "criterion"});
  rows.add({"bitwise"}, "", kComparison, "pass if every bit is equal (any NaN equals any NaN)",
           &o.bitwise, {.usual = usual, .question = "criterion"});
}

void add_difference(Rows& rows, std::string& file) {
  rows.add({"save-diff"}, "FILE", kOutput,
           "got - want as .npy, 0 where they are equal: float32, or float64 if one of them is",
           &file, {.file = written});
}

void add_fail_vacuous(Rows& rows, bool& value, const char* group) {
  rows.add({"fail-vacuous"}, "", group, "status 1 where the data can show no fault, such as zeros",
           &value);
}

// Adds what stands last in every command but completion, whose script CONVGRAD_QUIET must not
// empty.
void add_report(Rows& rows, Options& o) {
  rows.add({"json"}, "", kReporting, "report as JSON on stdout, or --json=FILE",
           FileOrOutput{&o.json}, {.variable = false, .is_field = false});
  rows.add({"tag"}, "KEY=VALUE", kReporting, "kept with the report; again for more",
           Tags{&o.tag_words}, {.is_field = false});
  rows.add({"quiet", 'q'}, "", kReporting,
           "no text but errors: the exit status, files, -o - and --json say it all", &o.quiet,
           {.is_field = false, .question = "text"});
  rows.add({"color"}, "auto|always|never", kReporting,
           "auto: on a terminal, unless NO_COLOR is set", Choice{&o.color}, {.is_field = false});
}

void add_compute(Rows& rows, Options& o) {
  add_job(rows, o, true);
  rows.add({"accumulate"}, "", kExecution, "add the gradient to what --output holds",
           &o.execution.accumulate, {.is_field = false});
  rows.add({"batch-range"}, "A:B|K/R", kExecution,
           "sum images A to B-1, or the K-th of R parts, into a file for convgrad reduce",
           &o.execution.batch_range);
  rows.add({"mpi"}, "", kExecution, "one gradient by all processes of mpirun -n R convgrad ...",
           &o.execution.mpi, {.is_field = false});
  rows.add({"spot-check"}, "N", kExecution,
           "check N elements of the gradient, and its corners, before it is written; 16 by default "
           "on a device, else 0",
           Whole{&o.execution.spot_check, 0, kMuch});
  add_report(rows, o);
}

void add_verify(Rows& rows, VerifyCommand& o) {
  VerifyOptions& v = o.verify;
  add_job(rows, o, false);
  rows.add({"result"}, "FILE", kComparison,
           "judge this gradient instead of computing one; again for each run of a kernel",
           Again{&v.results}, {.usual = true, .file = read});
  rows.add({"golden"}, "FILE", kComparison,
           "judge this gradient too; with a tolerance: compare with it, not with the reference",
           &v.golden, {.usual = true, .file = updated});
  rows.add({"update-golden"}, "", kComparison,
           "compare with the reference, and on a match write the gradient to --golden",
           &v.update_golden, {.is_field = false});
  rows.add({"signs"}, "S", kComparison,
           "the kernel ran on the dy of generate --signs S: no order but n, p, q, and --slack 1",
           Whole{&v.signs}, {.usual = true});
  rows.add({"accumulated-on"}, "FILE", kComparison,
           "what the result's memory held: beta*FILE + alpha*gradient is expected",
           &v.accumulated_on, {.file = read});
  rows.add({"alpha"}, "X", kComparison, "what the gradient was multiplied by; 1 by default",
           Real{&v.alpha});
  rows.add({"beta"}, "X", kComparison, "the same for --accumulated-on", Real{&v.beta});
  rows.add({"criterion"}, "rounding|bound", kComparison,
           "errors as rounding makes them, the default, or the worst case", Choice{&v.criterion});
  rows.add({"slack"}, "X", kComparison,
           "of --criterion rounding: so many times the errors of a right sum pass; 3 by default",
           &v.slack);
  rows.add(
      {"longest-sum"}, "N", kComparison,
      "the result was summed in runs of at most N pixels, so smaller errors are expected of it",
      Whole{&v.longest_sum, 1});
  rows.add({"adders"}, "tensor-core|ieee", kComparison,
           "whether adders may have cut digits off, the default of 16-bit data, or only rounded",
           Choice{&v.adders});
  rows.add({"order"}, "any|natural", kComparison,
           "errors of sums in any order, the default, or in n, z, p, q alone", Choice{&v.order});
  add_criteria(rows, v, false);
  rows.add({"accept"}, "FAULT,...", kComparison,
           "match what the diagnosis explains by these faults, such as low_precision_sums",
           List{&v.accept});
  add_fail_vacuous(rows, v.fail_vacuous, kComparison);
  rows.add({"fail-assumed"}, "", kComparison,
           "status 1 where it matches only if it sums in another order than n, z, p, q",
           &v.fail_assumed);
  rows.add({"sample"}, "N", kExtent,
           "compare N elements, chosen by the seed, and all corners; each costs N*P*Q",
           Whole{&v.sample, 1});
  rows.add({"seed"}, "N", kExtent, "of --sample; 1 by default", Whole{&v.seed});
  rows.add(
      {"diagnosis"}, "off|quick|full", kMismatch,
      "look for the fault that explains a mismatch: for some seconds, the default, or to the end",
      Choice{&v.diagnosis});
  rows.add({"show"}, "N", kReporting, "list the N elements that are most off",
           Whole{&v.show, 1, 10000});
  add_difference(rows, v.save_diff);
  add_report(rows, o);
}

void add_compare(Rows& rows, CompareOptions& o) {
  rows.add({.place = "GOT"}, "FILE", "",
           "the array to check, an archive or a folder of them; - is stdin", &o.got,
           {.file = read});
  rows.add({.place = "WANT"}, "FILE", "", "what is expected; - is stdin", &o.want, {.file = read});
  add_criteria(rows, o, true);
  rows.add({.name = "equal-nan", .off = "no-equal-nan"}, "", kComparison,
           "NaN equals NaN; on by default", &o.equal_nan);
  add_difference(rows, o.save_diff);
  rows.add({"no-clobber"}, "", kOutput, "fail if a file to be written exists",
           &o.execution.no_clobber);
  add_report(rows, o);
}

void add_batch(Rows& rows, BatchOptions& o) {
  ExecutionOptions& e = o.execution;
  rows.add({.place = "manifest"}, "JOBS.jsonl|.json|-", "",
           "one job a line, JSON Lines, or a JSON array; - is stdin", &o.manifest, {.file = read});
  rows.add({"match"}, "RE", kJobs,
           "only jobs in whose name this regular expression (ECMAScript's) is found", &o.match);
  rows.add({"shard"}, "K/R", kJobs,
           "the K-th of R parts, K from 1: jobs on lines K, K+R, K+2R, ...", &o.shard);
  add_fail_vacuous(rows, o.fail_vacuous, kJobs);
  rows.add({"keep-going"}, "", kJobs, "run the other jobs after a failure", &o.keep_going,
           {.usual = true});
  rows.add({"resume"}, "", kJobs, "skip jobs that were done before and whose files are unchanged",
           &o.resume, {.usual = true});
  rows.add({"state"}, "FILE", kJobs,
           "where --resume keeps what was done; MANIFEST.state by default", &o.state,
           {.file = written});
  rows.add({"jobs", 'j'}, "N", kExecution, "jobs at a time; 0 is one per thread; 1 by default",
           Whole{&o.jobs, 0, kMostJobs});
  add_threads(rows, e, "CPU threads of all jobs together; 0, the default, is all");
  add_memory_limit(rows, e, "memory of all jobs together, e.g. 2GiB");
  rows.add({"backend", 'b'}, kBackends, kExecution, "for jobs that name none", Choice{&e.backend});
  rows.add({"algorithm", 'a'}, "NAME", kExecution, "for jobs that name none", &e.algorithm,
           {.values = algorithms});
  rows.add({"dry-run"}, "", kExecution, "check all jobs and print their plans; run none",
           &e.dry_run);
  rows.add({"junit"}, "FILE", kReporting, "the results as JUnit's XML", &o.junit,
           {.usual = true, .file = written});
  add_report(rows, o);
}

void add_bench(Rows& rows, BenchOptions& o) {
  add_tensors(rows, o.problem);
  add_operation(rows, o.problem);
  add_shape(rows, o, {"input-shape"},
            "x in data-format order; the tensors are made, from a fixed seed");
  add_problem(rows, o.problem, kProblem);
  rows.add({"suite"}, "NAME|FILE", kProblem,
           "one problem a line: a name of --list-suites, or a file (docs/bench.md)", &o.suite,
           {.values = suites, .file = read, .question = "problem"});
  rows.add({"list-suites"}, "", kProblem, "print the suites that have names", &o.list_suites);
  rows.add(
      {"network"}, "NETWORK", kProblem,
      "every layer of a network of the suite networks; totals count each as often as it occurs",
      &o.network, {.question = "problem"});
  rows.add({"batch"}, "N", kProblem, "that many images in each problem of a suite or network",
           Whole{&o.batch, 1});
  rows.add({"only"}, "PART", kProblem, "the suite's problems whose names hold PART", &o.only);
  rows.add({"dtype"}, "DTYPE,...", kProblem, "a list, or all; float32 by default", List{&o.dtype},
           {.values = computed_dtypes});
  rows.add({"algorithm", 'a'}, "NAME,...", kExecution,
           "a list, auto (the default), or all that can compute the problem", List{&o.algorithm},
           {.values = algorithms});
  rows.add({"threads", 't'}, "N,...", kExecution, "a list; 0, the default, is all",
           List{&o.threads});
  rows.add({"warmup"}, "N", kMeasurement, "runs that are not measured; 1 by default",
           Whole{&o.warmup, 0, kMuch});
  rows.add({"repeat"}, "N", kMeasurement, "least number of measured runs; 10 by default",
           Whole{&o.repeat, 1, kMuch});
  rows.add({"min-time"}, "S", kMeasurement,
           "least total of measured runs, in seconds; 0.5 by default", &o.min_time);
  rows.add({"no-peaks"}, "", kMeasurement, "do not measure the machine's peaks", &o.no_peaks);
  add_backend(rows, o.execution);
  add_memory_limit(rows, o.execution);
  add_report(rows, o);
}

void add_generate(Rows& rows, GenerateOptions& o) {
  rows.add({.name = "op", .place = "OP"}, "NAME", kProblem,
           "conv2d, depthwise, conv3d or conv1d, or TensorFlow's op name", &o.problem.op,
           {.values = operations, .usual = true, .about = operation});
  add_shape(rows, o, {.name = "shape", .alias = "input-shape"}, "shape of x in data-format order");
  add_problem(rows, o.problem, kProblem);
  rows.add({"from"}, "FILE", kProblem,
           "a dy, for --signs alone: --output gets it with other signs; - is stdin", &o.from,
           {.variable = false, .file = read});
  rows.add({"signs"}, "S", kProblem,
           "each pixel of --from times a random +1 or -1, for verify --signs", Whole{&o.signs},
           {.usual = true, .variable = false});
  rows.add({"dtype"}, "DTYPE", kProblem,
           "float16, bfloat16, float32 (default) or float64; of --from: as --out-backprop-dtype",
           &o.dtype, {.values = stored_dtypes});
  rows.add({"dist"}, "int|normal|uniform|adversarial", kProblem,
           "distribution of the elements; int, the default, has exact gradients", Choice{&o.dist},
           {.usual = true});
  rows.add({"seed"}, "S", kProblem, "the same files for the same seed, anywhere; 1 by default",
           Whole{&o.seed});
  rows.add({"nonfinite"}, "", kProblem, "a NaN and an infinity in each tensor", &o.nonfinite);
  add_attributes(rows, o.problem);
  rows.add({"output", 'o'}, "DIR|FILE", kOutput,
           "folder for input.npy, out_backprop.npy and gradient.npy; a file with --signs",
           &o.problem.output, {.variable = false, .file = written});
  rows.add({.name = "clobber", .off = "no-clobber"}, "", kOutput,
           "replace files that are there; off by default", &o.clobber);
  rows.add({"dry-run"}, "", kExecution, "print shapes and bytes; write nothing",
           &o.execution.dry_run);
  add_threads(rows, o.execution);
  add_memory_limit(rows, o.execution);
  add_report(rows, o);
}

void add_reduce(Rows& rows, ReduceOptions& o) {
  rows.add({.place = "PARTS"}, "FILE...", "", "what --batch-range has written, in any order",
           &o.parts, {.file = read});
  add_output(rows, o.problem);
  add_raw(rows, o.execution);
  add_no_clobber(rows, o.execution);
  add_verbose(rows, o.execution, "files and timings on stderr");
  add_report(rows, o);
}

void add_inspect(Rows& rows, InspectOptions& o) {
  rows.add({.place = "FILES"}, "FILE...", "", "- is stdin", &o.paths, {.file = read});
  add_report(rows, o);
}

void add_info(Rows& rows, InfoOptions& o) {
  rows.add({"peaks"}, "", kExecution, "measure multiply-adds and memory; takes a second", &o.peaks,
           {.usual = true});
  add_threads(rows, o.execution);
  add_report(rows, o);
}

void add_completion(Rows& rows, CompletionOptions& o) {
  rows.add({.place = "shell"}, "bash|zsh", "", "the shell that reads them", Choice{&o.shell});
}

template <typename Own>
Command command(const char* name, const char* help, const char* footer, Own& options,
                void (*add_rows)(Rows&, Own&)) {
  Command result = {name, help, footer, options, {}};
  add_rows(result.rows, options);
  return result;
}

Command compute_command(Options& o) {
  return command("compute", "", kComputeFooter, o, add_compute);
}

Command verify_command(VerifyCommand& o) {
  return command("verify", "check a gradient against the reference", kVerifyFooter, o, add_verify);
}

}  // namespace

std::vector<Command> job_commands(VerifyCommand& options) {
  return {compute_command(options), verify_command(options)};
}

std::vector<Command> commands_of(AllOptions& all) {
  return {compute_command(all.compute),
          verify_command(all.verify),
          command("compare", "compare two arrays of any shape", kCompareFooter, all.compare,
                  add_compare),
          command("batch", "compute or verify many problems, one a line", kBatchFooter, all.batch,
                  add_batch),
          command("bench", "measure the speed of gradients", kBenchFooter, all.bench, add_bench),
          command("generate", "make x, dy and their golden gradient", kGenerateFooter, all.generate,
                  add_generate),
          command("reduce", "add the parts of a batch to its gradient", kReduceFooter, all.reduce,
                  add_reduce),
          command("inspect", "say what .npy files and archives hold", kInspectFooter, all.inspect,
                  add_inspect),
          command("info", "say what this program and this machine can do", kInfoFooter, all.info,
                  add_info),
          command("completion", "print completions for a shell", kCompletionFooter, all.completion,
                  add_completion)};
}

}  // namespace convgrad::cli
