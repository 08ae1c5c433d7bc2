// amx_packer.hpp - x and dy of a chunk, packed for AMX.
//
// Where channels are side by side, vectors of them go from the file to the panel at once, found by
// a list of addresses. Where they are apart, 16 channels are first copied to rows of pixels in the
// order of the panel, which are whole pieces of memory, and turned round from there.
#pragma once

#include "cpu/amx/amx_context.hpp"
#include "cpu/amx/amx_x_pixels.hpp"

namespace convgrad {

class AmxPacker {
 public:
  AmxPacker(const AmxVectors& vectors, const AmxPacking& packing, const AmxContext& context)
      : vectors_(vectors), packing_(packing), at_(context), x_pixels_(context) {}

  // All channels of a pixel are a few cache lines in the file, so that pixels are outside of
  // channels in the vector functions; a tile's 32 pixels x 16 channels fit the registers (16
  // vectors).
  void pack_dy() {
    const AmxShape& shape = at_.shape;
    const AmxWorkspace& work = at_.work;
    const Strides& strides = at_.block.dy_strides;
    const AmxPieces pieces = list_dy();
    const std::byte* data = value(at_.block.dy, at_.tile.k.begin * strides.c);
    const std::int64_t channels = at_.tile.k.size();
    if (strides.c == 1) {
      list_pixels(data, pieces);
      put_pixels(!shape.turned, channels, shape.dy_pixels, work.dy, work.dy_term);
    } else {
      for (std::int64_t k = 0; k < channels; k += kAmxChannels) {
        const std::int64_t count = std::min(kAmxChannels, channels - k);
        copy_rows(value(data, k * strides.c), strides.c, pieces, count, work.rows);
        zero_rows(count, kAmxChannels, shape.dy_pixels);
        put_rows(!shape.turned, work.rows, shape.dy_pixels, work.dy + k * shape.dy_pixels,
                 work.dy_term);
      }
    }
  }

  // For the taps that one packing serves, from `first` on.
  void pack_x(const AmxTap& first) {
    const std::int64_t stride = at_.block.x_strides.c;
    const std::byte* data = value(at_.block.x, at_.first_channel * stride);
    if (stride == 1) {
      const bool wide = at_.plan.sharing.wide;
      list_pixels(data, x_pixels_.list(first, wide ? at_.pb.axis[2].taps : 1));
      if (wide) x_pixels_.list_edges(data, first);
      put_pixels(at_.shape.turned, at_.channels, at_.shape.pixels, at_.work.x, at_.work.x_term,
                 at_.shape.odd ? at_.odd_panel() : 0);
      return;
    }
    if (at_.plan.sharing.wide) {
      pack_wide_rows(data, first);
    } else {
      const AmxPieces pieces = x_pixels_.list(first, 1);
      for (std::int64_t c = 0; c < at_.channels; c += kAmxChannels) {
        const std::int64_t count = std::min(kAmxChannels, at_.channels - c);
        copy_rows(value(data, c * stride), stride, pieces, count, at_.work.rows);
        zero_rows(count, kAmxChannels, at_.shape.pixels);
        put_x_rows(at_.work.rows, c);
      }
    }
    if (at_.shape.odd) put_odd_x();
  }

 private:
  AmxPieces list_dy() const {
    const AmxShape& shape = at_.shape;
    AmxPieces pieces;
    pieces.start(at_.work.pieces, at_.block.dy_strides.spatial[2]);
    for_each_row(at_.box, [&](std::int64_t n, std::int64_t z, std::int64_t p) {
      const std::int64_t line = p - at_.box[2].begin;
      pieces.zeros_until(shape.dy_start(n - at_.box[0].begin, z - at_.box[1].begin) +
                         line * shape.axis[2].lines);
      pieces.pixels(shape.extent[3], dy_offset(at_.block, n, z, p, at_.box[3].begin));
    });
    pieces.zeros_until(shape.dy_pixels);
    return pieces;
  }

  const std::byte* value(const void* data, std::int64_t index) const {
    return static_cast<const std::byte*>(data) + index * packing_.bytes;
  }
  std::byte* row(std::int64_t channel) const {
    return at_.work.rows + channel * at_.work.row * packing_.bytes;
  }

