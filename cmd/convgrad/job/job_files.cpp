// job_files.cpp - see job_files.hpp.
#include "job/job_files.hpp"

#include <sys/stat.h>

#include <filesystem>

#include "convgrad/error.hpp"
#include "convgrad/tensor_name.hpp"
#include "options/arguments.hpp"
#include "options/refuse.hpp"
#include "report/report.hpp"
#include "report/svg.hpp"

namespace convgrad::cli {

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
  if (file.empty() || tensor.empty() || file == "-" || is_standard_input(tensor)) return false;
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
      {"--golden", &options.verify.golden},
      {"GOT", &options.compare.got},
      {"WANT", &options.compare.want},
      {"--save-diff", &options.compare.save_diff},
      {"--heatmap", &options.compare.heatmap},
      {"--save-diff", &options.verify.save_diff},
      {"--heatmap", &options.verify.heatmap},
      {"--suite", &options.bench.suite},
      {"--baseline", &options.bench.baseline},
      {"--plot", &options.bench.plot},
      {"--plot-peers", &options.bench.plot_peers},
      {"--config", &options.config}};
  const auto check = [&](const char* flag, const std::string& path) {
    if (same_file(options.json, path)) {
      throw Error(ErrorKind::usage, "--json=", options.json, " is the ", flag,
                  " file too; name another file for the report");
    }
  };
  for (const auto& [flag, path] : files) check(flag, *path);
  for (const std::string& result : options.verify.results) check("--result", result);
  if (!options.json.empty()) check_report_file(options.json);
}

namespace {

// By a gradient: most often it is a slip, and a gradient cannot be turned back into a tensor.
void check_tensors_are_kept(const Options& options) {
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
    if (!same_file(o.output, *argument)) continue;
    const char* what = is_archive_name(split_tensor_name(*argument).file) ? " is the archive of "
                                                                          : " is the file of ";
    throw Error(ErrorKind::usage, "--output: ", o.output, what, flag,
                ", which the gradient would replace; name another file");
  }
}

}  // namespace

void check_stdout_is_free(const Options& options) {
  check_tensors_are_kept(options);
  if (options.problem.output == "-" && options.json == "-") {
    throw Error(ErrorKind::usage,
                "--json and --output - both write to standard output; use --json=FILE");
  }
}

void check_difference(const DifferenceOptions& o, const Words& tensors, const std::string& what) {
  const std::pair<const char*, const std::string*> files[] = {{"--save-diff", &o.save_diff},
                                                              {"--heatmap", &o.heatmap}};
  for (const auto& [flag, path] : files) {
    if (path->empty()) continue;
    if (*path == "-") misuse(flag, " -: standard output is for the verdict; name a file");
    for (const std::string& tensor : tensors) {
      if (same_file(*path, tensor)) misuse(flag, ": ", *path, " ", what, "; name another file");
    }
  }
  if (same_file(o.save_diff, o.heatmap)) {
    misuse("--save-diff and --heatmap: ", o.heatmap, " is given for both; name two files");
  }
  check_picture_name("--heatmap", o.heatmap);
}

}  // namespace convgrad::cli
