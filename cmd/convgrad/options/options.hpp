// options.hpp - everything the command line can say.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace convgrad::cli {

// Number lists stay as they are spelled until parse_numbers() can name the flag in its message.
using Words = std::vector<std::string>;

struct ProblemOptions {
  std::string line;  // the whole problem but its files, instead of op and attributes
  std::string op, input, out_backprop, output;
  std::string input_dtype, out_backprop_dtype;  // of files that cannot say it
  Words filter_sizes, kernel, strides, dilations, explicit_paddings;
  std::string filter_like, padding, data_format, filter_format, out_dtype;
  std::string filter_like_flag = "--filter-like";  // whose file it is
  Words groups;                                    // one number
  bool use_cudnn_on_gpu = true;
  std::string dtype;  // of a batch's job: what its tensors must give, or ""
};

struct ExecutionOptions {
  std::string backend = "auto", algorithm = "auto";
  std::optional<int> device;  // 0 if it is not given
  int threads = 0;
  std::uint64_t memory_limit = 0;
  bool list_algorithms = false, dry_run = false, accumulate = false, no_clobber = false;
  bool raw = false;  // the output's elements alone
  bool verbose = false;
  std::optional<std::int64_t> spot_check;
  std::string batch_range;  // "A:B" or "K/R"
  bool mpi = false;         // this is one of mpirun's processes; of compute
};

// Says how elements are judged; at most one way is given.
struct CriterionOptions {
  std::optional<double> rtol, atol;
  std::optional<std::int64_t> max_ulp;
  bool bitwise = false;
};

// Holds the shapes of tensors that are made, not read.
struct ShapeOptions {
  Words input_shape;
  std::int64_t out_channels = 0, multiplier = 0;  // 0: not given
};

// Holds a file and the flag, or the place on the command line, that names it. An updated one is
// read, or written with --update-NAME.
enum class FileUse { no, read, written, updated };
struct NamedFile {
  std::string flag, path;
  FileUse use = FileUse::no;  // read or written
};

// Holds a flag that was given, and what it tells of a problem.
enum class About { other, operation, format };
struct GivenFlag {
  std::string name;  // "--strides"
  About about = About::other;
};

// Holds what all commands have, or some in common; the main job has no more.
struct Options {
  ProblemOptions problem;
  ExecutionOptions execution;
  std::string json;  // "" no report, "-" standard output, else a file
  Words tag_words;   // of the report, KEY=VALUE
  std::string color = "auto";
  bool quiet = false;

  std::string command_line;  // that repeats this, with the variables that had a say

  std::vector<NamedFile> files;  // all but the report
  std::vector<GivenFlag> given;  // not by variables
  // Holds the variables that gave options, not flags: "--strides" -> "CONVGRAD_STRIDES".
  std::map<std::string, std::string> variables;

  // Returns the values by key; of a key that is given twice, the last one counts.
  std::map<std::string, std::string> tags() const {
    std::map<std::string, std::string> tags;
    for (const std::string& word : tag_words) {
      const std::size_t equals = word.find('=');
      tags[word.substr(0, equals)] = word.substr(equals + 1);
    }
    return tags;
  }

  // Is called with the part of a job that is done, from 0 to 1; the job then draws no line itself.
  std::function<void(double)> on_progress;
};

struct VerifyOptions : CriterionOptions {
  Words results;  // files
  std::string golden, criterion, adders, order, diagnosis, accept;
  std::optional<double> slack;
  std::optional<std::int64_t> longest_sum, sample, seed, show, signs;
  std::string accumulated_on;  // a file
  std::optional<double> alpha, beta;
  bool update_golden = false, fail_vacuous = false, fail_assumed = false;
  std::string save_diff;  // a file
};

// Holds the options of verify. A job of a batch has them too, whichever command it runs.
struct VerifyCommand : Options {
  VerifyOptions verify;
};

struct CompareOptions : Options, CriterionOptions {
  std::string got, want, save_diff;
  bool equal_nan = true;
};

// Lists ("float32,bfloat16") stay as they are spelled; "" means that none is given.
struct BenchOptions : Options, ShapeOptions {
  std::string suite, network, only, dtype, algorithm, threads;
  std::optional<std::int64_t> batch;
  std::int64_t warmup = 1, repeat = 10;
  double min_time = 0.5;
  bool no_peaks = false, list_suites = false;
};

struct GenerateOptions : Options, ShapeOptions {
  std::string dist = "int", dtype, from;
  std::int64_t seed = 1;
  std::optional<std::int64_t> signs;
  bool nonfinite = false, clobber = false;
};

struct BatchOptions : Options {
  std::string manifest, match, shard, state, junit;  // shard: "K/R"
  int jobs = 1;                                      // at a time; 0: one for each thread
  bool keep_going = false, resume = false, fail_vacuous = false;
};

struct ReduceOptions : Options {
  Words parts;
};
struct InspectOptions : Options {
  Words paths;
};
struct InfoOptions : Options {
  bool peaks = false;
};
struct CompletionOptions : Options {
  std::string shell;
};

inline constexpr std::int64_t kMostThreads = 4096;
// Each job has some files open, and systems often allow 1024.
inline constexpr std::int64_t kMostJobs = 128;

}  // namespace convgrad::cli