  // The listed pixels, or 16 channels of rows, as tiles or as pairs.
  void put_pixels(bool tiles, std::int64_t channels, std::int64_t pixels, AmxBits* panel,
                  std::int64_t term, std::int64_t odd = 0) {
    const std::int64_t block = pixels * kAmxChannels;
    const void* const* listed = at_.work.pixels;
    if (tiles) return packing_.tiles_from_pixels(listed, pixels, channels, panel, block, term);
    packing_.pairs_from_pixels(listed, pixels, channels, panel, block, term, odd);
  }
  void put_rows(bool tiles, const std::byte* rows, std::int64_t pixels, AmxBits* panel,
                std::int64_t term) {
    const auto put = tiles ? packing_.tiles_from_rows : packing_.pairs_from_rows;
    put(rows, at_.work.row, pixels, panel, term);
  }

  // Addresses, not offsets: padding is one more address, where there are zeros.
  void list_pixels(const std::byte* data, const AmxPieces& pieces) {
    alignas(64) static constexpr float kZeros[512] = {};  // as many as channels of a panel
    const void** out = at_.work.pixels;
    for (std::int64_t i = 0; i < pieces.count(); ++i) {
      const AmxPiece& piece = pieces.data()[i];
      const void* from = kZeros;
      if (piece.source >= 0) from = value(data, piece.source);
      const std::int64_t step = piece.source < 0 ? 0 : pieces.stride();
      for (std::int64_t j = 0; j < piece.count; ++j) out[j] = value(from, j * step);
      out += piece.count;
    }
  }

  void copy_rows(const std::byte* data, std::int64_t channel_stride, const AmxPieces& pieces,
                 std::int64_t channels, std::byte* rows) {
    packing_.rows_from_channels(data, channel_stride, pieces.stride(), pieces.data(),
                                pieces.count(), channels, rows, at_.work.row);
  }
  // Channels that a square of 16 has, and x or dy has not: what is left there may be NaN.
  void zero_rows(std::int64_t begin, std::int64_t end, std::int64_t pixels) {
    for (std::int64_t c = begin; c < end; ++c) {
      std::fill_n(row(c), pixels * packing_.bytes, std::byte{0});
    }
  }

  // The channels of each tap of a filter row, one after the other, as if they were channels of one
  // pixel: then few channels fill the 16 of a tile (7x7 taps of 3 channels: 7 times 21, not 49
  // times 3).
  void pack_wide_rows(const std::byte* data, const AmxTap& first) {
    const std::int64_t tap_channels = at_.tile.c.size();
    AmxTap tap = first;
    for (tap[2] = 0; tap[2] < at_.pb.axis[2].taps; ++tap[2]) {
      copy_rows(data, at_.block.x_strides.c, x_pixels_.list(tap, 1), tap_channels,
                row(tap[2] * tap_channels));
    }
    zero_rows(at_.channels, round_up(at_.channels, kAmxChannels), at_.shape.pixels);
    for (std::int64_t c = 0; c < at_.channels; c += kAmxChannels) {
      put_x_rows(row(c), c);
    }
  }

  void put_x_rows(const std::byte* rows, std::int64_t c) {
    const std::int64_t pixels = at_.shape.pixels;
    put_rows(at_.shape.turned, rows, pixels, at_.work.x + c * pixels, at_.work.x_term);
  }

  // An instruction multiplies pairs of pixels. A run that begins with an odd pixel has its partners
  // in other pairs, so x is there twice; dy's runs all begin with a tile.
  void put_odd_x() {
    const std::int64_t count = at_.odd_panel();
    for (std::int64_t t = 0; t < at_.plan.terms; ++t) {
      AmxBits* const even = at_.work.x + t * at_.work.x_term;
      vectors_.odd_pairs(even, count, even + count);
    }
  }

  const AmxVectors& vectors_;
  const AmxPacking& packing_;
  const AmxContext& at_;
  const AmxXPixels x_pixels_;
};

}  // namespace convgrad
