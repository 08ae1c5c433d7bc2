// batch.hpp - many jobs from one manifest: reading it, running them, what came of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "options/options.hpp"
#include "report/report.hpp"

namespace convgrad::cli {

struct Field {
  std::string name;  // with underscores
  Words words;       // none: not given
};
using Fields = std::vector<Field>;  // in the order of the line

struct BatchJob {
  std::int64_t line = 0;  // of the manifest, counted from 1
  std::string name;
  bool verifies = false;
  VerifyCommand options;  // the main job has less; paths are as this process opens them
  std::map<std::string, std::string> hashes;  // field -> the hash that its file must have
  Json spelled;        // what the manifest says, names and notes left out; equal for equal jobs
  std::string repeat;  // the command line that does this job alone
  std::string refused, hint;  // why the line is malformed, or ""
  bool is_refused() const { return !refused.empty(); }
};

struct Manifest {
  std::string name;  // for messages
  std::vector<BatchJob> jobs;
};

// Reads every line. A job gets the fields `defaults` that it lacks and its command has. Relative
// paths start from `folder` ("" is the current one). Lines that are malformed are jobs that are
// refused. Throws Error(input) if there is no line at all.
Manifest parse_manifest(std::string_view text, const std::string& name, const std::string& folder,
                        const Fields& defaults);
// Does the same with a file, or with standard input ("-"). Throws Error(input) if it is no text.
Manifest read_manifest(const std::string& path, const Fields& defaults);

// Returns a message about a flag, "--filter-sizes: ...", as one about the field of that name.
std::string as_field(const std::string& message);
// Returns "jobs.jsonl, line 3 (name)", for messages.
std::string place_of(const Manifest& manifest, const BatchJob& job);

// Jobs run in any order, so none may write what another reads or writes: the later line of the two
// is refused. So is one that writes what it reads, which could not be run again.
void refuse_conflicts(Manifest& manifest);
// Throws Error(usage) if one of the batch's own files (manifest, state, JUnit, report) is a file of
// a job or another of them.
void check_own_files(const BatchOptions& options, const Manifest& manifest);

// Keeps the lines of jobs that were done, for --resume: JSON Lines that are appended as jobs end,
// under a line that names the schema. A line says of its job all that must be as it was.
class BatchState {
 public:
  // Makes the file if there is none. Throws Error(input) if it is something else than a state file,
  // and Error(usage) if another batch has it.
  explicit BatchState(std::string path);
  ~BatchState();
  BatchState(const BatchState&) = delete;
  BatchState& operator=(const BatchState&) = delete;

  // Returns true if the line was in the file when that was read.
  bool has(const std::string& line) const { return lines_.count(line) != 0; }
  // Appends a line. Any thread may call it. A failure is kept for check(), so that jobs go on.
  void add(const std::string& line);
  // Throws the error that add() has kept.
  void check() const;

 private:
  void read();
  void cut() const;

  const std::string path_;
  int file_ = -1;
  std::int64_t size_ = 0;  // of the file's whole lines
  std::unordered_set<std::string> lines_;
  int failure_ = 0;  // errno; nothing is added after it
  std::mutex mutex_;
};

// Verdicts are listed in the order in which their counts are printed.
enum class Verdict { ok, match, planned, skipped, mismatch, error, not_run };

struct Outcome {
  Verdict verdict = Verdict::not_run;
  int status = 0;                       // exit status of this job alone
  std::string message = {}, hint = {};  // of an error, a mismatch, or why it was not run
  std::string vacuous = {};             // why its match says nothing, or ""
  std::vector<std::string> not_tested = {};
  double elapsed_s = 0;
  std::shared_ptr<const Report> report = {};  // null if the job did not end
};

struct Share {
  int threads = 0;
  std::uint64_t memory_bytes = 0;  // 0: what the machine has
};

// Runs one job and adds it to the state, or skips it if it `resumes` and was done. `state` may be
// null. Throws nothing but std::bad_alloc.
Outcome run_batch_job(const BatchJob& job, const Share& share, bool dry_run, bool resumes,
                      BatchState* state, const std::function<void(double)>& on_progress);

// Holds how threads and memory are divided among jobs at a time.
struct Division {
  int jobs = 1;
  Share whole;  // without a limit if there is none, so that messages do not speak of one
  std::uint64_t memory_bytes = 0;

  Share of(int worker) const;
};

// Returns a line for standard output, and for an error what follows "convgrad: error: ".
std::string outcome_line(const BatchJob& job, const Outcome& outcome);

class BatchReport final : public Report {
 public:
  BatchReport(Manifest all, const Division& by, std::string part)
      : manifest(std::move(all)), division(by), shard(std::move(part)) {}

  int exit_status() const override;   // the worst of all jobs
  std::string text() const override;  // the line of sums, if anything ran
  Json json() const override;

  const Manifest manifest;
  const Division division;
  const std::string shard;
  std::vector<Outcome> outcomes;
  double elapsed_s = 0;
  bool any_ran = true;
};

// --junit replaces only a file that begins like this. junit_xml() returns the XML as Jenkins,
// GitLab and GitHub's actions read it.
inline constexpr std::string_view kJunitStart =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"convgrad batch\"";
std::string junit_xml(const Manifest& manifest, const std::vector<Outcome>& outcomes,
                      double elapsed_s);
// Returns text as XML 1.0 may hold it, in an attribute too; U+FFFD is in place of other characters.
std::string xml_text(std::string_view text);

ReportPointer batch(BatchOptions& options);

}  // namespace convgrad::cli
