// compute.cpp - the main job: a filter gradient from .npy to .npy; with --batch-range the sums of a
// part of the batch in a file; reduce: the gradient from such files.
#include "compute/compute.hpp"

#include <algorithm>
#include <cstdio>

#include "check/spot_check.hpp"
#include "convgrad/array_file.hpp"
#include "convgrad/gradient_file.hpp"
#include "engine/partial_file.hpp"
#include "files/tensor_source.hpp"
#include "job/job_files.hpp"
#include "options/arguments.hpp"
#include "options/help.hpp"
#include "options/problems.hpp"

namespace convgrad::cli {
namespace {

// Returns the part that text names: "A:B", images A to B-1, where a missing A is 0 and a missing B
// the end, "K/R", the K-th of R parts, or "", all of the batch, which has so many images. Throws
// Error(usage) for other text.
BatchRange parse_batch_range(const std::string& text, std::int64_t images) {
  if (text.empty()) return {};
  if (const auto share = parse_share(text)) return {{}, share->first - 1, share->second};
  const std::size_t at = text.find(':');
  const std::string_view all = text, first = all.substr(0, at), second = all.substr(at + 1);
  const auto begin = first.empty() ? std::optional<std::int64_t>(0) : parse_whole(first);
  const auto end = second.empty() ? std::optional<std::int64_t>(images) : parse_whole(second);
  if (at == text.npos || !begin || !end || *begin > *end) {
    misuse("--batch-range: '", text, "' is no range, expected A:B for images A to B-1, or K/R for ",
           "the K-th of R parts");
  }
  return {Range{*begin, *end}};
}

void check_batch_range(const Options& options) {
  const ExecutionOptions& execution = options.execution;
  if (execution.batch_range.empty()) return;
  if (execution.accumulate) {
    misuse("--accumulate: given with --batch-range, whose output is no gradient yet",
           Hint("give it without, or add the parts with convgrad reduce"));
  }
  if (execution.raw) {
    misuse("--raw: given with --batch-range, whose output is no gradient yet",
           Hint("give it to convgrad reduce"));
  }
  const std::string& output = options.problem.output;
  const ArrayTarget target = array_target(output);
  if (!output.empty() && (target.file != output || target.format != ArrayFormat::npz)) {
    misuse("--output: ", output, " is given with --batch-range, which writes an archive of its ",
           "own, expected FILE.npz");
  }
  if (execution.backend == "reference") {
    misuse("--batch-range: given with --backend reference, which sums the batch in one go",
           Hint("use --backend cpu"));
  }
}

std::string part_text(const Plan& plan) {
  const std::vector<BatchCut> cuts = batch_cuts(plan.schedule.chunks, plan.schedule.slices);
  std::string text =
      cat("part       images ", plan.schedule.part.images.begin, ":", plan.schedule.part.images.end,
          " of ", plan.problem.N, ", a file of about ", format_bytes(partial_file_bytes(plan)),
          "; can be cut at");
  constexpr std::size_t kMost = 12;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (cuts.size() > kMost && i == kMost / 2) {
      text += " ...";
      i = cuts.size() - kMost / 2;
    }
    text += cat(" ", cuts[i].image);
  }
  return text + "\n";
}

// Returns where the sums will be rounded, or nothing. Of a device's gradient fewer bytes are copied
// then; the processor has its sums at hand.
Buffer rounded_by(BlockSum& sums, const Plan& plan) {
  if (!plan.cuda()) return {};
  Buffer rounded(plan.problem.dw_count() * dtype_bytes(plan.problem.out_dtype), "the gradient");
  return sums.round_to_result(rounded.data()) ? std::move(rounded) : Buffer();
}

// Sums what is left, and returns the seconds that writing takes.
double finish_and_write(const ReadyJob& ready, BlockSum& sums, const Buffer& rounded,
                        const Options& options, Timing& timing) {
  double* dw = nullptr;
  const double finish_s = seconds_of([&] { dw = sums.finish(); });
  timing.kernel_s += finish_s;
  timing.total_s += finish_s;
  return seconds_of([&] {
    if (rounded.data() == nullptr) return write_sums(ready, dw, options);
    write_rounded_gradient(options.problem.output, ready.job.problem, rounded.data(),
                           gradient_options(options));
  });
}

std::vector<double> read_addend(const ArrayTarget& target, const WgradProblem& problem) {
  GradientFile old = read_gradient(target.readable_name(), problem);
  if (old.dtype == problem.out_dtype) return std::move(old.values);
  bad_input(target.readable_name(), ": dtype ", dtype_name(old.dtype), ", expected ",
            dtype_name(problem.out_dtype), Hint("use --out-dtype ", dtype_name(old.dtype)));
}

bool is_part(const Options& options) { return !options.execution.batch_range.empty(); }

}  // namespace

void check_compute_options(const Options& options) {
  check_required(options.problem);
  const std::string& output = options.problem.output;
  if (output.empty() && !options.execution.dry_run) {
    misuse("--output is missing, expected a .npy file or -");
  }
  if (options.execution.accumulate && options.execution.raw) {
    misuse("--accumulate: given with --raw, but a raw file does not say what it holds",
           Hint("add to a .npy file"));
  }
  if (options.execution.accumulate && (output == "-" || is_special(output))) {
    misuse("--accumulate: --output ", output, " is no file that can be added to");
  }
  if (options.execution.accumulate && options.execution.no_clobber) {
    misuse("--accumulate and --no-clobber exclude each other");
  }
  check_batch_range(options);
  check_outputs(options);
}

