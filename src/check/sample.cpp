#include "check/sample.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <unordered_set>

#include "check/rounding.hpp"

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

std::vector<std::int64_t> shuffled(std::int64_t count, std::mt19937_64& random) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (std::int64_t i = count; i > 1; --i) {
    std::swap(numbers[static_cast<std::size_t>(i - 1)],
              numbers[static_cast<std::size_t>(draw(random, i))]);
  }
  return numbers;
}

// Draws entries that take taps, input and output channels in turn, each in an order of its own. As
// many in a row as there are taps, c or k hit each of them; taps times as many hit each c and k of
// each tap.
class Diagonals {
 public:
  Diagonals(const WgradProblem& pb, std::mt19937_64& random)
      : taps_(shuffled(pb.taps(), random)),
        c_(shuffled(pb.group_c(), random)),
        k_(shuffled(pb.K, random)) {}

  std::int64_t entry(std::int64_t i) const {
    const std::int64_t taps = std::ssize(taps_), C = std::ssize(c_), K = std::ssize(k_);
    const std::int64_t tap = i % taps, round = i / taps;
    // Taps begin at different channels; from one cycle to the next c meets other k.
    const std::int64_t c = (tap * C / taps + round + round / C) % C;
    const std::int64_t k = (tap * K / taps + round + 2 * (round / K)) % K;
    return (taps_[static_cast<std::size_t>(tap)] * C + c_[static_cast<std::size_t>(c)]) * K +
           k_[static_cast<std::size_t>(k)];
  }

 private:
  std::vector<std::int64_t> taps_, c_, k_;
};

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
  const Diagonals diagonals(problem, random);
  for (std::int64_t i = 0; i < wanted && std::ssize(chosen) < wanted; ++i) {
    chosen.insert(diagonals.entry(i));
  }
  while (std::ssize(chosen) < wanted) chosen.insert(draw(random, count));
  sample.indices.assign(chosen.begin(), chosen.end());
  std::sort(sample.indices.begin(), sample.indices.end());
  return sample;
}

double detectable_share(std::int64_t chosen, std::int64_t count) {
  if (chosen >= count) return 1 / static_cast<double>(std::max<std::int64_t>(count, 1));
  return 1 - std::pow(0.01, 1 / static_cast<double>(chosen));
}

Expected expected_of(const WgradProblem& problem, const Summation& summation,
                     std::span<EntrySum> sums) {
  Expected result;
  std::vector<double> plain, drift;
  const bool compensated = problem.dtype == DType::f64;
  for (EntrySum& sum : sums) {
    judge_terms(sum.sums(compensated), 1, problem, sum.pixels, summation, result.squares);
    result.values.push_back(sum.earlier);
    if (compensated) result.tails.push_back(sum.run.compensation);
    result.magnitudes.push_back(sum.run.magnitude);
    result.scales.push_back(sum.run.walk);
    result.limits.push_back(sum.run.squares);
    plain.push_back(sum.plain);
    drift.push_back(sum.run.terms);
  }
  widen_scales(problem, false, summation, plain, drift, result);
  return result;
}

std::int64_t SampledSum::memory_bytes(std::int64_t entries) {
  const std::size_t each = sizeof(EntryTerms) + sizeof(EntrySum) + 8 * sizeof(double);
  return checked_mul(entries, static_cast<std::int64_t>(each), "the sampled entries");
}

SampledSum::SampledSum(const WgradProblem& problem, TaskPool& pool,
                       const std::vector<std::int64_t>& indices, const Summation& summation)
    : problem_(problem), pool_(pool), summation_(summation), sums_(indices.size()) {
  for (const std::int64_t index : indices) entries_.push_back(entry_terms(problem, index));
}

void SampledSum::add_to(std::size_t entry, const Block& block, const SumRules& rules) {
  with_scalar(problem_.dtype, [&](auto scalar) {
    using Scalar = decltype(scalar);
    const EntryTerms& terms = entries_[entry];
    const std::int64_t x_channel = terms.x_channel * block.x_strides.c;
    const std::int64_t dy_channel = terms.dy_channel * block.dy_strides.c;
    visit_pixel_lines<Scalar>(problem_, block, terms.tap, [&](const PixelLine<Scalar>& line) {
      for (std::int64_t q = 0; q < line.q.size(); ++q) {
        const double x = to_double(line.x[q * line.x_step + x_channel]);
        const double dy = to_double(line.dy[q * line.dy_step + dy_channel]);
        sums_[entry].template add<Scalar>(x, dy, rules);
      }
    });
  });
}

// A thread takes its entries image by image, so that the lines of memory that they share are still
// in its cache.
void SampledSum::add(const Block& block, std::int64_t, const Progress& progress) {
  const SumRules rules(problem_, summation_);
  const Range images = block.pixels[0];
  const auto count = static_cast<std::int64_t>(entries_.size());
  const std::int64_t shares = std::min<std::int64_t>(count, pool_.threads());
  std::atomic<std::int64_t> done{0};
  pool_.run(shares, [&](std::int64_t share, int) {
    Block image = block;
    for (std::int64_t n = images.begin; n < images.end; ++n) {
      image.pixels[0] = {n, n + 1};
      const std::int64_t bytes = (n - images.begin) * dtype_bytes(problem_.dtype);
      image.x = static_cast<const std::byte*>(block.x) + bytes * block.x_strides.n;
      image.dy = static_cast<const std::byte*>(block.dy) + bytes * block.dy_strides.n;
      for (std::int64_t i = share * count / shares; i < (share + 1) * count / shares; ++i) {
        add_to(static_cast<std::size_t>(i), image, rules);
      }
      if (progress) progress(++done, shares * images.size());
    }
  });
}

double* SampledSum::finish(std::size_t) {
  expected_ = expected_of(problem_, summation_, sums_);
  return expected_.values.data();
}

}  // namespace convgrad
