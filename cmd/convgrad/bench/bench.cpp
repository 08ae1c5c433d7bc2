// bench.cpp - how fast are the gradients of some problems?
#include "bench/bench.hpp"

#include <cstdio>

#include "options/arguments.hpp"
#include "options/made_problem.hpp"

namespace convgrad::cli {
namespace {

enum class Format { table, csv, json };

Format format_of(const BenchOptions& options) {
  const std::string& format = options.format;
  if (format.empty()) return options.json == "-" ? Format::json : Format::table;
  check_known("--format", format, {"table", "csv", "json"});
  if (format == "json") {
    if (options.json == "-") return Format::json;
    misuse("--format json: given with --json=FILE, expected one of them");
  }
  if (options.json == "-") {
    misuse("--format ", format, " and --json both write to standard output",
           Hint("use --json=FILE"));
  }
  return format == "csv" ? Format::csv : Format::table;
}

// Measures the peaks that the cases are compared with, for each number of threads.
std::map<int, Peaks> peaks_for(const std::vector<BenchCase>& cases, const BenchOptions& options) {
  std::map<int, Peaks> peaks;
  // The peaks of a device are not measured.
  if (options.no_peaks || cases.front().plan.cuda()) return peaks;
  PeakRequest request;
  request.f32 = request.f64 = request.bf16 = false;
  request.memory_limit_bytes = cases.front().plan_options.memory_limit_bytes;
  for (const BenchCase& c : cases) {
    (c.problem.dtype == DType::f64 ? request.f64 : request.f32) = true;
    const bool by_tiles = algorithm_name(c.plan).starts_with("outer_product_amx");
    request.bf16 = request.bf16 || c.problem.dtype == DType::bf16 || by_tiles;
  }
  for (const BenchCase& c : cases) {
    request.threads = c.plan.threads;
    const auto [place, is_new] = peaks.try_emplace(request.threads);
    if (is_new) place->second = measure_peaks(request);
  }
  return peaks;
}

// Flushes, so that a line appears as soon as it is known.
void print(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void print_head(Format format, const std::vector<BenchCase>& cases,
                const std::map<int, Peaks>& peaks, const BenchOptions& options) {
  if (format == Format::csv) print(csv_header(options));
  if (format != Format::table) return;
  for (const BenchCase& c : cases) {
    if (c.is_foreign) print(cat("problem: ", c.name, ": ", describe(c.problem)));
  }
  for (const auto& [threads, values] : peaks) print(peaks_line(values));
  print(table_header(cases));
}

void print_row(Format format, const Measured& measured, const std::vector<BenchCase>& cases,
               const BenchOptions& options) {
  if (format == Format::csv) print(csv_row(measured, options));
  if (format == Format::table) print(table_row(measured, cases));
}

std::vector<Measured> measure_all(const std::vector<BenchCase>& cases, std::optional<Job>& job,
                                  const BenchOptions& options, Format format,
                                  const std::map<int, Peaks>& peaks) {
  bool begun = false;
  return measure(cases, job, options, [&](Measured& row) {
    const auto found = peaks.find(row.bench_case->plan.threads);
    if (found != peaks.end()) row.peaks = found->second;
    if (!begun) print_head(format, cases, peaks, options);  // after files are read, which may fail
    begun = true;
    print_row(format, row, cases, options);
  });
}

class BenchReport final : public Report {
 public:
  std::string text() const override { return totals; }
  Json json() const override {
    Json problems = Json::array();
    for (const Measured& row : rows) problems.push_back(measured_json(row));
    Json json = problems.size() == 1 ? problems.front() : Json::object();
    if (!tensors.empty()) json["tensors"] = tensors_json(tensors);
    json["machine"] = machine_json(this_machine());
    json["peaks"] = peaks.size() == 1 ? peaks_json(peaks.begin()->second) : Json();
    json["totals"] = totals_json(rows);
    json["problems"] = std::move(problems);
    return json;
  }

  std::vector<BenchCase> cases;  // of the rows
  std::map<int, Peaks> peaks;    // by threads
  std::vector<Measured> rows;
  Tensors tensors;     // that were read
  std::string totals;  // lines of a table's end, behind those that were printed as they came
};

}  // namespace

ReportPointer bench(const BenchOptions& options) {
  const Format format = format_of(options);
  if (options.list_suites) return list_suites();
  auto report = std::make_unique<BenchReport>();
  std::optional<Job> job;
  report->cases = plan_cases(options, job);
  if (job) report->tensors = job->tensors;
  report->peaks = peaks_for(report->cases, options);
  report->rows = measure_all(report->cases, job, options, format, report->peaks);
  if (format == Format::table && !options.suite.empty()) {
    report->totals = totals_text(report->rows, report->cases);
  }
  return report;
}

void use_bench_format(BenchOptions& options) {
  if (options.format == "json" && options.json.empty()) options.json = "-";
}

}  // namespace convgrad::cli
