// amx_workspace.hpp - the memory of one call of outer_product_amx, and how pixels are listed in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/amx_shape.hpp"

namespace convgrad {

// Consecutive positions of a panel and where a tensor has them; neighbours become one piece.
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

struct AmxWorkspace {
  AmxBits* x;                    // [term][channel][row]
  AmxBits* dy;                   // [term][k / 16][pixel pair][k % 16][2]
  AmxBits* rows;                 // 16 channels of dy, when they are apart in the file
  const AmxBits** pixels;        // of x or of dy, when their channels are side by side
  AmxPiece* pieces;              // of x or of dy
  std::int64_t x_term, dy_term;  // elements of a term
  std::int64_t bytes;
};

// The same in every call, whatever the chunk: sizes are those of the largest.
inline AmxWorkspace amx_workspace(const WgradProblem& pb, const AmxPlan& plan, std::byte* memory) {
  const AmxShape& s = plan.shape;
  const std::int64_t terms = pb.dtype == DType::f16 ? 2 : 1;
  // A line is a piece, and what is between it and the next one.
  const std::int64_t pieces = 2 * std::max(s.lines(), s.extent[0] * s.extent[1] * s.extent[2]) + 2;
  AmxWorkspace w = {};
  const auto take = [&](std::int64_t bytes) {
    std::byte* const part = memory != nullptr ? memory + w.bytes : nullptr;
    w.bytes += round_up(bytes, 64);
    return part;
  };
  w.x_term = round_up(plan.steps.c, kAmxChannels) * s.row;
  w.dy_term = round_up(plan.steps.k, kAmxChannels) * s.dy_pixels;
  constexpr auto kItem = static_cast<std::int64_t>(sizeof(AmxBits));
  w.x = reinterpret_cast<AmxBits*>(take(terms * w.x_term * kItem));
  w.dy = reinterpret_cast<AmxBits*>(take(terms * w.dy_term * kItem));
  w.rows = reinterpret_cast<AmxBits*>(take(kAmxChannels * s.dy_pixels * kItem));
  w.pixels = reinterpret_cast<const AmxBits**>(
      take(std::max(s.row, s.dy_pixels) * static_cast<std::int64_t>(sizeof(void*))));
  w.pieces =
      reinterpret_cast<AmxPiece*>(take(pieces * static_cast<std::int64_t>(sizeof(AmxPiece))));
  return w;
}

}  // namespace convgrad
