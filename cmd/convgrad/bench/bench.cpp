// bench.cpp - how fast are the gradients of some problems?
#include "bench/bench.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "options/arguments.hpp"

namespace convgrad::cli {
namespace {

std::optional<double> percent(double value, const std::optional<double>& peak) {
  if (!peak || !(*peak > 0)) return {};
  return 100 * value / *peak;
}

// Returns milliseconds with four significant digits, down to nanoseconds.
std::string short_number(double value) {
  const int power = value > 0 ? static_cast<int>(std::floor(std::log10(value))) : -6;
  return fixed(value, std::clamp(3 - power, 0, 6));
}

// Returns a line: name, dtype, algorithm and threads, then columns of numbers.
std::string row(const std::vector<BenchCase>& cases, const std::vector<std::string>& words) {
  static constexpr int kWidths[] = {5, 8, 25, -7, -10, -10, -6, -8, -7, -8, 0};
  const auto longer = [](const BenchCase& a, const BenchCase& b) {
    return a.name.size() < b.name.size();
  };
  const std::size_t name = std::ranges::max_element(cases, longer)->name.size();
  std::string line = padded(words[0], std::max(kWidths[0], static_cast<int>(name)));
  for (std::size_t i = 1; i < words.size(); ++i) {
    line += cat(i + 1 == words.size() ? " " : "  ", padded(words[i], kWidths[i]));
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

// Sums up the cases with the same dtype, algorithm and threads. Totals follow the cases' order.
struct Total {
  std::string dtype, algorithm;
  int threads = 0;
  std::int64_t problems = 0, convolutions = 0;
  double seconds = 0, flops = 0;
};

std::vector<Total> totals_of(const std::vector<Measured>& all) {
  std::vector<Total> totals;
  for (const Measured& m : all) {
    const BenchCase& c = *m.bench_case;
    const std::string dtype(dtype_name(c.problem.dtype));
    auto found = std::ranges::find_if(totals, [&](const Total& t) {
      return t.dtype == dtype && t.algorithm == c.algorithm && t.threads == c.plan.threads;
    });
    if (found == totals.end()) {
      found = totals.insert(totals.end(), Total{dtype, c.algorithm, c.plan.threads});
    }
    const auto count = static_cast<double>(c.count);
    found->problems += 1;
    found->convolutions += c.count;
    found->seconds += count * m.time.median;
    found->flops += count * flop_count(c.problem);
  }
  return totals;
}

// Says what a measurement amounts to; percentages are empty without the peak.
struct Performance {
  double gflops = 0, gbytes_per_s = 0;
  std::optional<double> of_fma, of_avx512_bf16, of_amx, of_read;
  std::string limit;               // the peak that allows least: fma, avx512_bf16, amx or read
  std::optional<double> of_limit;  // its percentage
};
Performance performance(const Measured& m) {
  const WgradProblem& pb = m.bench_case->problem;
  const double flops = flop_count(pb), bytes = work_json(pb)["bytes"].get<double>();
  Performance p;
  p.gflops = flops / m.time.median * 1e-9;
  p.gbytes_per_s = bytes / m.time.median * 1e-9;
  if (!m.peaks) return p;
  const bool f64 = pb.dtype == DType::f64;
  p.of_fma = percent(p.gflops, f64 ? m.peaks->fma_f64 : m.peaks->fma_f32);
  if (pb.dtype == DType::bf16) {
    p.of_avx512_bf16 = percent(p.gflops, m.peaks->avx512_bf16);
    p.of_amx = percent(p.gflops, m.peaks->amx_bf16);
  }
  p.of_read = percent(p.gbytes_per_s, m.peaks->read_gbytes_per_s);
  // The limit is the fastest arithmetic for the dtype, or memory if that takes longer still.
  for (const auto& [name, value] :
       {std::pair{"fma", p.of_fma}, {"avx512_bf16", p.of_avx512_bf16}, {"amx", p.of_amx}}) {
    if (!value || (p.of_limit && *p.of_limit <= *value)) continue;
    p.limit = name;
    p.of_limit = value;
  }
  if (p.of_read && (!p.of_limit || *p.of_read > *p.of_limit)) {
    p.limit = "read";
    p.of_limit = p.of_read;
  }
  return p;
}

Json measured_json(const Measured& m) {
  const BenchCase& c = *m.bench_case;
  const Performance p = performance(m);
  Json execution = plan_json(c.plan);
  execution["requested_algorithm"] = c.algorithm;
  return {{"name", c.name},
          {"count", c.count},
          {"tensors",
           {{"input", {{"shape", x_shape(c.problem)}}},
            {"out_backprop", {{"shape", dy_shape(c.problem)}}}}},
          {"op", op_name(c.problem.op)},
          {"attrs", problem_json(c.problem)},
          {"execution", execution},
          {"work", work_json(c.problem)},
          {"timing_ms",
           {{"kernel",
             {{"n", m.time.n},
              {"min", milliseconds(m.time.min)},
              {"median", milliseconds(m.time.median)},
              {"p95", milliseconds(m.time.p95)},
              {"cv", or_null(m.time.variation)}}}}},
          {"perf",
           {{"gflops", p.gflops},
            {"gbytes_per_s", p.gbytes_per_s},
            {"percent_of_fma", or_null(p.of_fma)},
            {"percent_of_avx512_bf16", or_null(p.of_avx512_bf16)},
            {"percent_of_amx", or_null(p.of_amx)},
            {"percent_of_read_bandwidth", or_null(p.of_read)},
            {"limit", p.limit.empty() ? Json() : Json(p.limit)},
            {"percent_of_limit", or_null(p.of_limit)}}},
          {"peaks", m.peaks ? peaks_json(*m.peaks) : Json()}};
}

Json totals_json(const std::vector<Measured>& all) {
  Json totals = Json::array();
  for (const Total& t : totals_of(all)) {
    totals.push_back({{"dtype", t.dtype},
                      {"algorithm", t.algorithm},
                      {"threads", t.threads},
                      {"problems", t.problems},
                      {"convolutions", t.convolutions},
                      {"median_ms", milliseconds(t.seconds)},
                      {"gflops", t.flops / t.seconds * 1e-9}});
  }
  return totals;
}

std::string table_row(const Measured& m, const std::vector<BenchCase>& cases) {
  const BenchCase& c = *m.bench_case;
  const Performance p = performance(m);
  const auto& cv = m.time.variation;
  return row(cases,
             {c.name, std::string(dtype_name(c.problem.dtype)), std::string(algorithm_name(c.plan)),
              cat(c.plan.threads), short_number(m.time.median * 1e3),
              short_number(m.time.min * 1e3), cv ? fixed(*cv * 100, 1) : "-", fixed(p.gflops, 1),
              fixed(p.gbytes_per_s, 1), p.of_limit ? fixed(*p.of_limit, 0) : "-", p.limit});
}

std::string totals_text(const std::vector<Measured>& all, const std::vector<BenchCase>& cases) {
  std::string text;
  for (const Total& t : totals_of(all)) {
    text +=
        row(cases, {"total", t.dtype, t.algorithm, cat(t.threads), short_number(t.seconds * 1e3),
                    "", "", fixed(t.flops / t.seconds * 1e-9, 1), ""}) +
        cat("  (", t.convolutions, " convolutions)\n");
  }
  return text;
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
    const bool by_tiles = c.plan.cpu() && c.plan.cpu()->kernel->by_tiles;
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

std::vector<Measured> measure_all(const std::vector<BenchCase>& cases, std::optional<Job>& job,
                                  const BenchOptions& options, const std::map<int, Peaks>& peaks) {
  bool begun = false;
  return measure(cases, job, options, [&](Measured& measured) {
    const auto found = peaks.find(measured.bench_case->plan.threads);
    if (found != peaks.end()) measured.peaks = found->second;
    if (options.json == "-") return;  // there is no table then
    if (!begun) {                     // after files are read, which may fail
      for (const BenchCase& c : cases) {
        if (c.is_foreign) print(cat("problem: ", c.name, ": ", describe(c.problem)));
      }
      for (const auto& [threads, values] : peaks) print(peaks_line(values));
      print(row(cases, {"name", "dtype", "algorithm", "threads", "median ms", "min ms", "cv %",
                        "GFLOP/s", "GB/s", "% of peak", ""}));
    }
    begun = true;
    print(table_row(measured, cases));
  });
}

}  // namespace

ReportPointer bench(const BenchOptions& options) {
  if (options.list_suites) return list_suites();
  std::optional<Job> job;
  const std::vector<BenchCase> cases = plan_cases(options, job);
  const std::map<int, Peaks> peaks = peaks_for(cases, options);
  const std::vector<Measured> rows = measure_all(cases, job, options, peaks);
  Json problems = Json::array();
  for (const Measured& row : rows) problems.push_back(measured_json(row));
  Json json = problems.size() == 1 ? problems.front() : Json::object();
  if (job) json["tensors"] = tensors_json(job->tensors);
  json["machine"] = machine_json(this_machine());
  json["peaks"] = peaks.size() == 1 ? peaks_json(peaks.begin()->second) : Json();
  json["totals"] = totals_json(rows);
  json["problems"] = std::move(problems);
  // The table's end, behind the lines that were printed as they came.
  const bool is_list = !options.suite.empty() || !options.network.empty();
  return std::make_unique<PlainReport>(is_list ? totals_text(rows, cases) : "", std::move(json));
}

}  // namespace convgrad::cli
