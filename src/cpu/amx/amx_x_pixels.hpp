// amx_x_pixels.hpp - lists the pixels of x that a panel of outer_product_amx holds.
//
// They are listed before anything is packed: the same list serves all channels of a tile, and a
// panel's zeros are in it, too, so that packing has no branches for borders.
#pragma once

#include "cpu/amx/amx_workspace.hpp"

namespace convgrad {

class AmxXPixels {
 public:
  explicit AmxXPixels(const AmxContext& context) : at_(context) {}

  // Lists what the pairs have of one half of the chunk, from what tap `first` sees on; `width`
  // neighbours in x make a pixel.
  AmxPieces list(const AmxTap& first, std::size_t half, std::int64_t width) const {
    const AmxShape& shape = at_.shape;
    AmxPieces pieces(at_.work.pieces, at_.block.x_strides.spatial[2] * at_.pb.axis[2].stride);
    AmxTap phase;
    for (phase[1] = 0; phase[1] < shape.axis[1].phases; ++phase[1]) {
      for (phase[2] = 0; phase[2] < shape.axis[2].phases; ++phase[2]) {
        for (phase[0] = 0; phase[0] < shape.axis[0].phases; ++phase[0]) {
          list_phase(origin_of(first, half, phase), half, width, pieces);
        }
      }
    }
    pieces.zeros_until(shape.x_pairs);
    return pieces;
  }

  // Pixels of a wide panel that are partly outside x are put together with zeros: only they are
  // copied to `edge` and on, the others are read in place. Returns the end of the copies.
  std::byte* list_edges(const std::byte* data, const AmxTap& first, std::size_t half,
                        std::byte* edge) const {
    const SpatialAxis& w = at_.pb.axis[2];
    const AmxShape& shape = at_.shape;
    const std::int64_t columns = shape.axis[2].lines;
    AmxTap phase = {};  // along s there is one: all taps are in a pixel
    const void** pixels = at_.work.pixels[half];
    for (phase[1] = 0; phase[1] < shape.axis[1].phases; ++phase[1]) {
      for (phase[0] = 0; phase[0] < shape.axis[0].phases; ++phase[0]) {
        const AmxTap origin = origin_of(first, half, phase);
        const Range whole = columns_with(origin[2], w.taps);
        for_lines(
            origin, half, [&](std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t line) {
              for (std::int64_t q = 0; q < columns; ++q) {
                if (q == whole.begin && whole.size() > 0) q = whole.end;
                if (q >= columns) break;
                const std::int64_t from = origin[2] + q * w.stride;
                const Range in = intersect({from, from + w.taps}, at_.input[2]);
                if (in.size() <= 0) continue;
                pixels[line * columns + q] = edge;
                edge = copy_edge({from, from + w.taps}, in,
                                 data + x_offset(at_.block, n, d, h, in.begin) * at_.value_bytes,
                                 edge);
              }
            });
        pixels += shape.phase_pairs();
      }
    }
    return edge;
  }

 private:
  // Copies x at positions `seen`, of which it has `in` from data on; returns the copy's end.
  std::byte* copy_edge(Range seen, Range in, const std::byte* data, std::byte* edge) const {
    const std::int64_t pixel = at_.pb.C * at_.value_bytes;
    edge = std::fill_n(edge, (in.begin - seen.begin) * pixel, std::byte{0});
    edge = std::copy_n(data, in.size() * pixel, edge);
    return std::fill_n(edge, (seen.end - in.end) * pixel, std::byte{0});
  }

  // Returns the position in x of a phase's first pixel.
  AmxTap origin_of(const AmxTap& first, std::size_t half, const AmxTap& phase) const {
    AmxTap origin;
    for (std::size_t a = 0; a < 3; ++a) {
      const SpatialAxis& axis = at_.pb.axis[a];
      origin[a] = input_position(axis, at_.half[half][a + 1].begin, first[a]) +
                  phase[a] * axis.dilation % axis.stride;
    }
    return origin;
  }

  // Returns the columns of a line that begins at `origin` whose `width` positions are all in x.
  Range columns_with(std::int64_t origin, std::int64_t width) const {
    const std::int64_t columns = at_.shape.axis[2].lines, stride = at_.pb.axis[2].stride;
    const auto columns_until = [&](std::int64_t position) {
      return std::min(columns, ceil_div(std::max<std::int64_t>(position - origin, 0), stride));
    };
    const Range w = at_.input[2];
    return {columns_until(w.begin), columns_until(w.end - width + 1)};
  }

  // Calls visit(n, d, h, index) for the lines of one phase that are in x. Positions that no tap
  // sees may lie outside of x, or of what the block has of it.
  template <typename Visit>
  void for_lines(const AmxTap& origin, std::size_t half, Visit&& visit) const {
    std::int64_t index = 0;
    const Range images = at_.half[half][0];
    for (std::int64_t n = images.begin; n < images.end; ++n) {
      for (std::int64_t depth = 0; depth < at_.shape.axis[0].lines; ++depth) {
        const std::int64_t d = origin[0] + depth * at_.pb.axis[0].stride;
        for (std::int64_t line = 0; line < at_.shape.axis[1].lines; ++line, ++index) {
          const std::int64_t h = origin[1] + line * at_.pb.axis[1].stride;
          if (contains(at_.input[0], d) && contains(at_.input[1], h)) visit(n, d, h, index);
        }
      }
    }
  }

  // Lists all images, depths, lines and columns of one phase. A stride of 2 has two phases of each
  // axis: what even taps see is dense, and what odd ones do.
  void list_phase(const AmxTap& origin, std::size_t half, std::int64_t width,
                  AmxPieces& pieces) const {
    const std::int64_t columns = at_.shape.axis[2].lines, stride = at_.pb.axis[2].stride;
    const Range seen = columns_with(origin[2], width);
    const std::int64_t first = pieces.position();
    for_lines(origin, half, [&](std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t line) {
      if (seen.size() <= 0) return;
      pieces.zeros_until(first + line * columns + seen.begin);
      pieces.pixels(seen.size(), x_offset(at_.block, n, d, h, origin[2] + seen.begin * stride));
    });
    pieces.zeros_until(first + at_.shape.phase_pairs());
  }

  const AmxContext& at_;
};

}  // namespace convgrad
