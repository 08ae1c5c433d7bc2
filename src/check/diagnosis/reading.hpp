// reading.hpp - x and dy as a faulty kernel reads them, and sums over them.
#pragma once

#include <vector>

#include "check/entry_sum.hpp"
#include "convgrad/run.hpp"

namespace convgrad::diagnosis {

// What the memory of a tensor is taken for; turned: it is first turned to the other place of the
// channels, and then taken for what it was.
enum class Memory : std::uint8_t { as_it_is, other_channel_place, h_and_w_swapped, turned };
// What becomes of a value before it is multiplied. tf32 has 10 bits behind the point, rounded
// (ties away from zero) or cut off.
enum class Rounding : std::uint8_t { none, f32, tf32, tf32_cut, f16, bf16 };

struct Reading {
  std::array<SpatialAxis, 3> axis;
  Memory x = Memory::as_it_is, dy = Memory::as_it_is;
  Rounding rounding = Rounding::none;
  std::array<Range, 3> out;   // output positions that are summed
  Range skipped;              // images that are not
  std::int64_t doubled = -1;  // an image that is, twice
  bool operator==(const Reading&) const = default;
};
Reading plain_reading(const WgradProblem& problem);

double round_value(Rounding rounding, double value);

// The view of a block of whole images; for turned tensors, of copies of them.
struct TurnedCopies {
  const void* x = nullptr;
  const void* dy = nullptr;
};
TensorView view_of(const WgradProblem& problem, const Reading& reading, const Block& block,
                   const TurnedCopies& copies = {});

// True if the memory is read as it is, whatever it is taken for: extents of 1 have no place.
bool same_memory(const WgradProblem& problem, Memory memory, bool of_x);

struct Wanted {
  const Reading* reading;
  EntryTerms terms;
};
// The exact sums of entries by their readings, in one pass over x and dy.
Expected sums_of(const WgradProblem& problem, std::span<const Wanted> wanted, const Plan& images,
                 BlockSource& source, TaskPool& pool);

}  // namespace convgrad::diagnosis
