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
// Finds pixels that are left out or counted twice, still to be confirmed.
std::vector<Fault> find_lost_pixels(const Evidence& evidence, const Sample& sample);
// Finds roundings and stale stages of some pixels alone.
std::vector<Fault> find_alternatives(const Evidence& evidence, const Sample& sample);
using TermsOf = std::function<std::vector<Terms>(std::span<const EntryTerms>)>;
// Finds Winograd's algorithm with tiles in 16 bits.
std::optional<Finding> find_winograd(const Judge& judge, const Sample& sample,
                                     const TermsOf& terms_of);
// Finds sums that were rounded to a narrower type on the way; bits_only: only those that are the
// same bit by bit.
std::optional<Finding> find_partials(const Judge& judge, const Sample& sample, bool bits_only);

}  // namespace convgrad::diagnosis
