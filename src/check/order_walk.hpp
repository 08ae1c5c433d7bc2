// order_walk.hpp - finds how large every entry's sums can grow on their way in orders other than
// n, z, p, q: in turns, tiles, bands, or along curves. No order is named: a few entries' terms,
// laid out over the pixels, show the parts of these whose terms have large sums.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "convgrad/reference.hpp"
#include "engine/block_sum.hpp"

namespace convgrad {

// Weighs the pixels: by a wave, which is largest where terms change their sign in turns (of any
// number, along any direction), or by a box, which any sum over tiles, bands or curves that fill
// these goes through.
struct PixelPart {
  bool is_wave = false;
  std::array<double, 4> frequency{};  // of a wave: circles from one n, z, p, q to the next
  std::array<Range, 4> box{};         // n, z, p, q
  bool operator==(const PixelPart&) const = default;
  // Returns the mean square of a sum on its way in an order by this part, which sums to that. A
  // wave with the coefficient F is two parts that sum to F/2 and -F/2, each of which grows evenly;
  // where its maxima lie between pixels these are up to the root of 2 larger. A box's grows evenly
  // to what it is.
  double walk(const std::complex<double>& sum) const { return std::norm(sum) / (is_wave ? 6 : 3); }
};

// Lays the terms of entries out over n, z, p, q and finds the parts with the largest sums. Where
// there are more pixels than fit, images (then rows, ...) far from each other are added, and in a
// second layout neighbouring ones, so that turns and bands both stay.
class TermLayout final : public BlockSum {
 public:
  static constexpr std::size_t kMostParts = 8;

  // Takes the entries at indices, in [tap][c][k] order; entries_for() of them at most. Of so much
  // memory it takes a part.
  TermLayout(const WgradProblem& problem, TaskPool& pool, std::vector<std::int64_t> indices,
             std::int64_t memory);
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t node = 0) override;

  // Returns, after finish(), the parts that explain the largest sums of all entries together.
  const std::vector<PixelPart>& parts() const { return parts_; }
  // Tells whether most terms of most entries equal the one before, in a row or a column.
  bool are_alike() const { return alike_; }

  // Returns how many entries are looked at: fewer of large problems, for which a few have to do.
  static std::size_t entries_for(const WgradProblem& problem, std::int64_t memory);
  static std::int64_t memory_bytes(const WgradProblem& problem, std::int64_t memory);

 private:
  using Extents = std::array<std::int64_t, 4>;
  // A layout has place[a] of extents[a] pixels along an axis; folded: a pixel's place is its number
  // modulo that.
  struct Layout {
    Extents pixels{}, places{}, padded{};  // padded: to powers of two
    bool folded = false;
    std::int64_t place(std::size_t axis, std::int64_t pixel) const {
      return folded ? pixel % places[axis] : pixel * places[axis] / pixels[axis];
    }
  };
  static std::vector<Layout> layouts_of(const WgradProblem& problem, std::int64_t memory);
  struct Entry {
    std::vector<std::vector<float>> terms;             // of each layout
    std::vector<std::vector<float>> powers;            // |F|^2 of each wave of the padded layout
    double squares = 0;                                // sum t^2
    std::int64_t nonzero = 0, repeats = 0, above = 0;  // as the one before them, or above
  };
  struct Candidate {
    PixelPart part;
    std::size_t layout = 0;
    std::size_t at = 0;             // of a wave: in powers
    std::array<Range, 4> places{};  // of a box: part.box, in those of the layout
  };
  template <typename Scalar>
  void add_entry(const Block& block, std::size_t index);
  std::vector<Candidate> widest(Entry& entry) const;
  PixelPart wave_at(const Layout& layout, std::size_t at) const;
  void choose(const std::vector<Candidate>& candidates);

  const WgradProblem problem_;
  TaskPool& pool_;
  const std::vector<std::int64_t> indices_;
  const std::vector<Layout> layouts_;
  std::vector<Entry> entries_;
  std::vector<PixelPart> parts_;
  bool alike_ = false;
};

// Holds the mean square of an entry's sums on their way in the widest order by the parts, as
// TermStatistics::walk, and how many of its terms are not 0.
struct OrderWalk {
  double walk = 0, terms = 0;
};

// Sums the terms of entries over parts of the pixels.
class PartSum final : public BlockSum {
 public:
  // Takes the entries at indices, in [tap][c][k] order, or all where there are none.
  PartSum(const WgradProblem& problem, TaskPool& pool, std::span<const std::int64_t> indices,
          const std::vector<PixelPart>& parts, const Summation& summation);
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
  const std::vector<PixelPart> parts_;
  const Summation summation_;
  std::array<std::vector<std::complex<double>>, 4> weights_;  // of each axis: [place][part]
  std::vector<Unit> units_;
  std::vector<double> sums_, terms_;  // [entry][part][real, imaginary], [entry]
  std::vector<OrderWalk> walks_;
};

}  // namespace convgrad
