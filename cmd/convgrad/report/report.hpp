// report.hpp - what a command has to say: a value that prints itself as text and as JSON, schema
// "convgrad.report/1". docs/report.md lists the fields.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "convgrad/array_file.hpp"
#include "convgrad/npy.hpp"
#include "cpu/peaks.hpp"
#include "engine/partial_file.hpp"
#include "engine/plan.hpp"
#include "engine/run.hpp"
#include "files/json.hpp"
#include "files/output_file.hpp"
#include "options/options.hpp"

namespace convgrad::cli {

// A command returns one, and main prints it.
class Report {
 public:
  virtual ~Report() = default;
  virtual int exit_status() const { return 0; }
  // Returns ok, mismatch or error, by the exit status, or match.
  virtual const char* status() const {
    const int exit = exit_status();
    return exit == 0 ? "ok" : exit == 1 ? "mismatch" : "error";
  }
  virtual std::string text() const { return ""; }  // for standard output
  virtual Json json() const = 0;                   // the fields that other commands lack
  // Returns in a line what a list of jobs says of this one, where its status does not say it all.
  virtual std::string in_short() const { return ""; }
};
using ReportPointer = std::unique_ptr<const Report>;

// Is made as it is printed, and ends with status 0.
class PlainReport final : public Report {
 public:
  PlainReport(std::string text, Json fields, std::string in_short = "")
      : text_(std::move(text)), fields_(std::move(fields)), in_short_(std::move(in_short)) {}
  std::string text() const override { return text_; }
  Json json() const override { return fields_; }
  std::string in_short() const override { return in_short_; }

 private:
  const std::string text_;
  const Json fields_;
  const std::string in_short_;
};

// Says whether one thing is as another: that is its status.
class MatchReport : public Report {
 public:
  virtual bool matches() const = 0;
  int exit_status() const final { return matches() ? 0 : 1; }
  const char* status() const final { return matches() ? "match" : "mismatch"; }
};

// Returns the fields that every command has: schema, command line, tool. That of OpenBLAS is null
// until something has loaded it.
Json common_json(const std::string& command, const std::string& command_line,
                 const std::map<std::string, std::string>& tags);

// Returns what went wrong: the exit status, the message, and the part of it that says how to fix
// it, null if none does.
Json error_json(int status, const std::string& message, const std::string& hint);

struct TensorReport {
  std::string file;
  NpyHeader header;
  std::optional<std::string> hash = {};  // of its values; "" for a stream, which is read only once

  Json json() const;
};
using Tensors = std::vector<std::pair<std::string, TensorReport>>;  // by the name of the field
Json tensors_json(const Tensors& tensors);
// Reads the file once more for the hash if `is_hashed`, by open() where opening it by its name
// would read an archive's directory again.
TensorReport tensor_report(const std::string& path, const NpyHeader& header, bool is_hashed,
                           const std::function<NpyReader()>& open = {});
// Describes a file that is made here, and is not read.
TensorReport made_tensor(const std::string& path, DType dtype,
                         const std::vector<std::int64_t>& shape);
// Adds a file with its hash, and nothing for a stream.
void add_tensor(const std::string& name, const std::string& path, Tensors& tensors);
// Does the same with a gradient that was written, to a stream or as a raw file too.
void add_gradient(const ArrayTarget& target, const WgradProblem& problem, Tensors& tensors);

Json problem_json(const WgradProblem& problem);    // attrs
Json problem_fields(const WgradProblem& problem);  // op, attrs and work
Json plan_json(const Plan& plan);
Json work_json(const WgradProblem& problem);
// Says what part of the batch these sums are, in so many nodes.
Json part_json(const PartialHeader& header, std::size_t nodes);
Json machine_json(const Machine& machine);
Json peaks_json(const Peaks& peaks);
std::string peaks_line(const Peaks& peaks);  // "peaks on 2 threads: float32 ..."
Json or_null(const std::optional<double>& value);

struct JobTiming {
  Timing timing;
  double write_s = 0;
  WgradProblem computed;  // in that time: of a part of the batch, that part

  // Returns the time of the kernel or, where there was none, of the reference.
  double gradient_s() const { return timing.kernel_s > 0 ? timing.kernel_s : timing.reference_s; }
  Json fields() const;  // timing_ms, and perf: the rates in that time
};

// Returns a double as JSON: NaN and infinities are the strings "nan", "inf" and "-inf".
Json number(double value);
// Does the same, or returns an integer of 64 bits as it is.
Json number(long double value, bool integer);

// Returns milliseconds, rounded to nanoseconds, which are the clock's own resolution.
double milliseconds(double seconds);

// These return text with so many significant digits, and so many after the point.
std::string general(long double value, int digits);
std::string fixed(double value, int digits);

// A file of ours replaces no file but an empty one and one that begins with `start`: whatever else
// has that name has it by mistake. Throws Error(usage) "--junit: FILE exists and is no KIND; ...",
// of which "--junit: " is the lead.
void check_replaceable(const std::string& lead, const std::string& path, std::string_view start,
                       const std::string& kind);

// Writes to standard output ("-") or to a file, which appears complete or not at all.
void write_file(const std::string& path, std::string_view text, const OutputOptions& options = {});

// Colours the verdict of "MATCH: ..." and "MISMATCH: ..." where standard output may have it.
std::string colored_verdict(const Options& options, const std::string& text);

// Prints the line "convgrad: KIND: MESSAGE" on standard error. The kind is error, or what --quiet
// leaves out: warning, note, ...
void say(const Options& options, const std::string& kind, const std::string& message);

// Draws a line on stderr for jobs of more than a second, on a terminal only.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress() { wipe(); }
  // Turns lines off for good, and everywhere.
  static void turn_off();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Draws the line at most ten times a second. Any thread may call it; fraction is in [0, 1].
  void show(double fraction) { show(fraction, label_); }
  void show(double fraction, const std::string& label);
  // Wipes the line before something else is written to the terminal; show() draws it again.
  void wipe();

 private:
  const std::string label_;
  const bool terminal_;
  const Clock::time_point start_;
  Clock::time_point last_;
  std::size_t shown_ = 0;  // columns that are in use
  std::mutex mutex_;
};

}  // namespace convgrad::cli
