// sample.cpp - see sample.hpp.
#include "check/sample.hpp"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "check/draw.hpp"
#include "check/entry_sum.hpp"

namespace convgrad {
namespace {

std::vector<std::int64_t> corners_of(const WgradProblem& pb) {
  const std::int64_t extents[] = {pb.axis[0].taps, pb.axis[1].taps, pb.axis[2].taps, pb.group_c(),
                                  pb.K};
  std::vector<std::int64_t> corners = {0};
  for (const std::int64_t extent : extents) {
    std::vector<std::int64_t> next;
    for (const std::int64_t corner : corners) {
      next.push_back(corner * extent);
      if (extent > 1) next.push_back(corner * extent + extent - 1);
    }
    corners = next;
  }
  return corners;
}

}  // namespace

Sample choose_entries(const WgradProblem& problem, std::int64_t wanted, std::uint64_t seed) {
  const std::int64_t count = problem.dw_count();
  Sample sample;
  const std::vector<std::int64_t> corners = corners_of(problem);
  sample.corners = static_cast<std::int64_t>(corners.size());
  std::mt19937_64 random(seed);
  if (wanted > count / 2) {  // so many that drawing again and again would not end soon
    std::int64_t needed = std::max<std::int64_t>(std::min(wanted, count) - sample.corners, 0);
    std::int64_t left = count - sample.corners;
    std::size_t corner = 0;
    for (std::int64_t index = 0; index < count; ++index) {
      if (corner < corners.size() && corners[corner] == index) {
        ++corner;
        sample.indices.push_back(index);
      } else if (draw(random, left--) < needed) {
        --needed;
        sample.indices.push_back(index);
      }
    }
    return sample;
  }
  std::unordered_set<std::int64_t> chosen(corners.begin(), corners.end());
  while (static_cast<std::int64_t>(chosen.size()) < wanted) chosen.insert(draw(random, count));
  sample.indices.assign(chosen.begin(), chosen.end());
  std::sort(sample.indices.begin(), sample.indices.end());
  return sample;
}

double detectable_share(std::int64_t chosen, std::int64_t count) {
  if (chosen >= count) return 1 / static_cast<double>(std::max<std::int64_t>(count, 1));
  return 1 - std::pow(0.01, 1 / static_cast<double>(chosen));
}

struct SampledSum::State {
  const WgradProblem problem;
  TaskPool& pool;
  std::vector<EntryTerms> entries;
  std::vector<ExactSum> sums;
};

std::int64_t SampledSum::memory_bytes(std::int64_t entries) {
  const std::size_t each = sizeof(EntryTerms) + sizeof(ExactSum) + 4 * sizeof(double);
  return checked_mul(entries, static_cast<std::int64_t>(each), "the sampled entries");
}

SampledSum::SampledSum(const WgradProblem& problem, TaskPool& pool,
                       const std::vector<std::int64_t>& indices)
    : state_(new State{problem, pool, {}, {}}) {
  for (const std::int64_t index : indices) state_->entries.push_back(entry_terms(problem, index));
  state_->sums.resize(indices.size());
}

SampledSum::~SampledSum() = default;

void SampledSum::add(const Block& block, std::int64_t, const Progress& progress) {
  State& state = *state_;
  const TensorView view = plain_view(state.problem, block);
  const auto count = static_cast<std::int64_t>(state.entries.size());
  std::atomic<std::int64_t> done{0};
  state.pool.run(count, [&](std::int64_t task, int) {
    const auto i = static_cast<std::size_t>(task);
    with_scalar(state.problem.dtype, [&](auto scalar) {
      add_terms<decltype(scalar)>(view, state.entries[i], state.sums[i]);
    });
    if (progress) progress(++done, count);
  });
}

double* SampledSum::finish(std::size_t) {
  for (const ExactSum& sum : state_->sums) {
    values_.push_back(sum.value());
    magnitudes_.push_back(sum.magnitude);
  }
  return values_.data();
}

}  // namespace convgrad
