// places.hpp - where in the gradient some entries lie: tiles, remainders, every n-th channel.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "convgrad/problem.hpp"

namespace convgrad::diagnosis {

// An axis of the gradient as it is written: t, r and s are taps, c, k (and m) channels.
struct EntryAxis {
  char letter;
  std::int64_t extent;
  const char* name;
};
std::vector<EntryAxis> entry_axes(const WgradProblem& problem);
// The position along these axes of the entry at index, in [tap][c][k] order.
using EntryPlace = std::array<std::int64_t, 5>;  // what is not an axis is 0
EntryPlace entry_place(const std::vector<EntryAxis>& axes, std::int64_t index);

// either: it cannot be told.
enum class Mark : std::uint8_t { out, in, either };
struct Marked {
  std::int64_t index;
  Mark mark;
};
struct Place {
  bool everything = false;
  bool pattern = true;  // a few words say exactly which entries are in
  std::string text;     // "output channels k 48-63 (a whole tile of 16) of tap (1,2)"
};
Place place_of(const WgradProblem& problem, const std::vector<Marked>& entries);

// "k 48-63 (a whole tile of 16)", "k % 8 == 7 (every 8th)" of values below extent, in order.
std::string values_text(char letter, std::int64_t extent, const std::vector<std::int64_t>& values,
                        std::int64_t group = 0);

}  // namespace convgrad::diagnosis
