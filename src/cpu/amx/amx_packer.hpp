// amx_packer.hpp - packs x and dy of a chunk for AMX.
//
// Where channels are side by side, vectors of them go from the file to the panel at once, found by
// a list of addresses. Where they are apart, 16 channels are first copied to rows of pixels in the
// order of the panel, which are whole pieces of memory, and turned round from there.
#pragma once

#include "cpu/amx/amx_workspace.hpp"
#include "cpu/amx/amx_x_pixels.hpp"

namespace convgrad {

inline constexpr std::size_t kHalves[] = {0, 1};  // of a chunk: one pixel of each makes a pair

class AmxPacker {
 public:
  AmxPacker(const AmxPacking& packing, const AmxContext& context)
      : packing_(packing), at_(context), x_pixels_(context) {}

  // All channels of a pixel are a few cache lines in the file, so that pixels are outside of
  // channels in the vector functions; a tile's 16 pairs x 16 channels fit the registers (16
  // vectors). Extends the range of exponents by those of dy.
  void pack_dy(ExponentRange& range) {
    const AmxShape& shape = at_.shape;
    const AmxWorkspace& work = at_.work;
    const Strides& strides = at_.block.dy_strides;
    const std::byte* data = value(at_.block.dy, at_.tile.k.begin * strides.c);
    const std::int64_t channels = at_.tile.k.size();
    if (strides.c == 1) {
      for (const std::size_t half : kHalves) list_pixels(data, list_dy(half), half);
      put_pixels(!shape.turned, channels, shape.dy_pairs, work.dy, work.dy_term, range);
      return;
    }
    for (std::int64_t k = 0; k < channels; k += kAmxChannels) {
      const std::int64_t count = std::min(kAmxChannels, channels - k);
      for (const std::size_t half : kHalves) {
        copy_rows(value(data, k * strides.c), strides.c, list_dy(half), count, 0, half,
                  shape.dy_pairs);
      }
      zero_rows(count, kAmxChannels, shape.dy_pairs);
      put_rows(!shape.turned, 0, shape.dy_pairs, work.dy + 2 * k * shape.dy_pairs, work.dy_term,
               range);
    }
  }

  // Packs x for the taps that one packing serves, from `first` on.
  void pack_x(const AmxTap& first, ExponentRange& range) {
    const AmxShape& shape = at_.shape;
    const std::int64_t stride = at_.block.x_strides.c;
    const std::byte* data = value(at_.block.x, at_.first_channel * stride);
    const bool wide = at_.shape.sharing.wide;
    if (stride == 1) {
      std::byte* edges = at_.work.edges;
      for (const std::size_t half : kHalves) {
        list_pixels(data, x_pixels_.list(first, half, wide ? at_.pb.axis[2].taps : 1), half);
        if (wide) edges = x_pixels_.list_edges(data, first, half, edges);
      }
      put_pixels(shape.turned, at_.channels, shape.x_pairs, at_.work.x, at_.work.x_term, range);
    } else if (wide) {
      pack_wide_rows(data, first, range);
    } else {
      for (std::int64_t c = 0; c < at_.channels; c += kAmxChannels) {
        const std::int64_t count = std::min(kAmxChannels, at_.channels - c);
        for (const std::size_t half : kHalves) {
          copy_rows(value(data, c * stride), stride, x_pixels_.list(first, half, 1), count, 0, half,
                    shape.x_pairs);
        }
        zero_rows(count, kAmxChannels, shape.x_pairs);
        put_x_rows(0, c, range);
      }
    }
  }

 private:
  AmxPieces list_dy(std::size_t half) const {
    const AmxShape& shape = at_.shape;
    const PixelBox& box = at_.half[half];
    AmxPieces pieces(at_.work.pieces, at_.block.dy_strides.spatial[2]);
    for_each_row(box, [&](std::int64_t n, std::int64_t z, std::int64_t p) {
      const std::int64_t line = p - box[2].begin;
      pieces.zeros_until(shape.dy_start(n - box[0].begin, z - box[1].begin) +
                         line * shape.axis[2].lines);
      pieces.pixels(box[3].size(), dy_offset(at_.block, n, z, p, box[3].begin));
    });
    pieces.zeros_until(shape.dy_pairs);
    return pieces;
  }

