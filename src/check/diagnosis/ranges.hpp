// ranges.hpp - finds what some pixels do that others do not: every entry's error is a number times
// what these pixels add to it, which is the difference of two sums of a walk over all pixels.
#pragma once

#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {

// What a fault adds to each clue's entry at each pixel, in the order n, z, p, q.
using Added = std::vector<std::vector<double>>;

struct Candidate {
  Pixels pixels;
  double misfit = 0;
  int form = 0;  // how usual such pixels are: 0 is the most usual
};

class Ranges {
 public:
  Ranges(const WgradProblem& problem, std::vector<Clue> clues, double tolerance)
      : pb_(problem), clues_(std::move(clues)), tolerance_(tolerance) {}

  const std::vector<Clue>& clues() const { return clues_; }
  // Returns the pixels of the most usual form, by one of the walks, whose terms times the number
  // are the errors. At most as unusual a form is looked for.
  std::vector<Candidate> find(const Added& added, const std::vector<Pixels>& walks, double number,
                              int least_usual) const;

  // Tells whether the terms of all pixels, times the number, are the errors.
  bool fits_everywhere(const Added& added, double number) const;

 private:
  using Sums = std::vector<std::vector<double>>;  // of each clue, of the first steps
  Sums sums(const Added& added, const Pixels& walk, const std::vector<std::int64_t>& ends) const;
  // Of single pixels only if fine.
  std::vector<std::int64_t> ends(const Pixels& walk, bool fine) const;
  void find_by(const Added& added, const Pixels& walk, bool fine, double number, int least_usual,
               std::vector<Candidate>& found) const;
  double tolerance(std::size_t e) const { return clues_[e].step + tolerance_ * clues_[e].scale; }
  std::optional<double> misfit(const Sums& sums, std::size_t begin, std::size_t end,
                               double number) const;
  template <typename Keep>
  void each_pair(const Sums& sums, double number, bool single, Keep&& keep) const;

  const WgradProblem& pb_;
  const std::vector<Clue> clues_;
  const double tolerance_;  // in scales
};

// Returns the walk in the order n, z, p, q, lines, places, tiles and lanes.
std::vector<Pixels> all_walks(const WgradProblem& problem);
// Returns how usual it is that a piece of this form is lost.
int form_of(const WgradProblem& problem, const Pixels& pixels);
inline constexpr int kImages = 0, kEnds = 8, kAnyForm = 9;
// Says "image 3" or "the pixel p 2, q 5 of image 0"; with a verb "... is left out".
std::string pixels_text(const WgradProblem& problem, const Pixels& pixels, const std::string& verb);

}  // namespace convgrad::diagnosis
