#include "check/sample.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/integers.hpp"
#include "check/rounding.hpp"

namespace convgrad {
namespace {

// So many rows of pixels stay in a core's cache, and threads rarely wait for each other.
constexpr std::int64_t kRows = 16;

std::vector<std::int64_t> corners_of(const WgradProblem& pb) {
  if (pb.dw_count() == 0) return {};
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

// Returns so many entries that take taps, input and output channels in turn, each in its own order.
// As many in a row as there are taps, c or k hit each; taps times that, each c and k of each tap.
std::vector<std::int64_t> diagonals(const WgradProblem& pb, std::int64_t count,
                                    std::mt19937_64& random) {
  const std::int64_t taps = pb.taps(), C = pb.group_c(), K = pb.K;
  const auto tap_order = shuffled(taps, random), c_order = shuffled(C, random),
             k_order = shuffled(K, random);
  std::vector<std::int64_t> entries;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t tap = i % taps, round = i / taps;
    // Taps begin at different channels; from one cycle to the next c meets other k.
    const std::int64_t c = (tap * C / taps + round + round / C) % C;
    const std::int64_t k = (tap * K / taps + round + 2 * (round / K)) % K;
    entries.push_back(
        (tap_order[static_cast<std::size_t>(tap)] * C + c_order[static_cast<std::size_t>(c)]) * K +
        k_order[static_cast<std::size_t>(k)]);
  }
  return entries;
}

}  // namespace

Sample choose_entries(const WgradProblem& problem, std::int64_t wanted, std::uint64_t seed) {
  const std::int64_t count = problem.dw_count(), most = std::min(wanted, count);
  const std::vector<std::int64_t> corners = corners_of(problem);
  std::mt19937_64 random(seed);
  std::unordered_set<std::int64_t> chosen(corners.begin(), corners.end());
  for (const std::int64_t entry : diagonals(problem, most, random)) {
    if (std::ssize(chosen) < most) chosen.insert(entry);
  }
  if (wanted > count / 2) {  // so many that drawing again and again would not end soon
    for (const std::int64_t index : shuffled(count, random)) {
      if (std::ssize(chosen) < most) chosen.insert(index);
    }
  }
  while (std::ssize(chosen) < most) chosen.insert(draw(random, count));
  Sample sample = {{chosen.begin(), chosen.end()}, std::ssize(corners)};
  std::ranges::sort(sample.indices);
  return sample;
}

std::vector<std::int64_t> choose_neighbours(const WgradProblem& pb, std::int64_t wanted) {
  const std::int64_t C = pb.group_c(), K = pb.K;
  std::uint64_t seed = 1;
  for (const std::int64_t extent :
       {pb.N, pb.C, K, pb.groups, pb.axis[0].in, pb.axis[1].in, pb.axis[2].in, pb.taps()}) {
    seed = seed * 0x100000001b3 + static_cast<std::uint64_t>(extent);
  }
  std::mt19937_64 random(seed);
  const std::vector<std::int64_t> corners = corners_of(pb);
  if (wanted == 0 || corners.empty()) return corners;
  const std::int64_t all = std::ssize(corners) + wanted;
  const std::vector<std::int64_t> taps = shuffled(pb.taps(), random);
  const std::int64_t some_taps = std::min(pb.taps(), wanted);
  // Channels come from two lines of memory in x, and in dy.
  const auto line = [&](std::int64_t channels) {
    const std::int64_t extent = 64 / dtype_bytes(pb.dtype);
    const std::int64_t first = draw(random, ceil_div(channels, extent)) * extent;
    return Range{first, std::min(first + extent, channels)};
  };
  const std::array<Range, 2> c_lines = {line(C), line(C)}, k_lines = {line(K), line(K)};
  const std::int64_t offset = draw(random, K), most = 4 * ceil_div(wanted, some_taps);
  std::set<std::int64_t> indices(corners.begin(), corners.end());
  for (std::int64_t i = 0; i < most && std::ssize(indices) < all; ++i) {
    const Range &c_line = c_lines[static_cast<std::size_t>(i % 2)],
                &k_line = k_lines[static_cast<std::size_t>(i % 2)];
    const std::int64_t c = c_line.begin + (i / 2) % c_line.size();
    const std::int64_t k = k_line.begin + (offset + i / 2) % k_line.size();
    for (std::size_t t = 0; std::cmp_less(t, some_taps); ++t) {
      indices.insert((taps[t] * C + c) * K + k);
    }
  }
  if (std::ssize(indices) < all) return choose_entries(pb, all, seed).indices;
  return {indices.begin(), indices.end()};
}

double detectable_share(std::int64_t chosen, std::int64_t count) {
  if (chosen >= count) return 1 / static_cast<double>(std::max<std::int64_t>(count, 1));
  return 1 - std::pow(0.01, 1 / static_cast<double>(chosen));
}

Expected expected_of(const WgradProblem& problem, const Summation& summation,
                     std::span<EntrySum> sums) {
  Expected result;
  std::vector<RoundingScale> judged;
  const bool compensated = problem.dtype == DType::f64;
  for (EntrySum& sum : sums) {
    const TermSums ended = sum.sums(compensated);
    restart(ended, 1);
    judged.push_back(judge_terms(ended, 0, problem, sum.pixels, summation, result.squares));
    result.values.push_back(sum.earlier);
    if (compensated) result.tails.push_back(sum.run.compensation);
    result.magnitudes.push_back(sum.run.magnitude);
  }
  set_scales(problem, false, summation, judged, result);
  return result;
}

std::int64_t SampledSum::memory_bytes(std::int64_t entries) {
  const std::size_t each = sizeof(EntryTerms) + sizeof(EntrySum) + 8 * sizeof(double);
  return checked_mul(entries, static_cast<std::int64_t>(each), "the sampled entries");
}

SampledSum::SampledSum(const WgradProblem& problem, TaskPool& pool,
                       const std::vector<std::int64_t>& indices, const Summation& summation)
    : problem_(problem),
      pool_(pool),
      summation_(summation),
      rules_(problem, summation),
      sums_(indices.size()) {
  for (const std::int64_t index : indices) entries_.push_back(entry_terms(problem, index));
}

// A share's entries see some rows of pixels, which a core's cache holds then, before the next.
void SampledSum::add(const Block& block, std::int64_t, const Progress& progress) {
  const auto [n, z, p, q] = block.pixels;
  const std::int64_t entries = std::ssize(entries_);
  const std::int64_t shares = std::min<std::int64_t>(entries, pool_.threads());
  std::array<Range, 4> rows = block.pixels;
  const auto add_rows = [&]<typename Scalar>(std::int64_t share, Scalar) {
    for (std::int64_t i = share * entries / shares; i < (share + 1) * entries / shares; ++i) {
      const EntryTerms& from = entries_[static_cast<std::size_t>(i)];
      EntrySum sum = sums_[static_cast<std::size_t>(i)];  // which no other store changes
      const auto add_line = [&](const PixelLine<Scalar>& line) {
        const Scalar* x = line.x + from.x_channel * block.x_strides.c;
        const Scalar* dy = line.dy + from.dy_channel * block.dy_strides.c;
        for (std::int64_t j = 0; j < line.q.size(); ++j, x += line.x_step, dy += line.dy_step) {
          sum.add(to_double(*x), to_double(*dy), rules_);
        }
      };
      visit_pixel_lines<Scalar>(problem_, block, rows, from.tap, add_line);
      sums_[static_cast<std::size_t>(i)] = sum;
    }
  };
  for (std::int64_t i = n.begin; i < n.end; ++i) {
    rows[0] = {i, i + 1};
    for (std::int64_t j = z.begin; j < z.end; ++j) {
      rows[1] = {j, j + 1};
      for (std::int64_t k = p.begin; k < p.end; k += kRows) {
        rows[2] = {k, std::min(k + kRows, p.end)};
        run_tasks(pool_, problem_.dtype, shares, {}, add_rows);
      }
    }
    if (progress) progress(i + 1 - n.begin, n.size());
  }
}

double* SampledSum::finish(std::size_t) {
  expected_ = expected_of(problem_, summation_, sums_);
  multiply(problem_.dtype, summation_.factor, expected_);
  return expected_.values.data();
}

}  // namespace convgrad
