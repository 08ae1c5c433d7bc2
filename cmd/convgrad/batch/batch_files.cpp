// batch_files.cpp - the files of all jobs: who writes what another reads, and what must not meet.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "batch/batch.hpp"
#include "convgrad/tensor_name.hpp"
#include "job/job_files.hpp"
#include "options/arguments.hpp"
#include "options/refuse.hpp"

namespace convgrad::cli {
namespace {

// The files of a batch by key, with what they are called in messages.
using Names = std::unordered_map<std::string, std::string>;

// hyphen: what "-" stands for.
void claim(Names& names, const std::string& path, int hyphen, const std::string& what) {
  const std::string key = file_key(path, hyphen);
  if (key.empty()) return;
  const auto [found, is_new] = names.emplace(key, what);
  if (is_new) return;
  misuse(what, ": ", path, " is ", found->second, " too; name another file");
}

using Lines = std::unordered_map<std::string, std::int64_t>;  // of jobs, by the key of a file

// A folder or file that no other job may write, and none may read.
struct Written {
  const char* field;
  std::string path, key;
};

struct Files {
  std::string output;
  std::vector<Written> others;
  std::vector<std::string> inputs;
};

Files files_of(const BatchJob& job) {
  Files files;
  const std::string& output = job.options.problem.output;
  if (!output.empty()) files.output = tensor_key(output);
  const VerifyOptions& v = job.options.verify;
  std::error_code ignored;  // a folder, which file_key() does not tell from a device
  if (!v.save_repro.empty()) {
    files.others.push_back({"save_repro", v.save_repro,
                            std::filesystem::weakly_canonical(v.save_repro, ignored).string()});
  }
  if (!v.save_diff.empty()) {
    files.others.push_back({"save_diff", v.save_diff, tensor_key(v.save_diff)});
  }
  for (const auto& [field, path] : job.inputs) files.inputs.push_back(tensor_key(path));
  return files;
}

// "" or why the job cannot have that output.
std::string output_conflict(const BatchJob& job, const Files& files, const Lines& writers,
                            const FirstReads& reads) {
  for (const Written& other : files.others) {
    const auto writer = writers.find(other.key);
    if (writer != writers.end()) {
      return cat(other.field, ": ", other.path, " is that of line ", writer->second, " too");
    }
    const auto read = reads.find(other.key);
    if (read == reads.end()) continue;
    return cat(other.field, ": ", other.path, " is read by line ", read->second.line);
  }
  if (files.output.empty()) return "";
  const std::string& path = job.options.problem.output;
  const auto writer = writers.find(files.output);
  if (writer != writers.end()) {
    return cat("output: ", path, " is that of line ", writer->second, " too");
  }
  for (std::size_t i = 0; i < files.inputs.size(); ++i) {
    if (files.inputs[i] == files.output) {
      return cat("output: ", path, " is the job's ", job.inputs[i].first,
                 " too, so it could not be run again");
    }
  }
  const auto read = reads.find(files.output);
  if (read == reads.end() || read->second.is_made || read->second.line > job.line) return "";
  return cat("output: ", path, " is read by line ", read->second.line,
             ", which could not be run again");
}

}  // namespace

FirstReads first_reads(const Manifest& manifest) {
  FirstReads reads;
  std::unordered_set<std::string> written;
  auto bad = manifest.bad.begin();
  for (const BatchJob& job : manifest.jobs) {
    for (; bad != manifest.bad.end() && bad->line < job.line; ++bad) {
      written.insert(tensor_key(bad->output));
    }
    const Files files = files_of(job);
    for (const std::string& key : files.inputs) {
      if (!key.empty()) reads.emplace(key, FirstRead{job.line, written.count(key) != 0});
    }
    written.insert(files.output);
  }
  return reads;
}

BatchOrder order_jobs(Manifest& manifest, const FirstReads& reads) {
  std::vector<BatchJob> jobs;
  std::vector<Files> files;
  Lines writers;
  for (BatchJob& job : manifest.jobs) {
    Files of_job = files_of(job);
    const std::string conflict = output_conflict(job, of_job, writers, reads);
    if (!conflict.empty()) {
      manifest.bad.push_back({job.line, conflict, job.options.problem.output});
      continue;
    }
    if (!of_job.output.empty()) writers.emplace(of_job.output, job.line);
    for (const Written& other : of_job.others) writers.emplace(other.key, job.line);
    files.push_back(std::move(of_job));
    jobs.push_back(std::move(job));
  }
  manifest.jobs = std::move(jobs);
  std::ranges::sort(manifest.bad, {}, &BadLine::line);

  BatchOrder order;
  std::unordered_map<std::string, std::size_t> written;
  std::unordered_map<std::string, std::vector<std::size_t>> read;
  Lines malformed;
  auto bad = manifest.bad.begin();
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (; bad != manifest.bad.end() && bad->line < manifest.jobs[i].line; ++bad) {
      if (!bad->output.empty()) malformed[tensor_key(bad->output)] = bad->line;
    }
    order.needs.emplace_back();
    order.follows.emplace_back();
    order.malformed.push_back(0);
    for (const std::string& key : files[i].inputs) {
      const auto never = malformed.find(key);
      if (!key.empty() && never != malformed.end()) order.malformed[i] = never->second;
      const auto writer = written.find(key);
      if (writer != written.end()) order.needs[i].push_back(writer->second);
      if (!key.empty() && writers.count(key) != 0) read[key].push_back(i);
    }
    if (files[i].output.empty()) continue;
    const auto earlier = read.find(files[i].output);
    if (earlier != read.end()) order.follows[i] = earlier->second;
    written[files[i].output] = i;
    malformed.erase(files[i].output);
  }
  return order;
}

