// order_walk.hpp - finds how large every entry's sums can grow on their way in another order than
// n, z, p, q, by parts of the pixels that a few entries have shown (term_layout.hpp).
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <vector>

#include "check/term_layout.hpp"

namespace convgrad {

// Holds the mean square of an entry's sums on their way in the widest order by the parts, as
// TermStatistics::walk. Terms are alike where most equal the one before.
struct OrderWalk {
  double walk = 0, terms = 0;  // terms that are not 0
  bool alike = false;
};

// Sums the terms of entries over parts of the pixels.
class PartSum final : public BlockSum {
 public:
  // Takes the entries at indices, ascending, in [tap][c][k] order, and kMostParts parts at most.
  PartSum(const WgradProblem& problem, TaskPool& pool, const std::vector<std::int64_t>& indices,
          std::vector<PixelPart> parts, const Summation& summation);
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t node = 0) override;

  // Returns one for each index after finish().
  const std::vector<OrderWalk>& walks() const { return walks_; }

  static std::int64_t memory_bytes(std::size_t entries);
  // So many entries are summed at once, which take 20 MB where they lie side by side.
  static constexpr std::int64_t kEntriesAtOnce = std::int64_t{1} << 17;

 private:
  // A unit is eight output channels side by side, under one tap, with one input channel of a group.
  static constexpr std::size_t kLanes = 8;
  typedef double Lanes __attribute__((vector_size(64)));
  struct Sums {
    std::array<Lanes, TermLayout::kMostParts> real, imaginary;
    Lanes terms, last, repeats;  // the last product, and how many were as the one before
  };
  struct Unit {
    std::int64_t tap, c, k;
    bool operator==(const Unit&) const = default;
  };
  template <typename Scalar>
  void add_unit(const Block& block, const Unit& unit, Sums& sums) const;
  OrderWalk widest(const Sums& sums, std::size_t lane) const;

  const WgradProblem problem_;
  TaskPool& pool_;
  const std::vector<PixelPart> parts_;
  const Summation summation_;
  std::array<std::vector<std::complex<double>>, 4> weights_;  // of each axis: [place][part]
  std::vector<Unit> units_;
  std::vector<Sums> sums_;
  std::vector<std::pair<std::size_t, std::size_t>> entries_;  // unit and lane
  std::vector<OrderWalk> walks_;
};

}  // namespace convgrad
