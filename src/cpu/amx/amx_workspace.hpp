// amx_workspace.hpp - the memory of one call of outer_product_amx, how pixels are listed in it, and
// what its parts know of a tile and of the chunk at work.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/amx/amx_shape.hpp"
#include "cpu/shared/pack.hpp"

namespace convgrad {

// Pairs consecutive positions of a panel with places in a tensor. Neighbours become one piece, so
// that a layer without padding has a handful of pieces, and copies are long.
class AmxPieces {
 public:
  AmxPieces(AmxPiece* memory, std::int64_t pixel_stride) : pieces_(memory), stride_(pixel_stride) {}

  // Adds `count` pixels from element `source` on; if negative, zeros.
  void pixels(std::int64_t count, std::int64_t source) {
    if (count <= 0) return;
    position_ += count;
    AmxPiece* last = count_ > 0 ? pieces_ + count_ - 1 : nullptr;
    if (last != nullptr &&
        (source < 0 ? last->source < 0
                    : last->source >= 0 && last->source + last->count * stride_ == source)) {
      last->count += count;
    } else {
      pieces_[count_++] = {count, source};
    }
  }
  void zeros_until(std::int64_t position) { pixels(position - position_, -1); }

  std::int64_t position() const { return position_; }
  std::int64_t stride() const { return stride_; }
  std::int64_t count() const { return count_; }
  const AmxPiece* data() const { return pieces_; }

 private:
  AmxPiece* pieces_;
  std::int64_t stride_, count_ = 0, position_ = 0;
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

// Kernels allocate nothing: the plan counts this for each thread before anything is computed. It is
// the same in every call, as sizes are those of the largest chunk.
inline AmxWorkspace amx_workspace(const WgradProblem& pb, const AmxPlan& plan, std::byte* memory) {
  const AmxShape& s = plan.shape;
  const std::int64_t channels = amx_channels(pb, plan.shape.sharing, plan.steps.c);
  // A line is a piece, and so is what lies between it and the next one.
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
  w.rows = take(round_up(plan.shape.sharing.wide ? channels : 1, kAmxChannels) * w.row * bytes, 1);
  if (plan.shape.sharing.wide) {
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

using AmxTap = std::array<std::int64_t, 3>;  // along t, r and s

// A task has one, which is its thread's alone. Its plan and memory follow from the shape, so all
// tasks of a problem have the same; box, input and shape are the present chunk's.
struct AmxContext {
  AmxContext(const WgradProblem& problem, const Block& its_block, const Tile& its_tile,
             int f16_terms, std::byte* workspace)
      : pb(problem),
        block(its_block),
        tile(its_tile),
        plan(amx_plan(problem, f16_terms)),
        work(amx_workspace(problem, plan, workspace)),
        value_bytes(dtype_bytes(problem.dtype)),
        first_channel(tile.k.begin / problem.group_k() * problem.group_c() + tile.c.begin),
        channels(amx_channels(problem, plan.shape.sharing, tile.c.size())) {}

  void start_chunk(const PixelBox& its_box) {
    box = its_box;
    input = input_box(pb, box);
    shape = amx_shape(pb, plan.shape.sharing,
                      {box[0].size(), box[1].size(), box[2].size(), box[3].size()});
    half = {box, box};
    Range& first = half[0][shape.sharing.split];
    Range& second = half[1][shape.sharing.split];
    first.end = second.begin = first.begin + shape.extent[shape.sharing.split];
    second.end = std::max(second.end, second.begin);
  }

  const WgradProblem& pb;
  const Block& block;
  const Tile& tile;
  const AmxPlan plan;
  const AmxWorkspace work;
  const std::int64_t value_bytes;    // in the file
  const std::int64_t first_channel;  // of x
  const std::int64_t channels;       // of x's panel
  PixelBox box;                      // the chunk
  std::array<PixelBox, 2> half;      // its halves, of which the second may be smaller, or empty
  std::array<Range, 3> input;        // what it sees
  AmxShape shape;
};

}  // namespace convgrad
