// batch.hpp - many jobs from one manifest: reading it, running them, what came of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "options/options.hpp"
#include "report/command_result.hpp"
#include "report/file_hash.hpp"

namespace convgrad::cli {

struct BatchJob {
  std::int64_t line = 0;  // of the manifest, counted from 1
  std::string name;
  bool verifies = false;
  Options options;  // those of compute or verify; paths as this process opens them
  // Every file that is read: field and path.
  std::vector<std::pair<std::string, std::string>> inputs;
  std::map<std::string, std::string> hashes;  // field -> what its file's must be
  Json expected;                              // fields of the report's attrs that must come out
  std::string spelled;  // what the manifest says, names and notes left out; equal for equal jobs
  std::string repeat;   // the command line that does this job alone
};

struct BadLine {
  std::int64_t line = 0;
  std::string message;
  std::string output;  // what it would have written, where that can be told
};

struct Manifest {
  std::string name;   // for messages
  std::string shard;  // "K/R" if it has the jobs of that part alone
  std::vector<BatchJob> jobs;
  std::vector<BadLine> bad;
};

// Reads every line. defaults are the options that a job has before its fields are set; folder is
// what relative paths start from ("" is the current one). Lines that are malformed go to `bad`;
// Error(input) if it has no line at all.
Manifest parse_manifest(std::string_view text, const std::string& name, const std::string& folder,
                        const Options& defaults);
// What that takes of a file, or of standard input ("-"). Error(input) if it is no text.
struct ManifestText {
  std::string text, name, folder;
};
ManifestText read_manifest(const std::string& path);

// A message about a flag, "--filter-sizes: ...", as one about the field of that name.
std::string as_field(const std::string& message);
// "jobs.jsonl, line 3 (name)", for messages.
std::string place_of(const Manifest& manifest, const BatchJob& job);

// The first line that reads a file, and whether a line before it writes that: the list's own file.
struct FirstRead {
  std::int64_t line = 0;
  bool is_made = false;
};
using FirstReads = std::unordered_map<std::string, FirstRead>;  // by the keys of files
// Of all lines: one that --match leaves out now needs its inputs when it is run.
FirstReads first_reads(const Manifest& manifest);

// Which jobs must be over before another may begin, as if they ran one after the other.
struct BatchOrder {
  // For each job: earlier ones whose output it reads, and earlier ones that read its output.
  std::vector<std::vector<std::size_t>> needs, follows;
  // For each job: the last malformed line that would have written what it reads, or 0.
  std::vector<std::int64_t> malformed;
};
// Of two lines with one output, or one folder for repros, the later one goes to manifest.bad. So
// does one whose output an earlier line reads, unless the list has made that file.
BatchOrder order_jobs(Manifest& manifest, const FirstReads& reads);
// "--shard: K/R" leaves the K-th of R parts, K from 1. What files connect stays together; of these
// groups, the first goes to part 1, the next to part 2 and so on. Malformed lines are in all parts,
// and all jobs in "".
void keep_shard(const std::string& shard, Manifest& manifest, BatchOrder& order);
// Error(usage) if one of the batch's own files (manifest, state, JUnit, report) is a file of a job
// or another of them.
void check_own_files(const Options& options, const Manifest& manifest);

// Lets writing take a twentieth of the time at most.
class Pace {
 public:
  template <typename Write>
  void maybe(Write&& write) {
    const auto start = Clock::now();
    if (start < next_) return;
    write();
    const auto end = Clock::now();
    next_ = end + (end - start) * 20;
  }

 private:
  Clock::time_point next_;
};

// What was done before, for --resume: a file of JSON Lines. While jobs run, lines are appended to
// it, so that a process that is killed loses none; at the end it is replaced as a whole.
class BatchState {
 public:
  struct Record {
    std::string name, status, output;          // output: its hash, or ""
    std::map<std::string, std::string> files;  // field -> hash
  };

