// amx_shape.hpp - how outer_product_amx packs x and dy, by the shape of the problem alone.
//
// x's panel has a row for each channel. In it, what output pixel (n,z,p,q) sees with tap (t,r,s)
// lies at pixel(n,z,p,q) + offset(t,r,s): for each channel and each phase of the strides, images of
// depths of lines of columns, a few more of each than dy has, so that neighbouring outputs, lines
// and images are neighbours in the row and one sum runs across all of them. dy's panel has zeros
// where x's has those few more.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "cpu/amx_isa.hpp"
#include "cpu/isa_set.hpp"

namespace convgrad {

// One axis of a panel: tap j sees, from output o, line o + j*dilation/stride of phase j % period.
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

struct AmxSharing {
  std::array<bool, 3> taps{};  // one packing of x serves all taps of the axis, or one
  bool joined = false;         // one run over all images and depths, or one for each
};

struct AmxShape {
  std::array<std::int64_t, 4> extent{};  // n, z, p, q
  std::array<AmxAxis, 3> axis;
  bool joined = false;
  std::int64_t sheet = 0;      // one image, depth and phase
  std::int64_t positions = 0;  // of x, without what rounds a row up
  std::int64_t row = 0;        // of x's panel: from one channel to the next
  std::int64_t run = 0;        // pixels of a run
  std::int64_t pitch = 0;      // in dy's panel from one run to the next
  std::int64_t dy_pixels = 0;  // of dy's panel

  std::int64_t lines() const {  // of columns
    return positions / axis[2].lines;
  }
  // Where dy's panel has the first pixel of image n and depth z.
  std::int64_t dy_start(std::int64_t n, std::int64_t z) const {
    return joined ? (n * axis[0].lines + z) * sheet : (n * extent[1] + z) * pitch;
  }
  // Where tap (t, r, s), counted from the first that the panel serves, sees output (n, z, 0, 0).
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
  s.extent = extent;
  s.joined = sharing.joined;
  std::int64_t phases = 1;
  for (std::size_t a = 0; a < 3; ++a) {
    s.axis[a] = amx_axis(pb.axis[a], sharing.taps[a] ? pb.axis[a].taps : 1, extent[a + 1]);
    phases *= s.axis[a].phases;
  }
  const std::int64_t columns = s.axis[2].lines;
  s.sheet = s.axis[1].lines * columns;
  s.positions = phases * extent[0] * s.axis[0].lines * s.sheet;
  // The last step of a run reads up to 31 positions too far. An odd number of cache lines from one
  // row to the next spreads a tile's rows over the cache.
  s.row = (ceil_div(s.positions + kAmxPixels - 1, kAmxPixels) | 1) * kAmxPixels;
  s.run = (extent[2] - 1) * columns + extent[3];
  if (s.joined) s.run += ((extent[0] - 1) * s.axis[0].lines + extent[1] - 1) * s.sheet;
  s.pitch = round_up(s.run, kAmxPixels);
  s.dy_pixels = s.pitch * (s.joined ? 1 : extent[0] * extent[1]);
  return s;
}

// Channels of a tile of the gradient.
struct AmxSteps {
  std::int64_t c = 0, k = 0;
};

// Rough seconds for one chunk and one tile of a gradient.
inline double amx_chunk_seconds(const WgradProblem& pb, const AmxShape& s, const AmxSteps& steps) {
  constexpr double kInstruction = 16e-9;  // 6.4e-9 of it the multiplication, at 2.5 GHz
  constexpr double kMove = 0.25e-9;       // an element; splitting it takes about as long again
  constexpr double kPixel = 3e-9;         // finding out where it is
  constexpr double kStart = 500e-9;
  const double terms = pb.dtype == DType::f16 ? 2 : 1;
  const auto blocks =
      static_cast<double>(ceil_div(steps.c, kAmxChannels) * ceil_div(steps.k, kAmxChannels));
  double packings = 1;
  for (std::size_t a = 0; a < 3; ++a) {
    const std::int64_t parts = pb.axis[a].taps / s.axis[a].taps;
    packings *= static_cast<double>(parts);
  }
  const auto taps = static_cast<double>(pb.taps());
  const auto x = static_cast<double>(s.row) * packings, dy = static_cast<double>(s.dy_pixels);
  const double moves = x * static_cast<double>(round_up(steps.c, kAmxChannels)) +
                       dy * static_cast<double>(round_up(steps.k, kAmxChannels));
  // Storing a block's sums and adding them to the partial is like ten multiplications.
  return blocks * taps * (dy / kAmxPixels * terms * terms + 10) * kInstruction +
         moves * terms * kMove + (x + dy) * kPixel + kStart;
}

struct AmxPlan {
  AmxSteps steps;
  AmxSharing sharing;
  AmxShape shape;  // of the largest chunk
  double chunk_seconds = 0;
};

// Equal parts of at most `most`, in whole blocks of two tiles where there are as many.
inline std::int64_t amx_step(std::int64_t count, std::int64_t most) {
  const std::int64_t step = ceil_div(count, ceil_div(count, most));
  return count > kAmxBlock ? round_up(step, kAmxBlock) : step;
}

inline AmxPlan amx_plan(const WgradProblem& pb) {
  constexpr std::int64_t kMostK = 256, kMostC = 64;
  constexpr std::int64_t kMostC1 = 256;  // of 1x1 filters, for which packing dy is most of the rest
  constexpr double kMostElements = 256 << 10, kMostPositions = 8192;
  AmxPlan best;
  best.steps = {amx_step(pb.group_c(), pb.taps() == 1 ? kMostC1 : kMostC),
                amx_step(pb.group_k(), kMostK)};
  const auto extent = chunk_extent(pb);
  const std::int64_t terms = pb.dtype == DType::f16 ? 2 : 1;
  for (unsigned bits = 0; bits < 16; ++bits) {
    const AmxSharing sharing = {{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0},
                                (bits & 8) != 0};
    double positions = static_cast<double>(extent[0]);
    bool useful = true;
    for (std::size_t a = 0; a < 3; ++a) {
      const bool shared = sharing.taps[a];
      const AmxAxis axis = amx_axis(pb.axis[a], shared ? pb.axis[a].taps : 1, extent[a + 1]);
      positions *= static_cast<double>(axis.phases) * static_cast<double>(axis.lines);
      useful = useful && (!shared || pb.axis[a].taps > 1);
    }
    const double elements = positions * static_cast<double>(terms * round_up(best.steps.c, 16));
    if (!useful || (bits % 8 != 0 && (positions > kMostPositions || elements > kMostElements))) {
      continue;
    }
    const AmxShape shape = amx_shape(pb, sharing, extent);
    const double seconds = amx_chunk_seconds(pb, shape, best.steps);
    if (best.chunk_seconds == 0 || seconds < best.chunk_seconds) {
      best.chunk_seconds = seconds;
      best.sharing = sharing;
      best.shape = shape;
    }
  }
  return best;
}

}  // namespace convgrad
