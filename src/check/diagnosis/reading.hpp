// reading.hpp - x and dy as a faulty kernel reads them, and sums over them.
#pragma once

#include <vector>

#include "check/entry_sum.hpp"
#include "engine/run.hpp"

namespace convgrad::diagnosis {

// What the memory of a tensor is taken for; turned: it is first turned to the other place of the
// channels, and then taken for what it was.
enum class Memory : std::uint8_t { as_it_is, other_channel_place, h_and_w_swapped, turned };
// What becomes of a value. tf32 has 10 bits behind the point, rounded (ties away from zero);
// flushed: subnormal numbers become 0.
enum class Treatment : std::uint8_t {
  none,
  f32,
  tf32,
  tf32_cut,
  f16,
  bf16,
  bf16_cut,
  flushed,
  relu
};
// What a tap outside x adds: nothing, 0 * dy (which spreads NaN and Inf), or another pixel's x.
enum class Outside : std::uint8_t { skipped, multiplied, edge, reflected, wrapped };

struct TensorReading {
  Memory memory = Memory::as_it_is;
  Treatment treatment = Treatment::none;
  auto operator<=>(const TensorReading&) const = default;  // NOLINT(modernize-use-nullptr)
};
struct Reading {
  std::array<SpatialAxis, 3> axis;
  TensorReading x, dy;
  bool products_flushed = false;
  Outside outside = Outside::skipped;
  std::array<Range, 3> in, out;  // positions of x that are there, and of dy that are summed
  Range skipped, doubled;        // pixels, counted over n, z, p, q, that are not, or are twice
  bool operator==(const Reading&) const = default;
};
Reading plain_reading(const WgradProblem& problem);

double treated(Treatment treatment, DType dtype, double value);

// True if the memory is read as it is, whatever it is taken for: extents of 1 have no place.
bool same_memory(const WgradProblem& problem, Memory memory, bool of_x);

struct Wanted {
  const Reading* reading;
  EntryTerms terms;
};
// The sums of entries by their readings, in one pass over x and dy.
std::vector<EntrySum> sums_of(const WgradProblem& problem, std::span<const Wanted> wanted,
                              const Plan& images, BlockSource& source, TaskPool& pool);

// x and dy of an entry's terms, one for each pixel; zeros where the tap is outside x.
struct Terms {
  std::vector<double> x, dy;
};
std::vector<Terms> terms_of(const WgradProblem& problem, std::span<const EntryTerms> entries,
                            const Plan& images, BlockSource& source, TaskPool& pool);

}  // namespace convgrad::diagnosis
