// bench.hpp - the parts of `convgrad bench`: problems -> cases -> measurements -> report.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/roofline.hpp"
#include "convgrad/buffer.hpp"
#include "convgrad/plan.hpp"
#include "cpu/peaks.hpp"
#include "job/job_plan.hpp"
#include "options/options.hpp"
#include "report/command_result.hpp"

namespace convgrad::cli {

// A problem as a suite or the flags spell it, without a dtype.
struct BenchProblem {
  std::string name;
  std::int64_t count = 1;  // how often it occurs in its network
  WgradAttributes attributes;
  std::vector<std::int64_t> input_shape;
  std::int64_t K = 0;  // 0: as the filter's shape says
  std::string origin;  // put in front of messages: "--suite: FILE, line 3: "
};

// The problems of a suite file, in its order. Error(input) names the file and the line.
std::vector<BenchProblem> read_suite(const std::string& path);

// One line of the result.
struct BenchCase {
  std::string name;
  std::int64_t count = 1;
  WgradProblem problem;
  std::vector<std::int64_t> input_shape, out_backprop_shape;
  std::string algorithm;  // as asked for: auto, or a kernel's name
  Plan plan;
  PlanOptions plan_options;
  std::size_t tensors = 0;  // neighbours with the same number share their tensors
};

// All cases, checked and planned, so that nothing is measured before everything is known to work.
// job: set if the tensors come from files.
std::vector<BenchCase> plan_cases(const Options& options, std::optional<Job>& job, Json& report);

struct Tensors {
  Buffer x, dy;
};
Tensors made_tensors(const WgradProblem& problem, int threads);
Tensors read_tensors(Job& job);

struct Statistics {  // of seconds
  std::int64_t n = 0;
  double min = 0, median = 0, p95 = 0, mean = 0, deviation = 0;
};
Statistics measure(const BenchCase& bench_case, const Tensors& tensors,
                   const BenchOptions& options);

struct Measured {
  const BenchCase* bench_case = nullptr;
  Statistics time;
  std::optional<Peaks> peaks;  // on as many threads
};

Json measured_json(const Measured& measured);
Json totals_json(const std::vector<Measured>& all);

// Text lines, without the line's end.
std::string peaks_line(const Peaks& peaks);
std::string table_header(const std::vector<BenchCase>& cases);
std::string table_row(const Measured& measured, const std::vector<BenchCase>& cases);
std::string totals_text(const std::vector<Measured>& all, const std::vector<BenchCase>& cases);
std::string csv_header();
std::string csv_row(const Measured& measured);

// Medians of an earlier report, in milliseconds.
class Baseline {
 public:
  // Error(input) if the file is none, or has none of the cases.
  Baseline(const std::string& path, const std::vector<BenchCase>& cases);
  std::optional<double> median_ms(const BenchCase& bench_case) const;

 private:
  std::map<std::string, double> medians_;
};
// 0.1 for "10%".
double parse_slowdown(const std::string& text);

// Compares, writes a line on standard error for each problem that is slower or new, and fills
// report["baseline"]. True if none is too slow.
bool passes(const Baseline& baseline, const Options& options, double max_slowdown,
            const std::vector<Measured>& all, Json& report);

// What compare_peers.py has measured of other programs.
class PlotPeers {
 public:
  // Error(input) if the file is none, of another processor, or has none of the cases.
  PlotPeers(const std::string& path, const std::vector<BenchCase>& cases);
  // A series for each program, of the layers that were measured here.
  std::vector<RooflineSeries> series(const std::vector<Measured>& all) const;

 private:
  struct Program {
    std::string title;
    std::map<std::string, double> gflops;
  };
  std::vector<Program> programs_;
};
// Error where --plot could not be written, before anything is measured.
void check_plot(const Options& options);
// The case multiplies bfloat16, or could: AMX's peak belongs into its picture.
bool uses_amx(const BenchCase& bench_case);
void write_plot(const std::vector<Measured>& all, const std::map<int, Peaks>& peaks,
                const std::optional<PlotPeers>& peers, const Options& options);

// --format json is --json, for errors too.
void use_bench_format(Options& options);
// The command.
CommandResult bench(const Options& options);

}  // namespace convgrad::cli
