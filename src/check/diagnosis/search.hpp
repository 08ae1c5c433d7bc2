// search.hpp - the finders: faults that are read off the gradient and the terms of some entries.
#pragma once

#include <functional>
#include <optional>

#include "check/diagnosis/judge.hpp"

namespace convgrad::diagnosis {

// Finds parts of the gradient that stand in another's place: taps, channels, groups, tiles.
std::vector<Fault> find_slices(const Evidence& evidence);

// A sample is some entries of the suspect, term by term.
struct Sample {
  Positions at;
  std::vector<Terms> terms;
};
// Clues are entries of the sample that are wrong for certain, those that rule out the most first:
// large errors with small tolerances.
struct Clue {
  std::size_t entry;
  double error, step, scale;  // step: half of the result's
};
std::vector<Clue> clues(const Evidence& evidence, const Sample& sample);
// What a fault adds to each clue's entry at each pixel, in the order n, z, p, q.
using Added = std::vector<std::vector<double>>;

struct Candidate {
  Pixels pixels;
  double misfit = 0;
  int form = 0;  // how usual such pixels are: 0 is the most usual
};

// Finds what some pixels do that others do not: every entry's error is a number times what these
// pixels add to it, which is the difference of two sums of a walk over all pixels. Returns the
// pixels of the most usual form, by one of the walks; at most as unusual a form is looked for.
std::vector<Candidate> find_ranges(const WgradProblem& problem, const std::vector<Clue>& clues,
                                   const Added& added, const std::vector<Pixels>& walks,
                                   double number, int least_usual);
// Tells whether the terms of all pixels are the errors.
bool fits_everywhere(const std::vector<Clue>& clues, const Added& added);
// Returns the walk in the order n, z, p, q, lines, places, tiles and lanes.
std::vector<Pixels> all_walks(const WgradProblem& problem);
// Returns how usual it is that a piece of this form is lost.
int form_of(const WgradProblem& problem, const Pixels& pixels);
inline constexpr int kImages = 0, kEnds = 8, kAnyForm = 9;
// Says "image 3" or "the pixel p 2, q 5 of image 0"; with a verb "... is left out".
std::string pixels_text(const WgradProblem& problem, const Pixels& pixels, const std::string& verb);

// Names elements of x and dy that should make entries NaN or infinite, and says what these are.
std::string nonfinite_text(const Evidence& evidence, const Sample& sample);
// Finds pixels that are left out or counted twice, still to be confirmed.
std::vector<Fault> find_lost_pixels(const Evidence& evidence, const Sample& sample);
// Returns the terms of some entries by another reading.
using TermsBy = std::function<std::vector<Terms>(std::span<const EntryTerms>, const Reading&)>;
// Finds roundings and stale stages of some pixels alone, and constants in the padding.
std::vector<Fault> find_alternatives(const Evidence& evidence, const Sample& sample,
                                     const TermsBy& terms_by);
// Finds Winograd's algorithm with tiles in 16 bits.
std::optional<Finding> find_winograd(const Judge& judge, const Sample& sample,
                                     const TermsBy& terms_by);
// A sum that is rounded to a type after each addition.
struct NarrowSum {
  DType type;
  bool inputs = false, fused = false;  // x and dy are rounded to it too; the product is not
};
// Returns such a sum of the terms from begin to end.
double simulated(const Terms& terms, const NarrowSum& how, std::size_t begin = 0,
                 std::size_t end = SIZE_MAX);
// Finds sums that were rounded to a narrower type on the way; bits_only: only those that are the
// same bit by bit.
std::optional<Finding> find_partials(const Judge& judge, const Sample& sample, bool bits_only);
// Returns the types that sums may have been rounded to by mistake.
std::vector<DType> narrow_types(const WgradProblem& problem);
std::optional<Finding> find_size(const Evidence& evidence, const Sample& sample);

}  // namespace convgrad::diagnosis
