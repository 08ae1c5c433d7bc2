// amx_shape.hpp - decides how outer_product_amx packs x and dy, by the problem's shape alone.
//
// A chunk is cut in two halves along one axis, and a pair is a pixel of the first and the one in
// its place in the second. x's panel holds what output pair (n,z,p,q) sees with tap (t,r,s) at
// pair(n,z,p,q) + offset(t,r,s): for each phase of the strides, images of depths of lines of
// columns, a few more of each than dy has (whose panel has zeros there), so that neighbouring
// outputs, lines and images are neighbours in the panel and one sum runs across all of them.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>

#include "cpu/amx/amx_isa.hpp"
#include "cpu/isa/isa_set.hpp"
#include "engine/kernel.hpp"

namespace convgrad {

// On one axis of a panel tap j sees, from output o, line o + j*dilation/stride of phase j % period.
struct AmxAxis {
  std::int64_t taps = 1, period = 1, phases = 1, lines = 1;
};
inline AmxAxis amx_axis(const SpatialAxis& axis, std::int64_t taps, std::int64_t outputs) {
  AmxAxis a;
  a.taps = taps;
  a.period = axis.stride / std::gcd(axis.stride, axis.dilation);
  a.phases = std::min(taps, a.period);
  a.lines = outputs + (taps - 1) * axis.dilation / axis.stride;
  return a;
}

// Sharing saves packing, and costs the columns, lines and depths between outputs that dy's panel
// must have zeros for: those are multiplied like others. A filter of many taps gains, a small image
// with a large filter does not.
struct AmxSharing {
  std::array<bool, 3> taps{};  // one packing of x serves all taps of the axis, or one
  bool joined = false;         // one run over all images and depths, or one for each
  bool wide = false;           // all taps of a filter row are channels of the panel: (s, c) pairs
  std::size_t split = 0;       // the axis (n, z, p, q) along which the chunk is cut in halves
};

struct AmxShape {
  AmxSharing sharing;
  std::array<std::int64_t, 4> extent{};  // n, z, p, q of the first half
  std::array<AmxAxis, 3> axis;
  bool turned = false;         // x in the form of dy's panel, and dy in that of x's: see below
  std::int64_t sheet = 0;      // one image, depth and phase
  std::int64_t positions = 0;  // pairs of x, without what rounds them up
  std::int64_t x_pairs = 0;    // of x's panel
  std::int64_t run = 0;        // pairs of a run
  std::int64_t pitch = 0;      // in dy's panel from one run to the next
  std::int64_t dy_pairs = 0;   // of dy's panel

