// batch_files.cpp - the files of all jobs, and which of them must not meet.
#include <unistd.h>

#include <algorithm>
#include <unordered_map>

#include "batch/batch.hpp"
#include "job/job_files.hpp"
#include "options/arguments.hpp"

namespace convgrad::cli {
namespace {

// One key means one file.
struct KeyedFile {
  std::string field, path, key;
};
using KeyedFiles = std::vector<KeyedFile>;

KeyedFiles keyed_files(const BatchJob& job, FileUse use) {
  KeyedFiles files;
  for (const NamedFile& file : files_of(job.options, use)) {
    files.push_back({as_field(file.flag), file.path, tensor_key(file.path)});
  }
  std::erase_if(files, [](const KeyedFile& file) { return file.key.empty(); });
  return files;
}

// Gives the line of an earlier job by the key of its file.
using Lines = std::unordered_map<std::string, std::int64_t>;

// Returns why the job cannot have its files beside those of earlier jobs, or "".
std::string conflict(const KeyedFiles& read, const KeyedFiles& written, const Lines& readers,
                     const Lines& writers) {
  constexpr const char* kAnyOrder =
      ", and jobs run in any order; move this line to another list, to be run by itself";
  for (const KeyedFile& file : written) {
    const std::string what = cat(file.field, ": ", file.path);
    const auto writer = writers.find(file.key);
    if (writer != writers.end()) return cat(what, " is that of line ", writer->second, " too");
    const auto reader = readers.find(file.key);
    if (reader != readers.end()) return cat(what, " is read by line ", reader->second, kAnyOrder);
    const auto own = std::ranges::find(read, file.key, &KeyedFile::key);
    if (own != read.end()) {
      return cat(what, " is the job's ", own->field, " too, so it could not be run again");
    }
  }
  for (const KeyedFile& file : read) {
    const auto writer = writers.find(file.key);
    if (writer == writers.end()) continue;
    return cat(file.field, ": ", file.path, " is written by line ", writer->second, kAnyOrder);
  }
  return "";
}

// Holds the batch's own files by key, with what they are called in messages.
using Names = std::unordered_map<std::string, std::string>;

// Throws Error(usage) if `names` has the file already. `hyphen` is what "-" stands for.
void claim(Names& names, const std::string& path, int hyphen, const std::string& what) {
  const std::string key = file_key(path, hyphen);
  if (key.empty()) return;
  const auto [found, is_new] = names.emplace(key, what);
  if (is_new) return;
  misuse(what, ": ", path, " is ", found->second, " too", Hint("name another file"));
}

}  // namespace

void refuse_conflicts(Manifest& manifest) {
  Lines readers, writers;
  for (BatchJob& job : manifest.jobs) {
    const KeyedFiles read = keyed_files(job, FileUse::read);
    const KeyedFiles written = keyed_files(job, FileUse::written);
    if (!job.is_refused()) job.refused = conflict(read, written, readers, writers);
    for (const KeyedFile& file : read) readers.emplace(file.key, job.line);
    for (const KeyedFile& file : written) writers.emplace(file.key, job.line);
  }
}

void check_own_files(const BatchOptions& options, const Manifest& manifest) {
  Names own;
  claim(own, options.manifest, STDIN_FILENO, "the manifest");
  claim(own, options.state, STDOUT_FILENO, "--state");
  claim(own, options.junit, STDOUT_FILENO, "--junit");
  claim(own, options.json, STDOUT_FILENO, "--json");
  for (const BatchJob& job : manifest.jobs) {
    KeyedFiles files = keyed_files(job, FileUse::read);
    std::ranges::move(keyed_files(job, FileUse::written), std::back_inserter(files));
    for (const KeyedFile& file : files) {
      const auto found = own.find(file.key);
      if (found == own.end()) continue;
      misuse(found->second, ": ", file.path, " is the ", file.field, " of ",
             place_of(manifest, job), " too", Hint("name another file"));
    }
  }
}

}  // namespace convgrad::cli
