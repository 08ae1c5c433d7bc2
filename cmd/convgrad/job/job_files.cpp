#include "job/job_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "files/tensor_source.hpp"
#include "options/arguments.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

std::string file_key(const std::string& path, int hyphen) {
  namespace fs = std::filesystem;
  if (path.empty()) return "";
  struct stat status {};
  const bool is_stream = path == "-";
  if ((is_stream ? ::fstat(hyphen, &status) : ::stat(path.c_str(), &status)) == 0) {
    return S_ISREG(status.st_mode) ? cat(status.st_dev, ":", status.st_ino) : "";
  }
  if (is_stream) return "";
  std::error_code ignored;
  fs::path name = fs::absolute(path, ignored);
  constexpr int kMaxLinks = 40;                                           // the kernel's limit
  for (int i = 0; i < kMaxLinks && fs::is_symlink(name, ignored); ++i) {  // links to nothing yet
    name = name.parent_path() / fs::read_symlink(name, ignored);
  }
  return fs::weakly_canonical(name, ignored).string();
}

std::string tensor_key(const std::string& name, int hyphen) {
  return file_key(split_tensor_name(name).file, hyphen);
}

bool same_file(const std::string& written, const std::string& other, int hyphen) {
  const std::string key = tensor_key(written, STDOUT_FILENO);
  return !key.empty() && key == tensor_key(other, hyphen);
}

std::vector<NamedFile> files_of(const Options& options, FileUse use) {
  std::vector<NamedFile> files = options.files;
  std::erase_if(files, [&](const NamedFile& file) { return file.use != use || file.path.empty(); });
  return files;
}

namespace {

// Opens a device without waiting for its line, and without making it this process's terminal.
bool is_terminal(const std::string& path) {
  if (path == "-") return ::isatty(STDOUT_FILENO) == 1;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISCHR(status.st_mode)) return false;
  const int file = ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  const bool result = ::isatty(file) == 1;
  if (file >= 0) ::close(file);
  return result;
}

}  // namespace

void check_standard_input(const Options& options) {
  const auto is_stream = [](const NamedFile& file) { return is_standard_input(file.path); };
  if (std::ranges::count_if(files_of(options, FileUse::read), is_stream) > 1) {
    misuse("- is given twice, expected one array on standard input");
  }
}

void check_report_replaces_nothing(const Options& options) {
  // Both on standard output is another error, which a report there may tell.
  const bool are_one_stream = options.json == "-" && options.problem.output == "-";
  for (const auto& [flag, path, use] : options.files) {
    const bool is_read = use == FileUse::read;
    if (!is_read && are_one_stream) continue;
    if (!same_file(options.json, path, is_read ? STDIN_FILENO : STDOUT_FILENO)) continue;
    misuse("--json=", options.json, " is the ", flag, " file too",
           Hint("name another file for the report"));
  }
  if (!options.json.empty() && options.json != "-") {
    check_replaceable("--json=", options.json, "{\n  \"schema\": \"convgrad.report",
                      "report of convgrad");
  }
}

void check_is_not_read(const std::string& flag, const std::string& file, const Options& options) {
  for (const auto& [other, path, use] : files_of(options, FileUse::read)) {
    if (!same_file(file, path, STDIN_FILENO)) continue;
    const char* what =
        is_archive_name(split_tensor_name(path).file) ? " is the archive of " : " is the file of ";
    misuse(flag, ": ", file, what, other, ", which would be replaced", Hint("name another file"));
  }
}

void check_files_are_kept(const Options& options) {
  const std::vector<NamedFile> written = files_of(options, FileUse::written);
  for (auto file = written.begin(); file != written.end(); ++file) {
    check_is_not_read(file->flag, file->path, options);
    for (auto before = written.begin(); before != file; ++before) {
      if (!same_file(file->path, before->path, STDOUT_FILENO)) continue;
      misuse(file->flag, ": ", file->path, " is the file of ", before->flag, " too",
             Hint("name two files"));
    }
  }
}

void refuse_terminals(const Options& options) {
  if (options.execution.dry_run) return;
  for (const auto& [flag, path, use] : files_of(options, FileUse::written)) {
    if (!is_terminal(path)) continue;
    misuse(flag, ": ", path, " is a terminal, and arrays are not text", Hint("name a file"));
  }
}

void check_outputs(const Options& options) {
  const std::string& output = options.problem.output;
  check_files_are_kept(options);
  if (output == "-" && options.json == "-") {
    misuse("--json and --output - both write to standard output", Hint("use --json=FILE"));
  }
  refuse_terminals(options);
  if (!output.empty()) gradient_target(options);
}

OutputOptions gradient_options(const Options& options) {
  return {options.execution.no_clobber, options.execution.raw};
}

ArrayTarget gradient_target(const Options& options) {
  return array_target(options.problem.output, options.execution.raw);
}

void warn_of_endings(const Options& options) {
  for (const auto& [flag, path, use] : files_of(options, FileUse::written)) {
    const bool raw = options.execution.raw && path == options.problem.output;
    const bool stream = path == "-" || is_special(path);
    if (raw || stream || path.ends_with(".npy")) continue;
    if (array_target(path).format != ArrayFormat::npy) continue;
    say(options, "warning",
        cat(flag, ": ", one_line(path), " is written as .npy, though it does not end with .npy",
            path == options.problem.output ? " (--raw writes the elements alone)" : ""));
  }
}

void check_difference(const std::string& save_diff) {
  if (save_diff == "-") {
    misuse("--save-diff -: standard output is for the verdict", Hint("name a file"));
  }
}

}  // namespace convgrad::cli
