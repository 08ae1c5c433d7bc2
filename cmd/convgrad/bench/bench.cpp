// bench.cpp - how fast are the gradients of some problems?
#include "bench/bench.hpp"

#include <cstdio>

namespace convgrad::cli {
namespace {

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

void print_head(const std::vector<BenchCase>& cases, const std::map<int, Peaks>& peaks) {
  for (const BenchCase& c : cases) {
    if (c.is_foreign) print(cat("problem: ", c.name, ": ", describe(c.problem)));
  }
  for (const auto& [threads, values] : peaks) print(peaks_line(values));
  print(table_header(cases));
}

std::vector<Measured> measure_all(const std::vector<BenchCase>& cases, std::optional<Job>& job,
                                  const BenchOptions& options, const std::map<int, Peaks>& peaks) {
  bool begun = options.json == "-";  // there is no table then
  return measure(cases, job, options, [&](Measured& row) {
    const auto found = peaks.find(row.bench_case->plan.threads);
    if (found != peaks.end()) row.peaks = found->second;
    if (!begun) print_head(cases, peaks);  // after files are read, which may fail
    begun = true;
    if (options.json != "-") print(table_row(row, cases));
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
  if (options.list_suites) return list_suites();
  auto report = std::make_unique<BenchReport>();
  std::optional<Job> job;
  report->cases = plan_cases(options, job);
  if (job) report->tensors = job->tensors;
  report->peaks = peaks_for(report->cases, options);
  report->rows = measure_all(report->cases, job, options, report->peaks);
  if (!options.suite.empty()) report->totals = totals_text(report->rows, report->cases);
  return report;
}

}  // namespace convgrad::cli
