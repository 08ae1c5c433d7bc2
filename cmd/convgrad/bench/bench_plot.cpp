// bench_plot.cpp - measurements as a roofline, beside other programs' where these are given.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "bench/bench.hpp"
#include "bench/roofline.hpp"
#include "convgrad/machine.hpp"
#include "files/text_file.hpp"
#include "job/job_files.hpp"
#include "options/arguments.hpp"
#include "options/refuse.hpp"
#include "report/svg.hpp"

namespace convgrad::cli {
namespace {

// What identifies a layer among the peers'.
std::string layer_key(const std::string& name, const std::string& dtype, const std::string& layout,
                      int threads) {
  return cat(name, " (", dtype, ", ", layout, ", ", threads,
             threads == 1 ? " thread)" : " threads)");
}

std::string layer_key(const BenchCase& c) {
  return layer_key(c.name, std::string(dtype_name(c.problem.dtype)), data_format_name(c.problem),
                   c.plan.threads);
}

RooflineDot dot_of(const BenchCase& c, double gflops, const std::string& program) {
  const Json work = work_json(c.problem);
  const double intensity = work["flops"].get<double>() / work["bytes"].get<double>();
  return {c.name, intensity, gflops,
          cat(c.name, ": ", general(gflops, 4), " GFLOP/s, ", general(intensity, 4),
              " FLOP per byte, ", program)};
}

// Which of dtype, algorithm and threads differ, which is what tells series apart.
struct Differences {
  std::set<std::string> dtypes, algorithms;
  std::set<int> threads;

