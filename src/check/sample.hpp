// sample.hpp - computes some entries of the gradient exactly, to check problems whose whole
// reference would take too long. Each entry costs N*Z*P*Q multiply-adds.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "check/entry_sum.hpp"
#include "convgrad/reference.hpp"
#include "engine/block_sum.hpp"

namespace convgrad {

// Draws uniformly from [0, count), count > 0, alike with all standard libraries: theirs differ.
inline std::int64_t draw(std::mt19937_64& random, std::int64_t count) {
  const auto n = static_cast<std::uint64_t>(count);
  const std::uint64_t most = std::mt19937_64::max() - std::mt19937_64::max() % n;
  std::uint64_t value = random();
  while (value >= most) value = random();
  return static_cast<std::int64_t>(value % n);
}
struct Sample {
  std::vector<std::int64_t> indices;  // ascending, in [tap][c][k] order
  std::int64_t corners = 0;           // how many of them are corners
};
// Draws `wanted` entries by the seed (all where there are no more), with the corners of
// [t][r][s][c][k] always among them: 16 at most in 2-D, 32 in 3-D, also when fewer are wanted. The
// others are spread: `wanted` of at least the number of taps, of c or of k hit each of them, and of
// that times taps each c or k of each tap.
Sample choose_entries(const WgradProblem& problem, std::int64_t wanted, std::uint64_t seed);

// Chooses the corners and `wanted` others or some more, which need few lines of memory for a pixel:
// some channels in two places (more where more are wanted) that the problem's numbers draw, each of
// them with all taps, if so many are wanted.
std::vector<std::int64_t> choose_neighbours(const WgradProblem& problem, std::int64_t wanted);

// Returns so many positions below `size`, evenly spread, or all.
inline std::vector<std::size_t> spread_positions(std::size_t size, std::size_t most) {
  std::vector<std::size_t> positions;
  const std::size_t count = std::min(size, most);
  for (std::size_t i = 0; i < count; ++i) positions.push_back(i * size / count);
  return positions;
}

// Returns what stands at some positions.
template <typename Position>
std::vector<double> picked(std::span<const double> numbers, const std::vector<Position>& at) {
  std::vector<double> result;
  result.reserve(at.size());
  for (const Position i : at) result.push_back(numbers[static_cast<std::size_t>(i)]);
  return result;
}
template <typename Position>
Expected picked(const Expected& all, const std::vector<Position>& at) {
  Expected some;
  some.squares = all.squares;
  some.bias = all.bias;
  for (std::vector<double> Expected::*each :
       {&Expected::values, &Expected::tails, &Expected::magnitudes, &Expected::scales,
        &Expected::limits, &Expected::added}) {
    if (!(all.*each).empty()) some.*each = picked(all.*each, at);
  }
  return some;
}

// Returns the smallest share of wrong entries that the chosen miss at 1 %: 1 - 0.01^(1/chosen).
double detectable_share(std::int64_t chosen, std::int64_t count);

// Computes the reference for those entries alone, to the bit: the same terms in the same order.
class SampledSum final : public BlockSum {
 public:
  SampledSum(const WgradProblem& problem, TaskPool& pool, const std::vector<std::int64_t>& indices,
             const Summation& summation);
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t node = 0) override;

  // Both have one number for each index after finish(); the first one leaves nothing behind.
  Expected take_expected() { return std::move(expected_); }
  const Expected& expected() const { return expected_; }

  static std::int64_t memory_bytes(std::int64_t entries);

 private:
  const WgradProblem problem_;
  TaskPool& pool_;
  const Summation summation_;
  const SumRules rules_;
  std::vector<EntryTerms> entries_;
  std::vector<EntrySum> sums_;
  Expected expected_;
};

}  // namespace convgrad
