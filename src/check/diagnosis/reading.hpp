// reading.hpp - x and dy as a faulty kernel reads them, and sums over them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "check/diagnosis.hpp"
#include "check/entry_sum.hpp"

namespace convgrad::diagnosis {

// An order names the axes of a tensor in memory, outermost first, by letters: N, D, H, W and C; D,
// H, W, I and O of a filter. Depthwise ones have C and M, k = c*M + m, in place of I and O. An axis
// may be cut in two, of which the inner one holds a block.
struct AxisOrder {
  struct Axis {
    char letter;
    std::int64_t extent, step;                      // step: in the tensor's own order
    auto operator<=>(const Axis&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  std::string name;        // "HWIO"
  std::vector<Axis> axes;  // as they are named
  std::string exchanged;   // "C and K" if those two alone change places, else ""

  // These map the place in this order to the one in the tensor's own, and back.
  std::int64_t index(std::int64_t position) const;
  std::int64_t position(std::int64_t index) const;
  auto operator<=>(const AxisOrder&) const = default;  // NOLINT(modernize-use-nullptr)
};
// Returns the order of a file in the problem's filter format; its own is [t][r][s][c][k].
AxisOrder own_order(const WgradProblem& problem);
// Returns all others that place an element elsewhere, the usual ones first.
std::vector<AxisOrder> other_orders(const WgradProblem& problem);
// Returns the order of x or dy that 2-D tensors have by that name, such as "CHWN" or "nChw16c";
// nothing if it has no place for blocks, or is the tensor's own.
std::optional<AxisOrder> tensor_order(const WgradProblem& problem, bool of_x,
                                      const std::string& name);

// A value becomes another one: treatments() says more.
enum class Treatment : std::uint8_t {
  none,
  f32,
  tf32,
  tf32_even,
  tf32_cut,
  f16,
  f16_cut,
  bf16,
  bf16_cut,
  bf16_twice,
  bf16_three,
  e4m3,
  e5m2,
  e3m2,
  e2m3,
  e2m1,
  whole,
  whole_cut,
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
// parameter is the scale of types of 8 bits or fewer and of whole numbers (0: none).
double treated(Treatment treatment, DType dtype, double value, double parameter = 0);

// A tap outside x adds nothing, 0 * dy (which spreads NaN and Inf), or another pixel's x.
enum class Outside : std::uint8_t { skipped, multiplied, edge, reflected, wrapped };

// Numbers that share a scale: all, or those of a channel, an image, a block of channels of a pixel,
// or of pixels of a channel.
enum class Scaled : std::uint8_t { tensor, channels, images, channel_blocks, pixel_blocks };
// Some pixels of dy, counted over n, z, p, q: those whose step of a walk is in the range. A walk
// goes by pixels; by lines of an axis, places, distances from the border, or tiles of all images;
// by tiles of each; by lanes, which take pixels, or images, in turns.
struct Pixels {
  enum class By : std::uint8_t { pixel, line, place, border, tile, image_tile, lane, image_lane };
  By by = By::pixel;
  std::int64_t unit = 0;  // the axis of lines, the extent of a tile, the number of lanes
  Range range;            // empty: all pixels
  bool are_all() const { return range.size() <= 0; }
  bool operator==(const Pixels&) const = default;
};
inline constexpr std::int64_t kPixelChunk = 512;  // kernels take so many at a time
std::int64_t step_of(const WgradProblem& problem, const Pixels& walk, std::int64_t pixel);
std::int64_t step_count(const WgradProblem& problem, const Pixels& walk);

struct TensorReading {
  // The memory is taken for this order, or turned to it and then taken for what it was.
  std::optional<AxisOrder> order;
  bool turned = false;
  std::vector<std::int64_t> images;  // that are read for each; empty: their own
  Treatment treatment = Treatment::none;
  double parameter = 0;  // of the treatment; of blocks the number that the largest one becomes
  Scaled by = Scaled::tensor;
  // In place of the parameter, by channel or image; of blocks what their scales, which then are
  // rounded to e4m3, have in common (NVFP4).
  std::vector<double> scales = {};
  std::int64_t block = 0;
  bool power = false;  // scales of blocks are powers of two (OCP Microscaling Formats)
  auto operator<=>(const TensorReading&) const = default;  // NOLINT(modernize-use-nullptr)
};
// Parts of x see zeros for their neighbours', for those before or behind alone, or their own edge.
enum class Halo : std::uint8_t { zeros, zeros_before, zeros_behind, edge };
struct Reading {
  std::array<SpatialAxis, 3> axis;
  TensorReading x, dy;
  // Of x * dy; bf16_three: these are hi + lo, two bfloat16 numbers each, and lo * lo is left out.
  Treatment product = Treatment::none;
  Outside outside = Outside::skipped;
  std::array<Range, 3> left_out;  // positions of x
  // Positions of x and dy in different parts of an axis, as even as can be, do not meet; nor do
  // those of different tiles, of so many positions of dy. dy sees something else there.
  std::array<std::int64_t, 3> parts = {1, 1, 1}, tiles = {};
  Halo halo = Halo::zeros;
  // dy, or what a tap sees of x, is that of so many pixels before, or the other stage of two.
  std::int64_t stage = 0;
  bool stage_of_x = false, stages_exchanged = false;
  double weight = 1;  // of all terms
  Pixels only;        // for which the reading holds; others are read plainly
  bool operator==(const Reading&) const = default;
  TensorReading& tensor(bool of_x) { return of_x ? x : dy; }
};
Reading plain_reading(const WgradProblem& problem);
// Returns the pixel whose dy or x a reading with stages has for one, if there is such a pixel.
inline std::int64_t pixel_of_stage(const Reading& reading, std::int64_t pixel) {
  const bool later = reading.stages_exchanged && pixel / reading.stage % 2 == 0;
  return pixel + (later ? reading.stage : -reading.stage);
}

// Tell whether it rounds x or dy to a narrower type, or these or products.
bool rounds_inputs(const Reading& reading);
bool rounds(const Reading& reading);

// Describes an image of x or of dy.
using Extents = std::array<std::int64_t, 3>;  // d, h and w, or z, p and q
inline Extents extents_of(const WgradProblem& pb, bool of_x) {
  const auto& [d, h, w] = pb.axis;
  return of_x ? Extents{d.in, h.in, w.in} : Extents{d.out, h.out, w.out};
}
inline std::int64_t pixels_of(const Extents& image) { return image[0] * image[1] * image[2]; }
inline std::int64_t channels_of(const WgradProblem& pb, bool of_x) { return of_x ? pb.C : pb.K; }

// Holds the largest finite numbers of the tensors in size: of all, and of each channel and image.
struct Facts {
  struct Largest {
    double all = 0;
    std::vector<double> channels = {}, images = {};
  };
  Largest x = {}, dy = {};
};
Facts facts_of(const Images& images);

struct Wanted {
  const Reading* reading;
  EntryTerms terms;
};
// Sums entries by their readings, in one pass over x and dy; the values alone in a fraction of the
// time.
std::vector<EntrySum> sums_of(std::span<const Wanted> wanted, const Images& images,
                              bool values_alone);

// Holds x and dy of an entry's terms, one for each pixel of dy. Where the tap is outside x, that is
// 0, and so is what is not finite of dy.
struct Terms {
  std::vector<double> x, dy;
};
std::vector<Terms> terms_of(std::span<const EntryTerms> entries, const Images& images);

}  // namespace convgrad::diagnosis