  explicit Differences(const std::vector<Measured>& all) {
    for (const Measured& m : all) {
      dtypes.emplace(dtype_name(m.bench_case->problem.dtype));
      algorithms.insert(m.bench_case->algorithm);
      threads.insert(m.bench_case->plan.threads);
    }
  }
  // By the algorithm that was asked for, where there are several; else by the one that auto took.
  std::string series_of(const BenchCase& c) const {
    std::string name = algorithms.size() > 1 ? c.algorithm : std::string(algorithm_name(c.plan));
    if (dtypes.size() > 1) name += cat(", ", dtype_name(c.problem.dtype));
    return name + suffix(c.plan.threads);
  }
  std::string suffix(int count) const {
    return threads.size() > 1 ? cat(", ", count, count == 1 ? " thread" : " threads") : "";
  }
};

// The peaks that say something about the cases with as many threads.
Roof roof_of(const Peaks& peaks, const std::vector<Measured>& all, const Differences& differences) {
  Roof roof = {differences.suffix(peaks.threads), peaks.read_gbytes_per_s, {}};
  const auto add = [&](const std::string& name, const std::optional<double>& gflops, int parts) {
    const bool there =
        std::ranges::any_of(roof.peaks, [&](const auto& peak) { return peak.first == name; });
    if (gflops && !there) roof.peaks.emplace_back(name, *gflops / parts);
  };
  for (const Measured& m : all) {
    const BenchCase& c = *m.bench_case;
    if (c.plan.threads != peaks.threads) continue;
    const bool f64 = c.problem.dtype == DType::f64;
    add(cat(peaks.instruction_set, " FMA, ", f64 ? "float64" : "float32"),
        f64 ? peaks.fma_f64 : peaks.fma_f32, 1);
    if (c.problem.dtype == DType::bf16) {
      add("AVX512-BF16", peaks.avx512_bf16, 1);
      add("AMX-BF16", peaks.amx_bf16, 1);
    }
    const int products = amx_products(c);
    if (products > 1) add(cat("AMX-BF16, ", products, " products each"), peaks.amx_bf16, products);
  }
  return roof;
}

std::vector<RooflineSeries> own_series(const std::vector<Measured>& all,
                                       const Differences& differences) {
  std::vector<RooflineSeries> result;
  for (const Measured& m : all) {
    const BenchCase& c = *m.bench_case;
    const double gflops = flop_count(c.problem) / m.time.median * 1e-9;
    if (!(gflops > 0) || !std::isfinite(gflops)) continue;  // logarithms have no place for it
    const std::string name = differences.series_of(c);
    auto found = std::ranges::find(result, name, &RooflineSeries::name);
    if (found == result.end()) found = result.insert(result.end(), {name, false, {}});
    found->dots.push_back(dot_of(c, gflops, std::string(algorithm_name(c.plan))));
  }
  return result;
}

std::vector<std::string> title_of(const std::vector<Measured>& all, const Options& options,
                                  const Differences& differences) {
  const BenchCase& first = *all.front().bench_case;
  std::string line = options.bench.suite.empty() ? first.name : options.bench.suite;
  if (differences.dtypes.size() == 1) line += cat(", ", *differences.dtypes.begin());
  if (differences.threads.size() == 1) {
    line += cat(", ", first.plan.threads, first.plan.threads == 1 ? " thread" : " threads");
  }
  return {"convgrad bench: " + line,
          first.plan.cuda() ? first.plan.cuda()->device.name : this_machine().processor};
}

}  // namespace

PlotPeers::PlotPeers(const std::string& path, const std::vector<BenchCase>& cases) {
  const Json report = Json::parse(read_text(path, {"--plot-peers: ", "a file"}), nullptr, false);
  std::string processor;
  try {
    processor = report.at("processor").get<std::string>();
    const int threads = report.at("threads").get<int>();
    for (const auto& [key, title] : report.at("peers").items()) {
      Program program = {title.get<std::string>(), {}};
      for (const Json& layer : report.at("layers")) {
        const Json& gflops = layer.at("gflops").at(key);
        if (gflops.is_null()) continue;  // it cannot compute this layer
        program.gflops[layer_key(
            layer.at("name").get<std::string>(), layer.at("dtype").get<std::string>(),
            layer.at("layout").get<std::string>(), threads)] = gflops.get<double>();
      }
      programs_.push_back(std::move(program));
    }
  } catch (const Json::exception&) {
    bad_input("--plot-peers: ", path,
              " has no processor, threads, peers or layers with name, dtype, layout and gflops; "
              "write it with compare_peers.py --json");
  }
  if (processor != this_machine().processor) {
    bad_input("--plot-peers: ", path, " was measured on ", processor, ", but this is ",
              this_machine().processor);
  }
  const bool any = std::ranges::any_of(cases, [&](const BenchCase& c) {
    return std::ranges::any_of(programs_,
                               [&](const Program& p) { return p.gflops.count(layer_key(c)) > 0; });
  });
  if (!any) {
    bad_input("--plot-peers: ", path, " has none of the problems, expected e.g. ",
              layer_key(cases.front()));
  }
}

std::vector<RooflineSeries> PlotPeers::series(const std::vector<Measured>& all) const {
  std::vector<RooflineSeries> result;
  for (const Program& program : programs_) {
    RooflineSeries series = {program.title, true, {}};
    std::set<std::string> done;  // once for all algorithms
    for (const Measured& m : all) {
      const auto found = program.gflops.find(layer_key(*m.bench_case));
      if (found == program.gflops.end() || !(found->second > 0)) continue;
      if (!done.insert(found->first).second) continue;
      series.dots.push_back(dot_of(*m.bench_case, found->second, program.title));
    }
    if (!series.dots.empty()) result.push_back(std::move(series));
  }
  return result;
}

void check_plot(const Options& options) {
  const BenchOptions& b = options.bench;
  const bool by_flag = !b.plot_peers.empty() && options.origins.count("--plot-peers") == 0;
  if (by_flag && b.plot.empty()) misuse("--plot-peers: given without --plot");
  if (b.plot.empty()) return;
  if (b.plot == "-") misuse("--plot -: standard output is for the table; name a file");
  check_picture_name("--plot", b.plot);
  check_files_are_kept(options);
  check_replaceable("--plot: ", b.plot, "<svg xmlns=", "SVG picture");
  check_output(b.plot);
}

void write_plot(const std::vector<Measured>& all, const std::map<int, Peaks>& peaks,
                const std::optional<PlotPeers>& peers, const Options& options) {
  const Differences differences(all);
  Roofline roofline = {title_of(all, options, differences), {}, own_series(all, differences)};
  for (const auto& [threads, values] : peaks) {
    roofline.roofs.push_back(roof_of(values, all, differences));
  }
  if (peers) {
    for (RooflineSeries& series : peers->series(all)) roofline.series.push_back(std::move(series));
  }
  write_file(options.bench.plot, roofline_svg(roofline));
}

}  // namespace convgrad::cli
