// reading.hpp - x and dy as a faulty kernel reads them, and sums over them.
#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "check/entry_sum.hpp"
#include "engine/run.hpp"

namespace convgrad::diagnosis {

// The memory of a tensor is taken for this. turned: it is first turned to the other place of the
// channels, and then taken for what it was.
enum class Memory : std::uint8_t { as_it_is, other_channel_place, h_and_w_swapped, turned };
// Pixels of the first (-1) or last (1) line, or all (0), are read from a neighbour along an axis.
struct Neighbour {
  std::int8_t axis = -1, line = 0, step = 0;
  auto operator<=>(const Neighbour&) const = default;  // NOLINT(modernize-use-nullptr)
};
// A read past the ends of an image meets the images beside it (before the first one nothing, or the
// last one), or what its memory has there.
enum class Beside : std::uint8_t { none, images, images_wrapped, memory };
// A value becomes another one: treatments() says more.
enum class Treatment : std::uint8_t {
  none,
  f32,
  tf32,
  tf32_even,
  tf32_cut,
  f16,
  f16_away,
  f16_cut,
  bf16,
  bf16_away,
  bf16_cut,
  bf16_twice,
  e4m3,
  e5m2,
  int8,
  int8_wide,
  flushed,
  relu
};
enum class Ties : std::uint8_t { even, away, cut };
struct TreatmentKind {
  Treatment treatment;
  const char* text;  // after "x and dy are "
  const char* cause;
  bool rare = false;
  int bits = 0;      // of a number that it keeps; 0: it does not round
  int exponent = 0;  // of the smallest normal number
  Ties ties = Ties::even;
  double most = 0;  // the largest number; 0: no matter
  const char* fault = "input_precision";
};
std::span<const TreatmentKind> treatments();  // the usual ones first
// Tells whether some number of the type is not what it was.
bool changes(const TreatmentKind& kind, DType dtype);
// parameter is e4m3's, e5m2's and int8's scale (0: none).
double treated(Treatment treatment, DType dtype, double value, double parameter = 0);

// x and dy add their product, nothing where it is subnormal, the product rounded, or that of x = hi
// + lo and dy = hi + lo, two bfloat16 numbers each, without lo * lo.
enum class Product : std::uint8_t { exact, flushed, f16, bf16, without_low };
// A tap outside x adds nothing, `padding` * dy (which spreads NaN and Inf), or another pixel's x.
// past_first and past add what TensorReading has past the ends of the outermost axis, or of all.
enum class Outside : std::uint8_t { skipped, constant, edge, reflected, wrapped, past_first, past };

struct TensorReading {
  Memory memory = Memory::as_it_is;
  std::vector<std::int64_t> starts;  // the elements with which images begin; empty: their own
  Neighbour neighbour;
  Beside beside = Beside::none;
  Treatment treatment = Treatment::none;
  double parameter = 0;                                    // of the treatment
  auto operator<=>(const TensorReading&) const = default;  // NOLINT(modernize-use-nullptr)
};
struct Reading {
  std::array<SpatialAxis, 3> axis;
  TensorReading x, dy;
  Product product = Product::exact;
  Outside outside = Outside::skipped;
  double padding = 0;
  std::array<Range, 3> in, out;  // positions of x that are there, and of dy that are summed
  double weight = 1;             // of all terms
  // The reading may hold only for these pixels of dy, or of x, counted over n, z, p, q.
  Range only;
  bool only_of_x = false;
  bool operator==(const Reading&) const = default;
  TensorReading& tensor(bool of_x) { return of_x ? x : dy; }
};
Reading plain_reading(const WgradProblem& problem);

// Describes an image of x or of dy.
using Extents = std::array<std::int64_t, 3>;  // d, h and w, or z, p and q
inline Extents extents_of(const WgradProblem& pb, bool of_x) {
  const auto& [d, h, w] = pb.axis;
  return of_x ? Extents{d.in, h.in, w.in} : Extents{d.out, h.out, w.out};
}
inline std::int64_t pixels_of(const Extents& image) { return image[0] * image[1] * image[2]; }
inline std::int64_t channels_of(const WgradProblem& pb, bool of_x) { return of_x ? pb.C : pb.K; }
inline constexpr std::int64_t kNowhere = std::numeric_limits<std::int64_t>::min();
// Returns TensorReading::starts where image from(n), or none (kNowhere), is read for image n.
std::vector<std::int64_t> image_starts(const WgradProblem& problem, bool of_x,
                                       const std::function<std::int64_t(std::int64_t)>& from);
inline const char* tensor_name(bool of_x) { return of_x ? "input" : "out_backprop"; }

// Is true if the memory is read as it is, whatever it is taken for: extents of 1 have no place.
bool same_memory(const WgradProblem& problem, Memory memory, bool of_x);

// Holds the largest finite numbers of the tensors, in size.
struct Facts {
  double x = 0, dy = 0;
};
Facts facts_of(const WgradProblem& problem, const Plan& images, BlockSource& source);

struct Wanted {
  const Reading* reading;
  EntryTerms terms;
};
// Sums entries by their readings, in one pass over x and dy.
std::vector<EntrySum> sums_of(const WgradProblem& problem, std::span<const Wanted> wanted,
                              const Plan& images, BlockSource& source, TaskPool& pool);

// Holds x and dy of an entry's terms by a reading, one for each pixel of dy, or of x; zeros where
// the tap is outside x.
struct Terms {
  std::vector<double> x, dy;
};
std::vector<Terms> terms_of(const WgradProblem& problem, std::span<const EntryTerms> entries,
                            const Reading& reading, const Plan& images, BlockSource& source,
                            TaskPool& pool);
double product(Product how, DType dtype, double x, double dy);
// Returns the sums of the first terms: none, one, two and so on.
std::vector<double> running_sums(const Terms& terms);

}  // namespace convgrad::diagnosis