ReadyJob make_ready(const Options& options, const std::optional<BatchRange>& share, bool writes) {
  const ExecutionOptions& execution = options.execution;
  ReadyJob ready = {open_job(options), {}, {}};
  const WgradProblem& problem = ready.job.problem;
  PlanOptions planned = plan_options(ready.job, options);
  planned.batch = share ? *share : parse_batch_range(execution.batch_range, problem.N);
  ready.plan = plan_job(ready.job, planned);
  if (!writes || execution.dry_run) return ready;
  if (is_part(options)) {
    check_partial_output(options.problem.output, gradient_options(options));
    return ready;
  }
  try {
    if (execution.accumulate) ready.addend = read_addend(gradient_target(options), problem);
  } catch (const Error& error) {
    throw Error(error.kind(), "--accumulate: ", error,
                Hint("compute it once without --accumulate"));
  }
  check_array_output(options.problem.output, gradient_options(options));
  warn_of_endings(options);
  return ready;
}

void write_sums(const ReadyJob& ready, double* dw, const Options& options) {
  for (std::size_t i = 0; i < ready.addend.size(); ++i) dw[i] += ready.addend[i];
  write_gradient(options.problem.output, ready.job.problem, dw, gradient_options(options));
}

ReportPointer computed_report(const ReadyJob& ready, const Options& options,
                              const JobTiming& timing, const Json& more) {
  if (options.execution.verbose) print_timing(ready.plan, timing);
  Tensors tensors = ready.job.tensors;
  if (!is_part(options) && !options.json.empty()) {
    add_gradient(gradient_target(options), ready.job.problem, tensors);
  }
  Json fields = plan_fields(tensors, ready.plan, more);
  fields.update(timing.fields());
  fields["output"] = options.problem.output;
  return std::make_unique<PlainReport>("", std::move(fields));
}

ReportPointer compute(const Options& options) {
  if (options.execution.mpi) return compute_on_ranks(options);
  if (ReportPointer listed = listed_algorithms(options)) return listed;
  check_compute_options(options);
  ReadyJob ready = make_ready(options, std::nullopt, true);
  const Plan& plan = ready.plan;
  const std::size_t nodes = plan.schedule.nodes.size();
  std::optional<PartialHeader> part;
  Json more = Json::object();
  if (is_part(options)) {
    // Parts of one run must be of one version, revision and compiler.
    part = partial_header(plan, version_text());
    more["part"] = part_json(*part, nodes);
  }
  if (options.execution.dry_run) {
    return plan_report(ready.job, plan, options, part ? part_text(plan) : "", more);
  }
  TaskPool pool(plan.threads);
  const std::unique_ptr<BlockSum> sums = checked_sum(plan, pool, options.execution);
  Buffer rounded;
  if (!part && ready.addend.empty()) rounded = rounded_by(*sums, plan);
  JobTiming timing = {run_job(ready.job, plan, sums.get(), nullptr), 0, part_problem(plan)};
  if (part) {
    timing.write_s = seconds_of([&] {
      std::vector<const double*> values;
      for (std::size_t node = 0; node < nodes; ++node) values.push_back(sums->finish(node));
      write_partial(options.problem.output, *part, values, gradient_options(options));
    });
  } else {
    timing.write_s = finish_and_write(ready, *sums, rounded, options, timing.timing);
  }
  return computed_report(ready, options, timing, more);
}

std::unique_ptr<BlockSum> checked_sum(const Plan& plan, TaskPool& pool,
                                      const ExecutionOptions& options) {
  const std::int64_t elements = options.spot_check.value_or(plan.cuda() ? kSpotCheckOnDevice : 0);
  return spot_checked(make_sum(plan, pool), plan, pool, elements);
}

ReportPointer reduce(const ReduceOptions& options) {
  const std::string& output = options.problem.output;
  if (options.parts.empty()) {
    misuse("reduce: no file is named, expected those that --batch-range has written");
  }
  if (output.empty()) misuse("--output is missing, expected a .npy file or -");
  if (std::ranges::count(options.parts, "-") > 0) {
    misuse("reduce: - is a stream, expected files of --batch-range");
  }
  check_outputs(options);
  const OutputOptions output_options = gradient_options(options);
  check_array_output(output, output_options);
  warn_of_endings(options);
  std::vector<PartialFile> files;
  for (const std::string& name : options.parts) files.push_back(open_partial(name));
  check_partials(files);
  const WgradProblem& problem = files[0].header.problem;
  const auto start = Clock::now();
  const Buffer sums = add_partials(files);
  const double read_s = seconds_since(start);
  write_gradient(output, problem, sums.as<double>(), output_options);
  Json fields = problem_fields(problem);
  Json& parts = fields["parts"] = Json::array();
  for (const PartialFile& file : files) {
    parts.push_back({{"file", file.path}, {"algorithm", file.header.algorithm}});
    parts.back().update(part_json(file.header, file.nodes.size()));
  }
  fields["output"] = output;
  if (!options.json.empty()) {
    Tensors tensors;
    add_gradient(gradient_target(options), problem, tensors);
    fields["tensors"] = tensors_json(tensors);
  }
  if (options.execution.verbose) {
    std::fprintf(stderr, "%s\n%zu files, added in %.2f ms, total %.2f ms\n",
                 describe(problem).c_str(), files.size(), read_s * 1e3, seconds_since(start) * 1e3);
  }
  return std::make_unique<PlainReport>("", std::move(fields));
}

}  // namespace convgrad::cli