void keep_shard(const std::string& shard, Manifest& manifest, BatchOrder& order) {
  const auto share = parse_share(shard);
  if (!share) return;
  manifest.shard = cat(share->first, "/", share->second);
  // Each job is in the group of the first that it is connected with, through whatever others.
  const std::size_t count = manifest.jobs.size();
  std::vector<std::size_t> up(count);
  const auto group_of = [&](std::size_t i) {
    while (up[i] != i) i = up[i] = up[up[i]];
    return i;
  };
  for (std::size_t i = 0; i < count; ++i) {
    up[i] = i;
    for (const auto* before : {&order.needs[i], &order.follows[i]}) {
      for (const std::size_t j : *before) {
        const std::size_t one = group_of(i), other = group_of(j);
        up[std::max(one, other)] = std::min(one, other);
      }
    }
  }
  Manifest kept{manifest.name, manifest.shard, {}, std::move(manifest.bad)};
  BatchOrder of_kept;
  std::vector<std::size_t> now(count);  // where a job that is kept is then
  std::vector<std::int64_t> parts(count);
  std::int64_t groups = 0;
  for (std::size_t i = 0; i < count; ++i) {
    parts[i] = group_of(i) == i ? groups++ % share->second : parts[group_of(i)];
    if (parts[i] != share->first - 1) continue;
    now[i] = kept.jobs.size();
    kept.jobs.push_back(std::move(manifest.jobs[i]));
    for (auto* before : {&order.needs[i], &order.follows[i]}) {
      for (std::size_t& j : *before) j = now[j];
    }
    of_kept.needs.push_back(std::move(order.needs[i]));
    of_kept.follows.push_back(std::move(order.follows[i]));
    of_kept.malformed.push_back(order.malformed[i]);
  }
  manifest = std::move(kept);
  order = std::move(of_kept);
}

void check_own_files(const Options& options, const Manifest& manifest) {
  const BatchOptions& o = options.batch;
  Names own;
  claim(own, o.manifest, STDIN_FILENO, "the manifest");
  claim(own, o.state, STDOUT_FILENO, "--state");
  claim(own, o.junit, STDOUT_FILENO, "--junit");
  claim(own, options.json, STDOUT_FILENO, "--json");
  for (const std::string& path : o.merge) {
    Names others = own;  // one file twice is another error
    claim(others, path, STDIN_FILENO, "--merge");
  }
  for (const BatchJob& job : manifest.jobs) {
    std::vector<std::pair<std::string, std::string>> files = job.inputs;
    files.emplace_back("output", job.options.problem.output);
    files.emplace_back("save_diff", job.options.verify.save_diff);
    for (const auto& [field, path] : files) {
      if (path.empty()) continue;
      const auto found = own.find(tensor_key(path));
      if (found == own.end()) continue;
      misuse(found->second, ": ", path, " is the ", field, " of ", place_of(manifest, job),
             " too; name another file");
    }
  }
}

}  // namespace convgrad::cli
