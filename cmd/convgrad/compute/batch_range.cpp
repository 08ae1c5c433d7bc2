// batch_range.cpp - see compute.hpp.
#include <optional>

#include "base/messages.hpp"
#include "compute/compute.hpp"
#include "convgrad/array_file.hpp"
#include "engine/partial_file.hpp"
#include "options/arguments.hpp"
#include "options/help.hpp"

namespace convgrad::cli {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  misuse("--batch-range: '", text, "' is no range, expected A:B for images A to B-1, or K/R for ",
         "the K-th of R parts");
}

}  // namespace

BatchRange parse_batch_range(const std::string& text, std::int64_t images) {
  BatchRange range;
  if (text.empty()) return range;
  const std::size_t at = text.find_first_of(":/");
  if (at == std::string::npos) refuse(text);
  const std::string_view all = text, first = all.substr(0, at), second = all.substr(at + 1);
  if (text[at] == '/') {
    const auto share = parse_share(text);
    if (!share) refuse(text);
    return {BatchRange::Kind::share, {}, share->first - 1, share->second};
  }
  const auto begin = first.empty() ? std::optional<std::int64_t>(0) : parse_whole(first);
  const auto end = second.empty() ? std::optional<std::int64_t>(images) : parse_whole(second);
  if (!begin || !end || *begin > *end) refuse(text);
  return {BatchRange::Kind::images, {*begin, *end}, 0, 1};
}

void check_batch_range(const Options& options) {
  const ExecutionOptions& execution = options.execution;
  if (execution.batch_range.empty()) return;
  if (execution.accumulate) {
    misuse("--accumulate: given with --batch-range, whose output is no gradient yet",
           Hint("give it ", "without, or add the parts with convgrad reduce"));
  }
  if (execution.raw) {
    misuse("--raw: given with --batch-range, whose output is no gradient yet",
           Hint("give it to ", "convgrad reduce"));
  }
  const std::string& output = options.problem.output;
  const ArrayTarget target = array_target(output);
  if (target.file != output || output.ends_with(".npy") ||
      target.format == ArrayFormat::safetensors) {
    misuse("--output: ", output, " is given with --batch-range, which writes an archive of its ",
           "own, expected FILE.npz");
  }
  if (execution.backend == "reference") {
    misuse("--batch-range: given with --backend reference, which sums the batch in one go",
           Hint("use ", "--backend cpu"));
  }
}

Json part_json(const Plan& plan) {
  const Range slices = plan.schedule.slices.slices_of(plan.schedule.part.partitions);
  return {{"images", {plan.schedule.part.images.begin, plan.schedule.part.images.end}},
          {"of_images", plan.problem.N},
          {"slices", {slices.begin, slices.end}},
          {"of_slices", plan.schedule.slices.count()},
          {"nodes", plan.schedule.nodes.size()}};
}

std::string part_text(const Plan& plan) {
  const std::vector<BatchCut> cuts = batch_cuts(plan.schedule.chunks, plan.schedule.slices);
  std::string text =
      cat("part       images ", plan.schedule.part.images.begin, ":", plan.schedule.part.images.end,
          " of ", plan.problem.N, ", a file of about ",
          format_bytes(static_cast<double>(partial_file_bytes(plan))), "; can be cut at");
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

WgradProblem part_problem(const Plan& plan) {
  WgradProblem problem = plan.problem;
  problem.N = plan.schedule.part.images.size();
  return problem;
}

void write_part(const std::string& path, const Plan& plan, BlockSum& sum,
                const OutputOptions& options) {
  std::vector<const double*> sums;
  for (std::size_t node = 0; node < plan.schedule.nodes.size(); ++node) {
    sums.push_back(sum.finish(node));
  }
  // Parts of one run must be of one version, revision and compiler.
  write_partial(path, partial_header(plan, version_text()), plan.schedule.nodes, sums, options);
}

}  // namespace convgrad::cli
