// reference.cpp - sums the definition term by term.
#include <algorithm>

#include "base/buffer.hpp"
#include "base/integers.hpp"
#include "check/block_walk.hpp"
#include "check/reference_sum.hpp"
#include "check/rounding.hpp"
#include "engine/run.hpp"

namespace convgrad {
namespace {

// The sums of an element take kElementBytes; kCachedBytes are a part of a core's second cache.
constexpr std::int64_t kElementBytes = 72, kCachedBytes = std::int64_t{512} << 10;

}  // namespace

ReferenceSum::ReferenceSum(const WgradProblem& problem, TaskPool& pool,
                           const std::optional<Summation>& summation)
    : problem_(problem), pool_(pool), summation_(summation) {
  const auto count = static_cast<std::size_t>(problem.dw_count());
  const bool compensated = problem.dtype == DType::f64;
  try {
    pixels_.resize(static_cast<std::size_t>(problem.taps()));
    run_.resize(count);
    if (compensated) compensation_.resize(count);
    if (!summation) return;
    for (std::vector<double>* each :
         {&expected_.magnitudes, &squares_, &walk_, &terms_, &expected_.values, &plain_}) {
      each->resize(count);
    }
    if (!compensated) plain_run_.resize(count);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::runtime, "out of memory: the reference's sums");
  }
}

std::int64_t ReferenceSum::memory_bytes(const WgradProblem& problem,
                                        const std::optional<Summation>& summation) {
  const std::int64_t values = reference_bytes(problem);
  if (!summation) return values;
  // These are the sums' six, and the four numbers of a RoundingScale that are made of them.
  constexpr std::int64_t kArrays = 10;
  return checked_add(values, checked_mul(kArrays * 8, problem.dw_count(), "the reference's sums"),
                     "the reference's sums");
}

TermSums ReferenceSum::sums_from(std::int64_t cell) {
  const auto of = [cell](auto& numbers) {
    return numbers.empty() ? nullptr : numbers.data() + cell;
  };
  return {of(run_),   of(compensation_), of(expected_.magnitudes), of(squares_), of(walk_),
          of(terms_), of(plain_run_),    of(expected_.values),     of(plain_)};
}

template <typename Scalar>
void ReferenceSum::add_task(const Block& block, std::int64_t tap, std::int64_t group,
                            const Range& channels) {
  const WgradProblem& pb = problem_;
  const std::int64_t Cg = pb.group_c(), Kg = pb.group_k();
  const std::int64_t longest = summation_ ? summation_->longest_sum : 0;
  const bool every = term_count(pb) < kLookedAtEach;
  // These terms are added next: where the pixels' input channels are, and dy of the group, in
  // memory that is aligned, as vectors of processors like it.
  const Scalar* next_x[kBatchPixels] = {};
  const Buffer next_dy(kBatchPixels * Kg * 8, "the reference's pixels");
  const Buffer next_plain(kBatchPixels * Kg * 4, "the reference's pixels");
  std::int64_t next = 0, pixels = pixels_[static_cast<std::size_t>(tap)];
  const auto add_pending = [&] {
    const TermBatch batch = {
        next, Kg, next_dy.as<double>(), next_plain.as<float>(), every, pixels % kBatchPixels == 0};
    const bool ends = longest > 0 && pixels % longest == 0;
    for (std::int64_t c = channels.begin; c < channels.end; ++c) {
      double values[kBatchPixels];
      for (std::int64_t i = 0; i < next; ++i) {
        values[i] = to_double(next_x[i][(group * Cg + c) * block.x_strides.c]);
      }
      const TermSums sums = sums_from((tap * Cg + c) * pb.K + group * Kg);
      add_batch(batch, values, sums);
      if (ends) restart(sums, Kg);
    }
    next = 0;
  };
  const auto add_pixel = [&](const Scalar* x_at, const Scalar* dy_at) {
    double* const row = next_dy.as<double>() + next * Kg;
    float* const plain = next_plain.as<float>() + next * Kg;
    const std::int64_t step = block.dy_strides.c;
    const Scalar* const first = dy_at + group * Kg * step;
    for (std::int64_t k = 0; k < Kg; ++k) {
      row[k] = to_double(first[k * step]);
      plain[k] = static_cast<float>(row[k]);
    }
    next_x[next++] = x_at;
    ++pixels;
    if (pixels % kBatchPixels == 0 || (longest > 0 && pixels % longest == 0)) add_pending();
  };
  visit_pixel_lines<Scalar>(pb, block, block.pixels, tap_place(pb, tap),
                            [&](const PixelLine<Scalar>& line) {
                              for (std::int64_t i = 0; i < line.q.size(); ++i) {
                                add_pixel(line.x + i * line.x_step, line.dy + i * line.dy_step);
                              }
                            });
  if (next > 0) add_pending();
  if (group == 0 && channels.begin == 0) seen_[static_cast<std::size_t>(tap)] = pixels;
}

