// order_sum.hpp - finds how large sums grow on their way in other orders than n, z, p, q.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "convgrad/reference.hpp"
#include "engine/block_sum.hpp"

namespace convgrad {

// Holds the number of one entry's widest order, and the mean square of the sums on their way, as
// TermStatistics::walk. Terms are alike where most equal the one before.
struct OrderWalk {
  std::size_t order = 0;
  double walk = 0, terms = 0;  // terms that are not 0
  bool alike = false;
};

// Orders take parts of the pixels apart (images, rows, columns, pixels or runs of pixels in turns,
// also along two axes or more at once, parts of an image), or walk in another order (images
// innermost; rows, columns or planes outermost). Only the parts' own sums are kept: a part that
// ends with the sum w has the mean square w^2/3 on its way, as a sum that grows evenly has.
class OrderSum final : public BlockSum {
 public:
  // Takes the entries at indices, ascending, in [tap][c][k] order.
  OrderSum(const WgradProblem& problem, TaskPool& pool, const std::vector<std::int64_t>& indices,
           const Summation& summation);
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t node = 0) override;

  // Returns one for each index after finish().
  const std::vector<OrderWalk>& walks() const { return walks_; }

  static std::int64_t memory_bytes(std::size_t entries);
  // So many entries are summed at once, which take about 170 MB where they lie side by side.
  static constexpr std::int64_t kEntriesAtOnce = std::int64_t{1} << 15;

 private:
  // A unit is eight output channels side by side, under one tap, with one input channel of a group.
  static constexpr std::size_t kLanes = 8, kParts = 32;
  typedef double Lanes __attribute__((vector_size(64)));
  // Sums by a number modulo 32, 24, 20 and 28 have those of 2, 3, 4, 5, 6, 7, 8 ... turns.
  struct Turns {
    std::array<Lanes, 32> of_2;
    std::array<Lanes, 24> of_3;
    std::array<Lanes, 20> of_5;
    std::array<Lanes, 28> of_7;
    void add(std::int64_t number, const Lanes& value) {
      const auto at = static_cast<std::size_t>(number);
      of_2[at % 32] += value;
      of_3[at % 24] += value;
      of_5[at % 20] += value;
      of_7[at % 28] += value;
    }
  };
  // Pixels are summed by the place in the image (in even and odd images), row, column, plane; by
  // the number of the image, line, pixel and column in turns; by the run of eight pixels modulo 32;
  // by even and odd n, z, p, q; and by row and column modulo 4.
  struct Parts {
    std::array<std::array<Lanes, kParts>, 2> place;
    std::array<Lanes, kParts> row, column, plane, run;
    Turns image, line, pixel, lane;
    std::array<Lanes, 16> parity, square;
    Lanes terms, last, repeats;  // the last product, and how many were as the one before
  };
  struct Unit {
    std::int64_t tap, c, k;
    bool operator==(const Unit&) const = default;
  };
  template <typename Scalar>
  void add_unit(const Block& block, const Unit& unit, Parts& parts) const;
  OrderWalk widest(const Parts& parts, std::size_t lane) const;

  const WgradProblem problem_;
  TaskPool& pool_;
  const Summation summation_;
  std::vector<Unit> units_;
  std::vector<Parts> parts_;
  std::vector<std::pair<std::size_t, std::size_t>> entries_;  // unit and lane
  std::vector<OrderWalk> walks_;
};

// Returns "that takes even and odd images apart", after "a sum".
std::string order_text(std::size_t order);

}  // namespace convgrad
