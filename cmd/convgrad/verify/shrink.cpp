// shrink.cpp - see shrink.hpp. Each range is halved while a half still fails, then shortened by one
// at its ends, until nothing helps.
#include "verify/shrink.hpp"

namespace convgrad::cli {
namespace {

// Spent in any case: seconds. Otherwise a few times the whole problem.
constexpr double kLeastShrinkBudget = 0x1p33;
constexpr double kWholeProblems = 4;

struct Sums {
  std::vector<double> got;
  Expected expected;
};

// kernel null: the reference alone.
Sums run_part(Job& job, const Options& options, const CroppedPart& part, const Kernel* kernel) {
  PlanOptions planned = plan_options(options);
  const Summation summation = summation_of(job, options);
  planned.check_bytes = ReferenceSum::memory_bytes(part.problem, summation);
  planned.backend = kernel != nullptr ? Backend::cpu : Backend::reference;
  planned.kernel = kernel;
  const Plan plan = make_plan(part.problem, this_machine(), planned);
  TaskPool pool(plan.threads);
  NpySource source(*job.x, *job.dy, part.origin);
  const std::unique_ptr<BlockSum> gradient = kernel != nullptr ? make_sum(plan, pool) : nullptr;
  ReferenceSum reference(part.problem, pool, summation);
  Timing timing;
  stream_blocks(
      plan, source,
      [&](const Block& block, std::int64_t index) {
        if (gradient) gradient->add(block, index);
        reference.add(block, index);
      },
      timing);
  const double* const values = reference.finish();
  const double* dw = gradient ? gradient->finish() : values;
  Sums sums = {{dw, dw + part.problem.dw_count()}, {}};
  sums.expected = reference.take_expected();
  for (double& value : sums.got) value = rounded(part.problem.out_dtype, value);
  return sums;
}

}  // namespace

Crop element_crop(const WgradProblem& pb, std::int64_t index) {
  Crop crop = whole_crop(pb);
  const std::int64_t k = index % pb.K, c = index / pb.K % pb.group_c();
  const std::int64_t tap = index / pb.K / pb.group_c();
  const std::int64_t S = pb.axis[2].taps, R = pb.axis[1].taps;
  const std::int64_t group = k / pb.group_k(), in_group = k % pb.group_k();
  crop.groups = {group, group + 1};
  crop.c = {c, c + 1};
  crop.k = {in_group, in_group + 1};
  crop.taps = {
      {{tap / S / R, tap / S / R + 1}, {tap / S % R, tap / S % R + 1}, {tap % S, tap % S + 1}}};
  return crop;
}

Expected reference_on(Job& job, const Options& options, const CroppedPart& part) {
  return run_part(job, options, part, nullptr).expected;
}

bool Shrinker::fails(const Crop& crop) {
  const std::optional<CroppedProblem> part = cropped(job_.problem, crop);
  if (!part || budget_ <= 0) return false;
  if (kernel_ != nullptr && !kernel_->why_not(part->problem, this_machine()).empty()) return false;
  budget_ -= flop_count(part->problem) / 2;
  const CroppedPart candidate = {crop, part->problem, part->origin};
  Sums sums = run_part(job_, options_, candidate, kernel_);
  const Comparison comparison = compare_gradients(part->problem, part->problem.out_dtype, {},
                                                  sums.got, sums.expected, tolerance_);
  if (comparison.match()) return false;
  smallest_ = candidate;
  result_ = std::move(sums.got);
  return true;
}

// range is a part of crop.
bool Shrinker::halve(Crop& crop, Range& range) {
  bool shorter = false;
  while (range.size() > 1) {
    const Range before = range;
    const std::int64_t middle = before.begin + before.size() / 2;
    range = {before.begin, middle};
    if (!fails(crop)) {
      range = {middle, before.end};
      if (!fails(crop)) {
        range = before;
        break;
      }
    }
    shorter = true;
  }
  return shorter;
}

bool Shrinker::trim(Crop& crop, Range& range) {
  bool shorter = false;
  while (range.size() > 1) {
    const Range before = range;
    range = {before.begin + 1, before.end};
    if (!fails(crop)) {
      range = {before.begin, before.end - 1};
      if (!fails(crop)) {
        range = before;
        break;
      }
    }
    shorter = true;
  }
  return shorter;
}

std::optional<CroppedPart> Shrinker::shrink(std::int64_t wrong) {
  budget_ = std::max(kLeastShrinkBudget, kWholeProblems * flop_count(job_.problem) / 2);
  Crop crop = whole_crop(job_.problem);
  if (!cropped(job_.problem, crop)) return std::nullopt;
  const Crop element = element_crop(job_.problem, wrong);
  if (fails(element)) {
    crop = element;
  } else if (!fails(crop)) {  // the result depends on more than the problem: nothing to shrink
    is_right_again_ = true;
    return std::nullopt;
  }
  bool shorter = true;
  while (shorter) {
    shorter = false;
    std::vector<Range*> ranges = {&crop.images, &crop.groups, &crop.out[0], &crop.out[1],
                                  &crop.out[2]};
    for (Range* range : ranges) shorter = halve(crop, *range) || shorter;
    ranges = {&crop.taps[0], &crop.taps[1], &crop.taps[2]};
    if (crop.groups.size() == 1) ranges.insert(ranges.end(), {&crop.c, &crop.k});
    for (Range* range : ranges) shorter = halve(crop, *range) || shorter;
    ranges.insert(ranges.end(), {&crop.images, &crop.out[0], &crop.out[1], &crop.out[2]});
    for (Range* range : ranges) shorter = trim(crop, *range) || shorter;
  }
  return smallest_;
}

}  // namespace convgrad::cli