void ReferenceSum::add(const Block& block, std::int64_t, const Progress& progress) {
  const std::int64_t Cg = problem_.group_c(), taps = problem_.taps();
  // There are enough parts to keep the threads busy, of sums that stay in a core's cache while all
  // pixels go by; their number has no influence on any element's sum.
  const std::int64_t whole = taps * problem_.groups;
  const std::int64_t busy = ceil_div(std::int64_t{8} * pool_.threads(), whole);
  const std::int64_t cached = ceil_div(Cg * problem_.group_k() * kElementBytes, kCachedBytes);
  const std::int64_t c_parts = std::clamp<std::int64_t>(std::max(busy, cached), 1, Cg);
  seen_ = pixels_;
  run_tasks(pool_, problem_.dtype, whole * c_parts, progress, [&](std::int64_t task, auto scalar) {
    const std::int64_t i = task % c_parts, part = task / c_parts;
    add_task<decltype(scalar)>(block, part % taps, part / taps,
                               {Cg * i / c_parts, Cg * (i + 1) / c_parts});
  });
  pixels_ = seen_;
}

double* ReferenceSum::finish(std::size_t) {
  if (!summation_) {
    expected_.values = std::move(run_);
    for (std::size_t i = 0; i < compensation_.size(); ++i) {
      compensate(expected_.values[i], compensation_[i]);
    }
    expected_.tails = std::move(compensation_);
    return expected_.values.data();
  }
  const TermSums sums = sums_from(0);
  const std::int64_t count = problem_.dw_count(), cells = problem_.group_c() * problem_.K;
  restart(sums, count);
  run_ = {};
  plain_run_ = {};
  std::vector<RoundingScale> judged;
  judged.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t pixels = pixels_[static_cast<std::size_t>(i / cells)];
    judged.push_back(judge_terms(sums, i, problem_, pixels, *summation_, expected_.squares));
  }
  for (std::vector<double>* each : {&squares_, &walk_, &terms_, &plain_}) {
    *each = std::vector<double>();
  }
  expected_.tails = std::move(compensation_);
  set_scales(problem_, true, *summation_, judged, expected_);
  multiply(problem_.dtype, summation_->factor, expected_);
  return expected_.values.data();
}

std::unique_ptr<BlockSum> make_reference_sum(const WgradProblem& problem, TaskPool& pool) {
  return std::make_unique<ReferenceSum>(problem, pool);
}

Expected expected_gradient(const WgradProblem& problem, const void* x, const void* dy,
                           const GradientOptions& options, const Summation& summation) {
  PlanOptions planned;
  planned.backend = Backend::reference;
  planned.threads = options.threads;
  planned.memory_limit_bytes = options.memory_limit_bytes;
  planned.check_bytes = ReferenceSum::memory_bytes(problem, summation);
  planned.in_memory = true;
  const Plan plan = make_plan(problem, this_machine(), planned);
  TaskPool pool(plan.threads);
  ReferenceSum sum(problem, pool, summation);
  MemorySource source(x, dy);
  sum_blocks(plan, source, sum);
  sum.finish();
  return sum.take_expected();
}

}  // namespace convgrad
