// options.hpp - everything the command line can say. The structs know nothing of CLI11.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace convgrad::cli {

// Number lists stay as they are spelled until parse_numbers() can name the flag in its message.
using Words = std::vector<std::string>;

struct ProblemOptions {
  std::string op, input, out_backprop, output;
  Words filter_sizes, kernel, strides, dilations, explicit_paddings;
  std::string filter_like, padding, data_format, filter_format, out_dtype;
  Words groups;  // one number
  bool use_cudnn_on_gpu = true;
};

struct ExecutionOptions {
  std::string backend = "auto", algorithm = "auto";
  std::optional<int> device;  // 0 if it is not given
  int threads = 0;
  std::uint64_t memory_limit = 0;
  bool list_algorithms = false, dry_run = false, accumulate = false, no_clobber = false;
  bool verbose = false;
  std::string batch_range;  // "A:B" or "K/R"
  bool mpi = false;         // this is one of mpirun's processes
};

// How elements are judged; at most one way is given.
struct CriterionOptions {
  std::optional<double> rtol, atol;
  std::optional<std::int64_t> max_ulp;
  bool bitwise = false;
  std::string reference = "full";  // or adjoint
  std::optional<std::int64_t> sample, seed, repeat_check;
  bool update_golden = false, diagnosis = true;
  std::string save_repro;  // a folder
};

struct VerifyOptions : CriterionOptions {
  std::string result, golden;
};

struct CompareOptions : CriterionOptions {
  std::string got, want, save_diff, heatmap, filter_format;
  bool equal_nan = true, quiet = false;
};

// The shapes of tensors that are made, not read.
struct ShapeOptions {
  Words input_shape;
  std::int64_t out_channels = 0, multiplier = 0;  // 0: not given
};

// Lists ("float32,bfloat16") stay as they are spelled; "" is not given.
struct BenchOptions : ShapeOptions {
  std::string suite, only, dtype, algorithm, threads, format, baseline, max_slowdown;
  std::int64_t warmup = 1, repeat = 10;
  double min_time = 0.5;
  bool no_peaks = false;
};

struct GenerateOptions : ShapeOptions {
  std::string dist = "int", dtype = "float32";
  std::int64_t seed = 1;
  bool nonfinite = false, clobber = false;
};

struct BatchOptions {
  std::string manifest, match, state, junit;
  int jobs = 1;  // at a time; 0: one for each thread
  bool keep_going = false, resume = false;
};

struct Options {
  ProblemOptions problem;
  ExecutionOptions execution;
  VerifyOptions verify;
  CompareOptions compare;
  BenchOptions bench;
  GenerateOptions generate;
  BatchOptions batch;
  Words inspect_files, reduce_files;
  bool info_peaks = false;
  std::string completion_shell;
  std::string json;  // "" no report, "-" standard output, else a file
  std::string color = "auto";
  std::string config;  // TOML file

  std::string command_line;  // that repeats this, with the variables that had a say

  // Where options came from that no flag gave: "--strides" -> "CONVGRAD_STRIDES".
  std::map<std::string, std::string> origins;
  // The CONVGRAD_* variables that had a say, with their values.
  std::vector<std::pair<std::string, std::string>> variables;

  // How far a job has come, from 0 to 1, instead of a line of its own on the terminal.
  std::function<void(double)> on_progress;
};

inline constexpr std::int64_t kMostThreads = 4096;
// Each has some files open, and systems often allow 1024.
inline constexpr std::int64_t kMostJobs = 128;

// Binds every option and subcommand of the program.
void bind_options(CLI::App& app, Options& options);

// Sets an option as if the words had been given on the command line, with the same checks;
// Error(usage) that names it otherwise.
void set_option(CLI::Option& option, const std::string& name, const Words& words);

// "3,3", "3 3" and "[3,3]" as numbers; Error(usage) that names the flag otherwise.
std::vector<std::int64_t> parse_numbers(const std::string& flag, const Words& words);

// Fills options that the command line did not give from CONVGRAD_* variables, then from the
// --config file. command is the app or subcommand that runs.
void apply_environment_and_config(CLI::App& app, CLI::App& command, Options& options);

// True if --filter-sizes names a file instead of giving numbers.
bool is_file_name(const Words& filter_sizes);

// "--filter_sizes=..." as "--filter-sizes=...": hyphens and underscores mean the same.
std::string with_hyphens(const std::string& argument);
// The arguments as bind_options() wants them: with hyphens, and the beginnings of lists marked.
std::vector<std::string> prepared(const std::vector<std::string>& arguments);
// The last value that words give to a long option; word is what it means without one. For what has
// to be known although the command line cannot be parsed.
std::string last_value(const std::vector<std::string>& words, const std::string& option,
                       const std::string& word = "");
// "-v" and "--dry-run", but not "-" or "-1".
bool looks_like_a_flag(const std::string& word);
// The words of the last list, without marks.
Words last_list(const Words& words);

// A word as a shell takes it, in quotes if it must be.
std::string shell_quoted(const std::string& word);

// The long names of an app's options, "--op", "--strides", ...
std::vector<std::string> option_names(const CLI::App& app);

}  // namespace convgrad::cli
