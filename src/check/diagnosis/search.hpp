// search.hpp - the finders: faults that are read off the gradient and the terms of some entries.
#pragma once

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
// Finds pixels that are left out or counted twice, still to be confirmed.
std::vector<Fault> find_lost_pixels(const Evidence& evidence, const Sample& sample);
// Finds roundings and stale stages of some pixels alone.
std::vector<Fault> find_alternatives(const Evidence& evidence, const Sample& sample);
// Finds Winograd's algorithm with tiles in 16 bits, from the terms of few entries.
std::optional<Finding> find_winograd(const Judge& judge, const Sample& sample,
                                     const Images& images);
// Adds an entry's error, in steps of the result or of the type, if those are larger; but of entries
// that hold the same numbers one.
bool add_steps(const Evidence& evidence, std::size_t at, DType type, Squares& steps);
// Returns the bits that errors of so many steps tell: log2(width * rms) of each. The width is
// sqrt(12) where one rounding explains 0.29 steps, sqrt(2 * pi * e) where chance has to make each
// error a given number of them.
double bits_told(const Squares& steps, double width);
inline constexpr double kBeyondRounding = 3.46, kByChance = 4.13;
// Finds float32 sums of more than 2^24 equal terms, to which one more adds nothing.
std::optional<Finding> find_stopped(const Evidence& evidence);
// Finds 16-bit sums as Eigen's.
std::optional<Finding> find_eigen(const Evidence& evidence, const Sample& sample);
// Finds sums that were rounded to a narrower type on the way; bits_only: only those that are the
// same bit by bit.
std::optional<Finding> find_partials(const Judge& judge, const Sample& sample, bool bits_only);

}  // namespace convgrad::diagnosis
