// shared_options.cpp - see shared_options.hpp.
#include "options/shared_options.hpp"

namespace convgrad::cli {

CLI::Option* text(CLI::App& app, const std::string& names, std::string& value,
                  const std::string& type, const std::string& help, const char* group) {
  return option(app, names, value, type, help, group, not_a_flag());
}

CLI::Option* flag(CLI::App& app, const std::string& names, bool& value, const std::string& help,
                  const char* group) {
  return app.add_flag(names, value, help)
      ->group(group)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->check(truth());
}

CLI::Option* numbers(CLI::App& app, const std::string& names, Words& value, const std::string& type,
                     const std::string& help, const char* group) {
  return app.add_option(names, value, help)
      ->type_name(type)
      ->group(group)
      ->expected(1, 16)
      ->type_size(1)
      ->allow_extra_args(false);  // else CLI11 cuts "[3,,3]" itself, and drops what is empty
}

void add_tensors(CLI::App& app, ProblemOptions& o) {
  text(app, "-i,--input", o.input, "FILE",
       "x: NHWC, NCHW, ...: .npy, FILE.npz:NAME, or raw FILE:DTYPE[N,H,W,C]; - is stdin", kTensors);
  text(app, "-g,--out-backprop", o.out_backprop, "FILE", "dy, in the same layout; - is stdin",
       kTensors);
  text(app, "--input-dtype", o.input_dtype, "DTYPE",
       "of x, where its file holds uint16 or raw bytes instead: bfloat16, float8_e4m3fn, ...",
       kTensors);
  text(app, "--out-backprop-dtype", o.out_backprop_dtype, "DTYPE", "the same for dy", kTensors);
}

void add_output(CLI::App& app, ProblemOptions& o) {
  text(app, "-o,--output", o.output, "FILE",
       "filter gradient: FILE.npy, FILE.npz[:NAME], FILE.safetensors[:NAME]; - is "
       "stdout",
       kTensors);
}

void add_attributes(CLI::App& app, ProblemOptions& o) {
  numbers(app, "--filter-sizes", o.filter_sizes, "R,S,C,K|FILE",
          "shape of the gradient in TensorFlow's order, as numbers or an integer .npy");
  numbers(app, "-k,--kernel", o.kernel, "R,S", "taps alone; the channels follow from the tensors");
  text(app, "--filter-like", o.filter_like, "FILE", "a filter .npy whose shape is the gradient's",
       kOperation);
  numbers(app, "-s,--strides", o.strides, "SH,SW", "1 by default");
  text(app, "-p,--padding", o.padding, "PADDING",
       "SAME, VALID, EXPLICIT, or numbers: 1 or 1,2 as PyTorch has them, or pairs", kOperation);
  numbers(app, "--explicit-paddings", o.explicit_paddings, "B,A,...",
          "(before, after) for each spatial axis, or for every axis in data-format order");
  numbers(app, "-d,--dilations", o.dilations, "DH,DW", "1 by default");
  text(app, "-f,--data-format", o.data_format, "FORMAT",
       "NHWC (default) or NCHW; NDHWC or NCDHW; NWC or NCW; or channels_last, channels_first",
       kOperation);
  numbers(app, "--groups", o.groups, "G", "checked against the shapes; needed only with --kernel")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  text(app, "--filter-format", o.filter_format, "FORMAT",
       "order of the gradient's axes: HWIO (default), OIHW or OHWI; D before H in 3-D, "
       "no H in 1-D; or RSCK, KCRS, KRSC",
       kOperation);
  text(
      app, "--out-dtype", o.out_dtype, "DTYPE",
      "dtype of the gradient: float16, bfloat16, float32 or float64; default the inputs', if alike",
      kOperation);
  flag(app, "--use-cudnn-on-gpu,!--no-use-cudnn-on-gpu", o.use_cudnn_on_gpu,
       "accepted for TensorFlow's sake; has no effect", kOperation);
}

void add_operation(CLI::App& app, ProblemOptions& o) {
  text(app, "--op", o.op, "OP",
       "conv2d, depthwise, conv3d or conv1d, or what TensorFlow or PyTorch calls it", kOperation);
  add_attributes(app, o);
}

void add_problem(CLI::App& app, ProblemOptions& o) {
  add_tensors(app, o);
  add_output(app, o);
  add_operation(app, o);
}

void add_shape(CLI::App& app, ShapeOptions& o, const char* names, const char* help) {
  numbers(app, names, o.input_shape, "N,H,W,C", help, kProblem);
  const CLI::Validator extent = whole_number(1, std::int64_t{1} << 31);
  option(app, "--out-channels", o.out_channels, "K", "channels of dy, with --kernel", kProblem,
         extent);
  option(app, "--multiplier", o.multiplier, "M", "the same for depthwise: K = C*M; 1 by default",
         kProblem, extent);
  text(app, "--problem", o.problem, "LINE",
       "all of it as benchdnn (mb8ic64ih28oc128kh3ph1) or MIOpenDriver (conv -n 8 ...) has it",
       kProblem);
}

void add_threads(CLI::App& app, ExecutionOptions& o, const std::string& help) {
  option(app, "-t,--threads", o.threads, "N", help, kExecution, whole_number(0, kMostThreads));
}

void add_memory_limit(CLI::App& app, ExecutionOptions& o, const std::string& help) {
  app.add_option("--memory-limit", o.memory_limit, help)
      ->type_name("SIZE")
      ->group(kExecution)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->transform(memory_size());
}

void add_backend(CLI::App& app, ExecutionOptions& o) {
  text(app, "-b,--backend", o.backend, "BACKEND", "auto, cpu, cuda or reference", kExecution);
  option(app, "--device", o.device, "N", "CUDA device number", kExecution, whole_number(0, 4095));
}

void add_raw(CLI::App& app, ExecutionOptions& o) {
  flag(app, "--raw", o.raw, "--output gets the elements alone: little endian, C order, no header",
       kTensors);
}

void add_execution(CLI::App& app, ExecutionOptions& o) {
  add_backend(app, o);
  add_threads(app, o);
  text(app, "-a,--algorithm", o.algorithm, "NAME", "a row of --list-algorithms, or auto",
       kExecution);
  flag(app, "--list-algorithms", o.list_algorithms,
       "print the algorithms and, if a problem is given, which of them can compute it", kExecution);
  add_memory_limit(app, o);
  flag(app, "--dry-run", o.dry_run, "print the plan, FLOPs, bytes and memory; compute nothing",
       kExecution);
  flag(app, "--accumulate", o.accumulate, "add the gradient to what --output holds", kExecution);
  flag(app, "--no-clobber", o.no_clobber, "fail if --output exists", kExecution);
  add_raw(app, o);
  flag(app, "-v,--verbose", o.verbose, "plan and timings on stderr", kReporting);
}

void add_criteria(CLI::App& app, CriterionOptions& o) {
  option(app, "--rtol", o.rtol, "X", "pass if |got-want| <= atol + rtol*|want|", kComparison,
         tolerance());
  option(app, "--atol", o.atol, "X", "see --rtol; the one that is not given is 0", kComparison,
         tolerance());
  option(app, "--max-ulp", o.max_ulp, "N",
         "pass if at most N steps between numbers of the dtype apart", kComparison,
         whole_number(0, kAnyWhole));
  flag(app, "--bitwise", o.bitwise, "pass if every bit is equal (any NaN equals any NaN)",
       kComparison);
}

void add_difference(CLI::App& app, std::string& save_diff) {
  text(app, "--save-diff", save_diff, "FILE",
       "got - want as .npy, 0 where they are equal: float32, or float64 if one of them is",
       kOutput);
}

void add_json(CLI::App& app, Options& o) {
  app.add_flag("--json{-}", o.json, "report as JSON on stdout, or --json=FILE")
      ->group(kReporting)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void add_common(CLI::App& app, Options& o, const std::string& footer) {
  add_json(app, o);
  app.add_option("--tag", o.tag_words, "kept with the report and in CSV; again for more")
      ->type_name("KEY=VALUE")
      ->group(kReporting)
      ->expected(1)
      ->check(tag())
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.footer(footer);
}

}  // namespace convgrad::cli