  const std::byte* value(const void* data, std::int64_t index) const {
    return static_cast<const std::byte*>(data) + index * packing_.bytes;
  }
  std::byte* row(std::int64_t channel) const {
    return at_.work.rows + channel * at_.work.row * packing_.bytes;
  }

  // Puts the listed pixels, or 16 channels of rows from `channel` on, in tiles or pairs.
  void put_pixels(bool tiles, std::int64_t channels, std::int64_t pairs, AmxBits* panel,
                  std::int64_t term, ExponentRange& range) {
    const auto put = tiles ? packing_.tiles_from_pixels : packing_.pairs_from_pixels;
    put(at_.work.pixels[0], at_.work.pixels[1], pairs, channels, panel, pairs * kAmxRow, term,
        range);
  }
  void put_rows(bool tiles, std::int64_t channel, std::int64_t pairs, AmxBits* panel,
                std::int64_t term, ExponentRange& range) {
    const auto put = tiles ? packing_.tiles_from_rows : packing_.pairs_from_rows;
    put(row(channel), at_.work.row, pairs, panel, term, range);
  }
  void put_x_rows(std::int64_t row_channel, std::int64_t c, ExponentRange& range) {
    put_rows(at_.shape.turned, row_channel, at_.shape.x_pairs,
             at_.work.x + 2 * c * at_.shape.x_pairs, at_.work.x_term, range);
  }

  // Lists addresses, not offsets: padding is one more address, where there are zeros.
  void list_pixels(const std::byte* data, const AmxPieces& pieces, std::size_t half) {
    alignas(64) static constexpr float kZeros[512] = {};  // as many as channels of a panel
    const void** out = at_.work.pixels[half];
    for (std::int64_t i = 0; i < pieces.count(); ++i) {
      const AmxPiece& piece = pieces.data()[i];
      const void* from = kZeros;
      if (piece.source >= 0) from = value(data, piece.source);
      const std::int64_t step = piece.source < 0 ? 0 : pieces.stride();
      for (std::int64_t j = 0; j < piece.count; ++j) out[j] = value(from, j * step);
      out += piece.count;
    }
  }

  // Copies the second half behind the first, which has `pairs` pixels.
  void copy_rows(const std::byte* data, std::int64_t channel_stride, const AmxPieces& pieces,
                 std::int64_t channels, std::int64_t first_row, std::size_t half,
                 std::int64_t pairs) {
    std::byte* const rows = row(first_row) + (half == 0 ? 0 : pairs * packing_.bytes);
    packing_.rows_from_channels(data, channel_stride, pieces.stride(), pieces.data(),
                                pieces.count(), channels, rows, at_.work.row);
  }
  // Zeroes channels that a square of 16 has, and x or dy has not: what is left there may be NaN.
  void zero_rows(std::int64_t begin, std::int64_t end, std::int64_t pairs) {
    for (std::int64_t c = begin; c < end; ++c) {
      std::fill_n(row(c), 2 * pairs * packing_.bytes, std::byte{0});
    }
  }

  // Packs the channels of each tap of a filter row, one after the other, as if they were channels
  // of one pixel: few then fill the 16 of a tile (7x7 taps of 3 channels: 7 times 21, not 49 of 3).
  void pack_wide_rows(const std::byte* data, const AmxTap& first, ExponentRange& range) {
    const std::int64_t tap_channels = at_.tile.c.size(), pairs = at_.shape.x_pairs;
    AmxTap tap = first;
    for (tap[2] = 0; tap[2] < at_.pb.axis[2].taps; ++tap[2]) {
      for (const std::size_t half : kHalves) {
        copy_rows(data, at_.block.x_strides.c, x_pixels_.list(tap, half, 1), tap_channels,
                  tap[2] * tap_channels, half, pairs);
      }
    }
    zero_rows(at_.channels, round_up(at_.channels, kAmxChannels), pairs);
    for (std::int64_t c = 0; c < at_.channels; c += kAmxChannels) put_x_rows(c, c, range);
  }

  const AmxPacking& packing_;
  const AmxContext& at_;
  const AmxXPixels x_pixels_;
};

}  // namespace convgrad
