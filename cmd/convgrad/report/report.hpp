// report.hpp - the JSON report, schema "convgrad.report/1". docs/report.md lists its fields.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "convgrad/array_file.hpp"
#include "convgrad/npy.hpp"
#include "cpu/peaks.hpp"
#include "engine/device_kernel.hpp"
#include "engine/plan.hpp"
#include "engine/run.hpp"
#include "files/output_file.hpp"
#include "options/options.hpp"

namespace convgrad::cli {

// Memory that is missing for JSON ends the program by std::terminate(), whose handler says so: in
// nlohmann 3.11, an object for which it is missing crashes when it is destroyed.
template <typename T>
struct JsonAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = JsonAllocator<U>;
  };
  JsonAllocator() = default;
  template <typename U>
  JsonAllocator(const JsonAllocator<U>&) noexcept {}
  T* allocate(std::size_t count) noexcept { return std::allocator<T>::allocate(count); }
};
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                  std::int64_t, std::uint64_t, double, JsonAllocator>;

// A report with the fields that every command fills: schema, command line, tool. That of
// OpenBLAS is null until something has loaded it.
Json new_report(const std::string& command, const std::string& command_line);
Json blas_json();

// What went wrong: the exit status, the message, and the part of it that says how to fix it, null
// if none does. words are the user's own (arguments, file names), which the message may repeat.
Json error_json(int status, const std::string& message, const std::vector<std::string>& words);

// Fills op, attrs and work of a report, or of a part of one.
void set_problem(Json& report, const WgradProblem& problem);
Json problem_json(const WgradProblem& problem);
Json tensor_json(const std::string& path, const NpyHeader& header);
// Adds the hash of a tensor's values to its JSON: null for a stream, which can be read only once.
void add_hash(Json& tensor);
// Adds a file to the report's tensors, with its hash; nothing for a stream, or without a path.
void add_tensor(const char* name, const std::string& path, Json& report);
// The same of a gradient that was written, to a stream or as a raw file too.
void add_gradient(const ArrayTarget& target, const WgradProblem& problem, Json& report);
Json plan_json(const Plan& plan);
Json work_json(const WgradProblem& problem);
Json timing_json(const Timing& timing, double write_s);
// What was computed in how much time: of kernels and reference, without reading and writing.
Json perf_json(const WgradProblem& problem, const Timing& timing);
Json machine_json(const Machine& machine);
Json cuda_json(const CudaInfo& info);
Json peaks_json(const Peaks& peaks);

// A double as JSON: NaN and infinities as the strings "nan", "inf" and "-inf".
Json number(double value);
// The same, or an integer of 64 bits as it is.
Json number(long double value, bool integer);

// Rounded to microseconds.
double milliseconds(double seconds);

// Numbers in text: so many significant digits; so many after the point; "[1,0,2]".
std::string general(long double value, int digits);
std::string fixed(double value, int digits);
std::string bracketed(const std::vector<std::int64_t>& numbers);

// A file of ours replaces no file but an empty one and one that begins with `start`: whatever else
// has that name has it by mistake. Error(usage) "--junit: FILE exists and is no KIND; ...", of
// which
// "--junit: " is the lead.
void check_replaceable(const std::string& lead, const std::string& path, std::string_view start,
                       const std::string& kind);

// To standard output ("-") or a file, which appears complete or not at all.
void write_file(const std::string& path, std::string_view text, const OutputOptions& options = {});

// May this stream (STDOUT_FILENO, STDERR_FILENO) be coloured? always and never say it themselves.
// auto, the default: it is a terminal, TERM is not dumb, and NO_COLOR (https://no-color.org) is
// not set, or empty.
bool is_colored(const Options& options, int stream);

// "MATCH: ..." and "MISMATCH: ..." with the verdict in colour where standard output may have it.
std::string colored_verdict(const Options& options, const std::string& text);

// The line "convgrad: KIND: MESSAGE" on standard error. Kind: error, or what --quiet
// leaves out: warning, note, ...
void say(const Options& options, const std::string& kind, const std::string& message);

}  // namespace convgrad::cli
