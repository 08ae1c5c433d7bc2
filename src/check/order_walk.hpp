// order_walk.hpp - finds how large every entry's sums can grow on their way in orders other than
// n, z, p, q: in turns, tiles, bands, or along curves. No order is named: a few entries' terms,
// laid out over the pixels, show the waves by which these change their sign.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "check/entry_sum.hpp"
#include "convgrad/reference.hpp"
#include "engine/block_sum.hpp"

namespace convgrad {

// Circles from one n, z, p, q to the next. Where terms have one sign in each half of a wave, orders
// that take the halves apart sum far: turns of any number, along any direction, tiles and bands.
// The constant one is of terms of one sign.
using Wave = std::array<double, 4>;

// Returns the mean square of a sum on its way in an order by a wave, from the square of its
// coefficient F. A sum that grows evenly to F has F^2/3. Terms of one size sum to pi/4*F in a half
// of a wave, which is F^2/4.9; where no wave that was looked for has their turns, F is less.
inline double walk_by_wave(double square, bool constant) { return square / (constant ? 3 : 4); }

// Lays the terms of entries out over n, z, p, q and finds the waves with the largest coefficients.
// Where there are more pixels than fit, images (then rows, ...) far from each other are added, and
// in a second layout neighbouring ones, so that turns and bands both stay.
class TermLayout final : public BlockSum {
 public:
  static constexpr std::size_t kMostWaves = 8;

  // Takes some of the entries at indices, in [tap][c][k] order: fewer of large problems, for which
  // a few have to do. Of so much memory it takes a part.
  TermLayout(const WgradProblem& problem, TaskPool& pool, const std::vector<std::int64_t>& indices,
             std::int64_t memory);
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t node = 0) override;

  // Returns, after finish(), the waves that explain the largest sums of all entries together.
  const std::vector<Wave>& waves() const { return waves_; }
  // Tells whether most terms of most entries equal the one before, in a row or a column.
  bool are_alike() const { return alike_; }

  std::int64_t memory_bytes() const;

 private:
  using Extents = std::array<std::int64_t, 4>;
  // Has places[a] for pixels[a] along an axis; folded: a pixel's place is its number modulo that.
  struct Layout {
    Extents pixels{}, places{}, padded{};  // padded: to powers of two
    bool folded = false;
    std::size_t place(const Extents& pixel) const {
      std::int64_t at = 0;
      for (std::size_t a = 0; a < 4; ++a) {
        at = at * padded[a] + (folded ? pixel[a] % places[a] : pixel[a] * places[a] / pixels[a]);
      }
      return static_cast<std::size_t>(at);
    }
  };
  static std::vector<Layout> layouts_of(const WgradProblem& problem, std::int64_t memory);
  struct Entry {
    EntryTerms from;
    std::vector<std::vector<float>> terms;  // of each padded layout; at last |F|^2 of each wave
    double squares = 0;                     // sum t^2
    std::int64_t nonzero = 0, repeats = 0, above = 0;  // as the one before them, or above
  };
  using Candidate = std::pair<std::size_t, std::size_t>;  // a layout, and a wave of it
  Wave wave_at(const Layout& layout, std::size_t at) const;
  void choose(const std::set<Candidate>& candidates);

  const WgradProblem problem_;
  TaskPool& pool_;
  const std::vector<Layout> layouts_;
  std::vector<Entry> entries_;
  std::vector<Wave> waves_;
  bool alike_ = false;
};

// Holds the mean square of an entry's sums on their way in the widest order by the waves, as
// TermStatistics::walk, and how many of its terms are not 0.
struct OrderWalk {
  double walk = 0, terms = 0;
};

// Sums the terms of entries over waves.
class WaveSum final : public BlockSum {
 public:
  // Takes the entries at indices, in [tap][c][k] order, or all where there are none.
  WaveSum(const WgradProblem& problem, TaskPool& pool, std::span<const std::int64_t> indices,
          const std::vector<Wave>& waves, const Summation& summation);
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t node = 0) override;

  // Returns one for each entry after finish().
  const std::vector<OrderWalk>& walks() const { return walks_; }

  std::int64_t memory_bytes() const;

 private:
  // A unit is some channels of x and dy under one tap: each c with K entries from `first` on.
  struct Unit {
    std::array<std::int64_t, 3> tap;
    Range x, dy;
    std::int64_t first;
  };
  template <typename Scalar>
  void add_unit(const Block& block, const Unit& unit);

  const WgradProblem problem_;
  TaskPool& pool_;
  const std::vector<Wave> waves_;
  const Summation summation_;
  std::array<std::vector<std::complex<double>>, 4> weights_;  // of each axis: [place][wave]
  std::vector<Unit> units_;
  std::vector<double> sums_, terms_;  // [entry][wave][real, imaginary], [entry]
  std::vector<OrderWalk> walks_;
};

}  // namespace convgrad
