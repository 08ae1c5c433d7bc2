// amx_workspace.hpp - the memory of one call of outer_product_amx, and how pixels are listed in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/amx/amx_shape.hpp"

namespace convgrad {

// Consecutive positions of a panel and where a tensor has them; neighbours become one piece, so
// that a layer without padding has a handful of pieces, and copies are long.
class AmxPieces {
 public:
  void start(AmxPiece* memory, std::int64_t pixel_stride) {
    pieces_ = memory;
    stride_ = pixel_stride;
    count_ = 0;
    position_ = 0;
  }
  // `count` pixels from element `source` on.
  void pixels(std::int64_t count, std::int64_t source) {
    if (count <= 0) return;
    position_ += count;
    AmxPiece* last = count_ > 0 ? pieces_ + count_ - 1 : nullptr;
    if (last != nullptr && last->source >= 0 && last->source + last->count * stride_ == source) {
      last->count += count;
    } else {
      pieces_[count_++] = {count, source};
    }
  }
  void zeros_until(std::int64_t position) {
    const std::int64_t count = position - position_;
    if (count <= 0) return;
    position_ = position;
    if (count_ > 0 && pieces_[count_ - 1].source < 0) {
      pieces_[count_ - 1].count += count;
    } else {
      pieces_[count_++] = {count, -1};
    }
  }

  std::int64_t position() const { return position_; }
  std::int64_t stride() const { return stride_; }
  std::int64_t count() const { return count_; }
  const AmxPiece* data() const { return pieces_; }

 private:
  AmxPiece* pieces_ = nullptr;
  std::int64_t stride_ = 1, count_ = 0, position_ = 0;
};

// x and dy change their forms if the shape is turned.
struct AmxWorkspace {
  AmxBits* x;                    // [term][c / 16][pair][c % 16][2]
  AmxBits* dy;                   // [term][k / 16][pair / 16][k % 16][pair % 16][2]
  std::byte* rows;               // 16 channels of either, when they are apart in the file
  std::byte* edges;              // pixels of wide panels that see padding
  const void** pixels[2];        // of each half of x or of dy, when channels are side by side
  AmxPiece* pieces;              // of x or of dy
  AmxRun* runs;                  // of a group of taps
  std::int64_t x_term, dy_term;  // elements of a term
  std::int64_t row;              // of `rows`: from one channel to the next
  std::int64_t bytes;
};

// Kernels allocate nothing: the plan counts this for each thread before anything is computed.
// The same in every call, whatever the chunk: sizes are those of the largest.
inline AmxWorkspace amx_workspace(const WgradProblem& pb, const AmxPlan& plan, std::byte* memory) {
  const AmxShape& s = plan.shape;
  const std::int64_t channels = amx_channels(pb, plan.sharing, plan.steps.c);
  // A line is a piece, and what is between it and the next one.
  const std::int64_t pieces = 2 * std::max(s.lines(), s.extent[0] * s.extent[1] * s.extent[2]) + 2;
  AmxWorkspace w = {};
  const auto take = [&](std::int64_t items, std::size_t item) {
    std::byte* const part = memory != nullptr ? memory + w.bytes : nullptr;
    w.bytes += round_up(items * static_cast<std::int64_t>(item), 64);
    return part;
  };
  const auto take_bits = [&](std::int64_t items) {
    return reinterpret_cast<AmxBits*>(take(items, sizeof(AmxBits)));
  };
  // An odd number of cache lines from one channel to the next spreads them over the cache.
  const std::int64_t most = std::max(s.x_pairs, s.dy_pairs);
  const std::int64_t bytes = dtype_bytes(pb.dtype);
  w.row = (ceil_div(2 * most * bytes, 64) | 1) * 64 / bytes;
  w.x_term = round_up(channels, kAmxChannels) * 2 * s.x_pairs;
  w.dy_term = round_up(plan.steps.k, kAmxChannels) * 2 * s.dy_pairs;
  w.x = take_bits(plan.terms * w.x_term);
  w.dy = take_bits(plan.terms * w.dy_term);
  w.rows = take(round_up(plan.sharing.wide ? channels : 1, kAmxChannels) * w.row * bytes, 1);
  if (plan.sharing.wide) {
    const std::int64_t taps = pb.axis[2].taps;
    w.edges = take(2 * s.lines() * std::min(2 * taps, s.axis[2].lines) * channels * bytes, 1);
  }
  for (const void**& half : w.pixels) {
    half = reinterpret_cast<const void**>(take(most, sizeof(void*)));
  }
  w.pieces = reinterpret_cast<AmxPiece*>(take(pieces, sizeof(AmxPiece)));
  w.runs = reinterpret_cast<AmxRun*>(take(s.extent[0] * s.extent[1], sizeof(AmxRun)));
  return w;
}

}  // namespace convgrad