  // Reads the file if there is one; Error(input) if it is something else than a state file. To be
  // written it is made if there is none, and is this object's alone until it goes: Error(usage) if
  // it is another's.
  BatchState(std::string path, bool is_written);
  ~BatchState();
  BatchState(const BatchState&) = delete;
  BatchState& operator=(const BatchState&) = delete;

  // By the hash of the job; null if there is none.
  const Record* find(const std::string& job) const;
  // Whether it had begun when the file was read, and not ended: its process was killed.
  bool was_lost(const std::string& job) const { return lost_.count(job) != 0; }
  // From any thread; find() and was_lost() do not see it. What cannot be written then is again by
  // write().
  void begin(const std::string& job, const std::string& name);
  void end(const std::string& job, const std::optional<Record>& record);
  // At the end. Throws what OutputFile throws.
  void write();

 private:
  using Begun = std::map<std::string, std::string>;  // the names of jobs that have not ended

  bool open();
  void read(const std::string& text);
  void append(const std::string& line);
  void cut() const;

  const std::string path_;
  int file_ = -1;
  std::int64_t size_ = 0;                  // of the file's whole lines
  std::map<std::string, Record> records_;  // as they were when the file was read
  Begun lost_;
  std::map<std::string, Record> added_;
  Begun begun_;
  Pace pace_;
  std::mutex mutex_;
};

// In the order in which they are counted.
enum class Verdict { ok, match, planned, skipped, mismatch, error, not_run };
inline constexpr std::string_view kVerdictNames[] = {"ok",       "match", "planned", "skipped",
                                                     "mismatch", "error", "not run"};
inline std::string_view verdict_name(Verdict verdict) {
  return kVerdictNames[static_cast<std::size_t>(verdict)];
}

struct Outcome {
  Verdict verdict = Verdict::not_run;
  int status = 0;       // exit status of this job alone
  std::string message;  // of an error, a mismatch, or why it was not run
  std::string vacuous;  // why its match says nothing, or ""
  double elapsed_s = 0;
  Json report = Json::object();
  std::optional<BatchState::Record> record;  // for the state, if it ended well
  int rank = 0;                              // that did it
};

// What one job may take.
struct Share {
  int threads = 0;
  std::uint64_t memory_bytes = 0;  // 0: what the machine has
  bool is_whole = true;            // there is no more
  std::optional<int> device;       // of a job that names none
};

// By which the state knows a job: what the manifest says and which program does it.
std::string job_key(const BatchJob& job);

// Runs one job, or skips it if it was done as the record says. keeps: a record is wanted. Nothing
// is thrown but std::bad_alloc. nullopt: it does not fit in the share, but may in the whole.
std::optional<Outcome> run_batch_job(const BatchJob& job, const Share& share, bool dry_run,
                                     bool keeps, const BatchState::Record* done,
                                     const std::function<void(double)>& on_progress);

// A line for standard output, and for an error what follows "convgrad: error: ".
std::string outcome_line(const BatchJob& job, const Outcome& outcome);
std::string summary_line(const std::vector<Outcome>& outcomes, std::size_t bad_lines,
                         double elapsed_s);
// The fields batch and jobs of the report, and its status.
void report_batch(const Manifest& manifest, const std::vector<Outcome>& outcomes, double elapsed_s,
                  Json& report);
// JUnit's XML, as Jenkins, GitLab and GitHub's actions read it, and how it begins.
inline constexpr std::string_view kJunitStart =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"convgrad batch\"";
std::string junit_xml(const Manifest& manifest, const std::vector<Outcome>& outcomes,
                      double elapsed_s);
// Joins JUnit files of ours; where a manifest is given, each of its jobs must be in one of them.
// Error(input) if a file is none, or a job in two files. Jobs and shards that are in none are
// errors in the file that is written. Returns the exit status of all.
int merge_junit(const Options& options, const Manifest* manifest, Json& report);

// The command.
CommandResult batch(Options& options);

}  // namespace convgrad::cli