  std::int64_t lines() const {  // of columns
    return positions / axis[2].lines;
  }
  std::int64_t phase_pairs() const { return extent[0] * axis[0].lines * sheet; }
  // Returns the place of the first pair of image n and depth z in dy's panel.
  std::int64_t dy_start(std::int64_t n, std::int64_t z) const {
    return sharing.joined ? (n * axis[0].lines + z) * sheet : (n * extent[1] + z) * pitch;
  }
  // Returns the place that tap (t, r, s), from the panel's first on, sees from output (n, z, 0, 0).
  std::int64_t x_start(const WgradProblem& pb, std::int64_t n, std::int64_t z,
                       const std::array<std::int64_t, 3>& tap) const {
    std::array<std::int64_t, 3> phase, line;
    for (std::size_t a = 0; a < 3; ++a) {
      phase[a] = tap[a] % axis[a].period;
      line[a] = tap[a] * pb.axis[a].dilation / pb.axis[a].stride;
    }
    const std::int64_t phases = (phase[1] * axis[2].phases + phase[2]) * axis[0].phases + phase[0];
    const std::int64_t depth = (phases * extent[0] + n) * axis[0].lines + line[0] + z;
    return (depth * axis[1].lines + line[1]) * axis[2].lines + line[2];
  }
};

inline AmxShape amx_shape(const WgradProblem& pb, const AmxSharing& sharing,
                          const std::array<std::int64_t, 4>& extent) {
  AmxShape s;
  s.sharing = sharing;
  s.extent = extent;
  s.extent[sharing.split] = ceil_div(extent[sharing.split], 2);
  std::int64_t phases = 1;
  for (std::size_t a = 0; a < 3; ++a) {
    const std::int64_t taps = sharing.taps[a] ? pb.axis[a].taps : 1;
    s.axis[a] = amx_axis(pb.axis[a], taps, s.extent[a + 1]);
    phases *= s.axis[a].phases;
  }
  const std::int64_t columns = s.axis[2].lines;
  s.sheet = s.axis[1].lines * columns;
  s.positions = phases * s.extent[0] * s.axis[0].lines * s.sheet;
  // The last step of a run reads up to 15 positions too far.
  s.x_pairs = round_up(s.positions + kAmxPairs - 1, kAmxPairs);
  s.run = (s.extent[2] - 1) * columns + s.extent[3];
  if (sharing.joined) s.run += ((s.extent[0] - 1) * s.axis[0].lines + s.extent[1] - 1) * s.sheet;
  s.pitch = round_up(s.run, kAmxPairs);
  s.dy_pairs = s.pitch * (sharing.joined ? 1 : s.extent[0] * s.extent[1]);
  // A single run from the first pixels of both may have either in tiles, the other in pairs. Pairs
  // take less work to pack, and sums of tiles of x are in the partial's order.
  s.turned = pb.taps() == 1 && (sharing.joined || s.extent[0] * s.extent[1] == 1);
  return s;
}

// Counts the channels of x's panel, for c channels of x.
inline std::int64_t amx_channels(const WgradProblem& pb, const AmxSharing& sharing,
                                 std::int64_t c) {
  return sharing.wide ? pb.axis[2].taps * c : c;
}

// Counts the panels of each of x and dy: a value is the sum of so many terms.
inline std::int64_t amx_terms(const WgradProblem& pb, int f16_terms) {
  if (pb.dtype == DType::f32) return 3;
  return pb.dtype == DType::f16 ? f16_terms : 1;
}

inline constexpr std::int64_t kAmxBlock = 2 * kAmxChannels;

// Counts tiles of c x k channels. One or two sums of a block wait for themselves, and count 3.25.
inline double amx_waiting_blocks(std::int64_t c, std::int64_t k) {
  const auto whole = [](std::int64_t count) { return (count + kAmxChannels - 1) / kAmxBlock; };
  const std::int64_t all = ceil_div(c, kAmxBlock) * ceil_div(k, kAmxBlock);
  const std::int64_t full = whole(c) * whole(k);
  return static_cast<double>(full * 4) + static_cast<double>(all - full) * 3.25;
}

// Estimates seconds for one chunk and one tile of a gradient. amx_plan() compares them, so only the
// order of the forms of packing has to be right.
inline double amx_chunk_seconds(const WgradProblem& pb, const AmxShape& s,
                                const AmxSharing& sharing, const TileSteps& steps, double terms) {
  constexpr double kInstruction = 8e-9;  // 4.6e-9 of it the multiplication, at 3.5 GHz
  constexpr double kMove = 0.1e-9;       // a term of an element; cutting float32 up takes as long
  constexpr double kRead = 0.2e-9;
  constexpr double kPixel = 3e-9;  // finding out where it is
  constexpr double kStart = 500e-9;
  const std::int64_t channels = amx_channels(pb, sharing, steps.c);
  const bool f32 = terms == 3;
  const double blocks =
      f32 ? amx_waiting_blocks(channels, steps.k)
          : static_cast<double>(ceil_div(channels, kAmxChannels) * ceil_div(steps.k, kAmxChannels));
  std::int64_t packings = 1;  // one serves all taps of an axis, or one of them
  for (std::size_t a = 0; a < 3; ++a) {
    if (sharing.wide && a == 2) continue;
    packings *= pb.axis[a].taps / s.axis[a].taps;
  }
  const std::int64_t apart = sharing.wide ? pb.axis[2].taps : 1;
  const auto taps = static_cast<double>(pb.taps()) / static_cast<double>(apart);
  const auto x = static_cast<double>(2 * s.x_pairs) * static_cast<double>(packings),
             dy = static_cast<double>(2 * s.dy_pairs);
  // Pixels of wide panels overlap in the file and lie across cache lines.
  const double moves =
      x * static_cast<double>(round_up(channels, kAmxChannels)) * (sharing.wide ? 2 : 1) +
      dy * static_cast<double>(round_up(steps.k, kAmxChannels)) * 2;
  // Storing a block's sums and adding them to the partial is like ten multiplications.
  const double products = f32 ? 6 : terms * terms;
  // Waiting for memory shows in float32: for x and dy, and for the partial, which the first sums of
  // each of its lines wait for.
  const double reads = f32 ? static_cast<double>(s.extent[0] * s.extent[1] * s.extent[2]) *
                                     static_cast<double>(s.extent[3] * (steps.c + steps.k)) +
                                 static_cast<double>(pb.taps() * steps.c * steps.k)
                           : 0;
  return blocks * taps * (dy / kAmxRow * products + 10) * kInstruction +
         moves * (f32 ? 4 : terms) * kMove + reads * kRead + (x + dy) * kPixel + kStart;
}

struct AmxPlan {
  std::int64_t terms = 1;
  std::int64_t chunk_pixels = kMaxChunkPixels;
  TileSteps steps;
  AmxShape shape;  // of the largest chunk
  double chunk_seconds = 0;
};

// Returns equal parts of at most `most`, in whole blocks of two tiles where there are as many.
inline std::int64_t amx_step(std::int64_t count, std::int64_t most) {
  const std::int64_t step = ceil_div(count, ceil_div(count, most));
  return count > kAmxBlock ? round_up(step, kAmxBlock) : step;
}

// Tells whether x may be packed like that: within 1 MiB, which leaves room for dy in the second
// cache, and wide only where a filter row of few channels is one piece in the file.
inline bool amx_can_share(const WgradProblem& pb, const AmxSharing& sharing,
                          const std::array<std::int64_t, 4>& extent, const TileSteps& steps,
                          double terms) {
  constexpr double kMostElements = 512 << 10, kMostPositions = 8192;
  constexpr std::int64_t kFewChannels = 16;
  std::array<std::int64_t, 4> half = extent;
  half[sharing.split] = ceil_div(extent[sharing.split], 2);
  double positions = static_cast<double>(2 * half[0]);
  bool shares = sharing.wide;
  for (std::size_t a = 0; a < 3; ++a) {
    const bool shared = sharing.taps[a];
    if (shared && pb.axis[a].taps == 1) return false;
    const AmxAxis axis = amx_axis(pb.axis[a], shared ? pb.axis[a].taps : 1, half[a + 1]);
    positions *= static_cast<double>(axis.phases) * static_cast<double>(axis.lines);
    shares = shares || shared;
  }
  if (sharing.wide && (sharing.taps[2] || pb.axis[2].taps == 1 || pb.axis[2].dilation != 1 ||
                       pb.groups != 1 || pb.C > kFewChannels || pb.axis[2].taps > 31)) {
    return false;
  }
  const double elements =
      positions * terms *
      static_cast<double>(round_up(amx_channels(pb, sharing, steps.c), kAmxChannels));
  return !shares || (positions <= kMostPositions && elements <= kMostElements);
}

// Returns the pixels of a chunk. Long ones add up sums and partials seldom; panels have to fit the
// second cache beside a tile's partial. Sums of so many products of 16-bit numbers are still far
// more exact than a result of 16 bits; those of float32 stay short.
inline std::int64_t amx_chunk_pixels(const WgradProblem& pb, std::int64_t terms,
                                     const TileSteps& steps) {
  constexpr std::int64_t kMostBytes = 1536 << 10;
  if (pb.dtype == DType::f32) return kMaxChunkPixels;
  std::int64_t x = steps.c;  // values of x for each pixel
  for (const SpatialAxis& axis : pb.axis) x *= std::min(axis.taps, axis.stride);
  const std::int64_t bytes = 2 * terms * (x + steps.k);
  return std::max(std::min(kMostBytes / bytes, long_chunk_pixels(pb)), kMaxChunkPixels);
}

// Finds the cheapest of all 32 ways to share a packing of x between taps, with halves along any
// axis. dy's part of a tile, 512 pixels of 256 channels, takes 256 KiB of the second cache a term.
inline AmxPlan find_amx_plan(const WgradProblem& pb, int f16_terms) {
  constexpr std::int64_t kMostK = 256, kMostC = 64;
  constexpr std::int64_t kMostC1 = 256;  // of 1x1 filters, for which packing dy is most of the rest
  AmxPlan best;
  best.terms = amx_terms(pb, f16_terms);
  const auto terms = static_cast<double>(best.terms);
  best.steps = {pb.taps(), amx_step(pb.group_c(), pb.taps() == 1 ? kMostC1 : kMostC),
                amx_step(pb.group_k(), kMostK)};
  best.chunk_pixels = amx_chunk_pixels(pb, best.terms, best.steps);
  const auto extent = chunk_extent(pb, best.chunk_pixels);
  for (unsigned bits = 0; bits < 128; ++bits) {
    const AmxSharing sharing = {{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0},
                                (bits & 8) != 0,
                                (bits & 16) != 0,
                                bits / 32};
    if (extent[sharing.split] == 1 && sharing.split > 0) continue;
    if (!amx_can_share(pb, sharing, extent, best.steps, terms)) continue;
    const AmxShape shape = amx_shape(pb, sharing, extent);
    const double seconds = amx_chunk_seconds(pb, shape, sharing, best.steps, terms);
    if (best.chunk_seconds == 0 || seconds < best.chunk_seconds) {
      best.chunk_seconds = seconds;
      best.shape = shape;
    }
  }
  return best;
}

// The thread's last one is kept: every part of a kernel asks for it, and finding it takes as long
// as small problems' multiplications.
inline const AmxPlan& amx_plan(const WgradProblem& pb, int f16_terms) {
  struct Found {
    WgradProblem problem;
    int f16_terms = 0;
    AmxPlan plan;
  };
  thread_local Found last;
  if (last.f16_terms != f16_terms || last.problem != pb) {
    last = {pb, f16_terms, find_amx_plan(pb, f16_terms)};
  }
  return last.plan;
}

}  // namespace convgrad
