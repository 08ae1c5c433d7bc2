// reduce.cpp - the gradient from the files of --batch-range.
#include <algorithm>
#include <cstdio>

#include "base/clock.hpp"
#include "compute/compute.hpp"
#include "convgrad/gradient_file.hpp"
#include "engine/partial_file.hpp"
#include "job/job_files.hpp"
#include "options/arguments.hpp"

namespace convgrad::cli {
namespace {

void check_names(const ReduceOptions& options) {
  const std::string& output = options.problem.output;
  if (options.parts.empty()) {
    misuse("reduce: no file is named, expected those that --batch-range has written");
  }
  if (output.empty()) {
    misuse("--output is missing, expected a .npy file or -");
  }
  if (std::ranges::count(options.parts, "-") > 0) {
    misuse("reduce: - is a stream, expected files of --batch-range");
  }
  check_outputs(options);
}

std::vector<PartialFile> open_all(const Words& names) {
  std::vector<PartialFile> files;
  for (const std::string& name : names) files.push_back(open_partial(name));
  check_partials(files);
  return files;
}

struct ReduceReport final : Report {
  Json json() const override {
    Json parts = Json::array();
    for (const PartialFile& file : files) {
      const PartialHeader& header = file.header;
      parts.push_back({{"file", file.path},
                       {"images", {header.images.begin, header.images.end}},
                       {"of_images", header.problem.N},
                       {"slices", {header.slices.begin, header.slices.end}},
                       {"of_slices", header.of_slices},
                       {"nodes", file.nodes.size()},
                       {"algorithm", header.algorithm}});
    }
    Json json = problem_fields(files[0].header.problem);
    json["parts"] = parts;
    json["output"] = output;
    if (!tensors.empty()) json["tensors"] = tensors_json(tensors);
    return json;
  }

  std::vector<PartialFile> files;
  std::string output;
  Tensors tensors;
};

}  // namespace

ReportPointer reduce(const ReduceOptions& options) {
  check_names(options);
  const std::string& output = options.problem.output;
  const OutputOptions output_options = gradient_options(options);
  check_array_output(output, output_options);
  warn_of_endings(options);
  auto report = std::make_unique<ReduceReport>();
  report->files = open_all(options.parts);
  report->output = output;
  const WgradProblem& problem = report->files[0].header.problem;
  const auto start = Clock::now();
  const Buffer sums = add_partials(report->files);
  const double read_s = seconds_since(start);
  write_gradient(output, problem, sums.as<double>(), nullptr, output_options);
  if (!options.json.empty()) add_gradient(gradient_target(options), problem, report->tensors);
  if (options.execution.verbose) {
    std::fprintf(stderr, "%s\n%zu files, added in %.2f ms, total %.2f ms\n",
                 describe(problem).c_str(), report->files.size(), read_s * 1e3,
                 seconds_since(start) * 1e3);
  }
  return report;
}

}  // namespace convgrad::cli
