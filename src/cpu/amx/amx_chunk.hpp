// amx_chunk.hpp - the chunks of one tile of a gradient, packed for AMX and multiplied.
#pragma once

#include "cpu/amx/amx_workspace.hpp"
#include "cpu/shared/exponent_range.hpp"
#include "cpu/shared/pack.hpp"

namespace convgrad {

class AmxChunks {
 public:
  AmxChunks(const AmxTiles& tiles, const AmxVectors& vectors, const WgradProblem& problem,
            const Block& block, const Tile& tile, std::byte* workspace)
      : tiles_(tiles),
        vectors_(vectors),
        pb_(problem),
        block_(block),
        tile_(tile),
        plan_(amx_plan(problem, tiles.f16_terms)),
        work_(amx_workspace(problem, plan_, workspace)),
        terms_(static_cast<int>(plan_.terms)),
        first_channel_(tile.k.begin / problem.group_k() * problem.group_c() + tile.c.begin) {
    tiles_.begin();
  }
  ~AmxChunks() { tiles_.end(); }
  AmxChunks(const AmxChunks&) = delete;
  AmxChunks& operator=(const AmxChunks&) = delete;

  // False if the chunk must be left to plain multiply-adds: zeros of one panel meet whatever is in
  // the other one (0 * Inf must not be added), and numbers may be too small for the instruction.
  // What the next chunk reads is not fetched meanwhile, as outer_product does: loads of tiles would
  // wait behind it.
  bool add_chunk(const PixelBox& box, const PixelBox* /*next*/, double* partial) {
    box_ = box;
    input_ = input_box(pb_, box);
    if (!in_range()) return false;
    shape_ =
        amx_shape(pb_, plan_.sharing, {box[0].size(), box[1].size(), box[2].size(), box[3].size()});
    pack_dy();
    const std::array<std::int64_t, 3> step = served();
    std::array<std::int64_t, 3> first;
    for (first[0] = 0; first[0] < pb_.axis[0].taps; first[0] += step[0]) {
      for (first[1] = 0; first[1] < pb_.axis[1].taps; first[1] += step[1]) {
        for (first[2] = 0; first[2] < pb_.axis[2].taps; first[2] += step[2]) {
          if (!sees_x(first)) continue;
          pack_x(first);
          add_taps(first, step, partial);
        }
      }
    }
    return true;
  }

 private:
  bool in_range() const {
    const Range c = {first_channel_, first_channel_ + tile_.c.size()};
    const bool half = pb_.dtype == DType::f16;
    const auto extend = half ? vectors_.exponent_range_f16 : vectors_.exponent_range_bf16;
    const ExponentRange x = exponent_range_of(x_region(pb_, block_, box_, c), extend);
    const ExponentRange dy = exponent_range_of(dy_region(pb_, block_, box_, tile_.k), extend);
    // A float16, and each of its two terms, is 0 or at least 2^-24.
    return half ? x.most < 31 && dy.most < 31 : bf16_products_in_range(x, dy);
  }

  // Taps that one packing of x serves, along each axis.
  std::array<std::int64_t, 3> served() const {
    const AmxSharing& sharing = plan_.sharing;
    std::array<std::int64_t, 3> taps;
    for (std::size_t a = 0; a < 3; ++a) taps[a] = sharing.taps[a] ? pb_.axis[a].taps : 1;
    if (sharing.wide) taps[2] = pb_.axis[2].taps;
    return taps;
  }

  // The outputs of an axis of the chunk that see x with a tap.
  Range outputs_of(std::size_t axis, std::int64_t tap) const {
    return intersect(outputs_inside(pb_.axis[axis], tap), box_[axis + 1]);
  }
  // Whether the one tap of each axis whose taps do not share a panel sees x from somewhere.
  bool sees_x(const std::array<std::int64_t, 3>& first) const {
    const std::array<std::int64_t, 3> taps = served();
    for (std::size_t a = 0; a < 3; ++a) {
      if (taps[a] == 1 && outputs_of(a, first[a]).size() <= 0) return false;
    }
    return true;
  }

  void pack_dy() {
    const Strides& strides = block_.dy_strides;
    AmxPieces pieces;
    pieces.start(work_.pieces, strides.spatial[2]);
    for (std::int64_t n = 0; n < shape_.extent[0]; ++n) {
      for (std::int64_t z = 0; z < shape_.extent[1]; ++z) {
        for (std::int64_t p = 0; p < shape_.extent[2]; ++p) {
          pieces.zeros_until(shape_.dy_start(n, z) + p * shape_.axis[2].lines);
          pieces.pixels(shape_.extent[3], dy_offset(block_, box_[0].begin + n, box_[1].begin + z,
                                                    box_[2].begin + p, box_[3].begin));
        }
      }
    }
    pieces.zeros_until(shape_.dy_pixels);
    const AmxBits* data = static_cast<const AmxBits*>(block_.dy) + tile_.k.begin * strides.c;
    const std::int64_t channels = tile_.k.size();
    if (strides.c == 1) {
      list_pixels(data, pieces);
      put_pixels(!shape_.turned, channels, shape_.dy_pixels, work_.dy);
    } else {
      for (std::int64_t k = 0; k < channels; k += kAmxChannels) {
        const std::int64_t count = std::min(kAmxChannels, channels - k);
        vectors_.rows_from_channels(data + k * strides.c, strides.c, pieces.stride(), pieces.data(),
                                    pieces.count(), count, work_.rows, work_.row);
        zero_rows(count, kAmxChannels, shape_.dy_pixels);
        put_rows(!shape_.turned, work_.rows, shape_.dy_pixels, work_.dy + k * shape_.dy_pixels);
      }
    }
    if (terms_ == 2) {
      vectors_.split(work_.dy, round_up(channels, kAmxChannels) * shape_.dy_pixels,
                     work_.dy + work_.dy_term);
    }
  }

  // The listed pixels, or 16 channels of rows, as tiles or as pairs.
  void put_pixels(bool tiles, std::int64_t channels, std::int64_t pixels, AmxBits* panel) {
    const auto put = tiles ? vectors_.tiles_from_pixels : vectors_.pairs_from_pixels;
    put(work_.pixels, pixels, channels, panel, pixels * kAmxChannels);
  }
  void put_rows(bool tiles, const AmxBits* rows, std::int64_t pixels, AmxBits* panel) {
    const auto put = tiles ? vectors_.tiles_from_rows : vectors_.pairs_from_rows;
    put(rows, work_.row, pixels, panel);
  }

  void list_pixels(const AmxBits* data, const AmxPieces& pieces) {
    alignas(64) static constexpr AmxBits kZeros[512] = {};  // as many as channels of a panel
    const AmxBits** out = work_.pixels;
    for (std::int64_t i = 0; i < pieces.count(); ++i) {
      const AmxPiece& piece = pieces.data()[i];
      const AmxBits* from = piece.source < 0 ? kZeros : data + piece.source;
      const std::int64_t step = piece.source < 0 ? 0 : pieces.stride();
      for (std::int64_t j = 0; j < piece.count; ++j) out[j] = from + j * step;
      out += piece.count;
    }
  }

  void zero_rows(std::int64_t begin, std::int64_t end, std::int64_t pixels) {
    for (std::int64_t c = begin; c < end; ++c) {
      std::fill_n(work_.rows + c * work_.row, pixels, AmxBits{0});
    }
  }

  void pack_x(const std::array<std::int64_t, 3>& first) {
    const Strides& strides = block_.x_strides;
    const AmxBits* data = static_cast<const AmxBits*>(block_.x) + first_channel_ * strides.c;
    const std::int64_t channels = amx_channels(pb_, plan_.sharing, tile_.c.size());
    if (strides.c == 1) {
      AmxPieces pieces = list_x(first, plan_.sharing.wide ? pb_.axis[2].taps : 1);
      list_pixels(data, pieces);
      if (plan_.sharing.wide) list_edges(data, first);
      put_x_pixels(channels);
    } else if (plan_.sharing.wide) {
      std::array<std::int64_t, 3> tap = first;
      for (tap[2] = 0; tap[2] < pb_.axis[2].taps; ++tap[2]) {
        rows_of(data, tap, tile_.c.size(), work_.rows + tap[2] * tile_.c.size() * work_.row);
      }
      zero_rows(channels, round_up(channels, kAmxChannels), shape_.pixels + kAmxPixels);
      for (std::int64_t c = 0; c < channels; c += kAmxChannels) {
        put_x_rows(work_.rows + c * work_.row, c);
      }
    } else {
      for (std::int64_t c = 0; c < channels; c += kAmxChannels) {
        const std::int64_t count = std::min(kAmxChannels, channels - c);
        rows_of(data + c * strides.c, first, count, work_.rows);
        zero_rows(count, kAmxChannels, shape_.pixels + kAmxPixels);
        put_x_rows(work_.rows, c);
      }
    }
    if (terms_ == 2) {
      const std::int64_t panels = shape_.odd ? 2 : 1;
      vectors_.split(work_.x, panels * round_up(channels, kAmxChannels) * shape_.pixels,
                     work_.x + work_.x_term);
    }
  }

  std::int64_t odd_panel(std::int64_t channels) const {
    return round_up(channels, kAmxChannels) * shape_.pixels;
  }
  void put_x_pixels(std::int64_t channels) {
    put_pixels(shape_.turned, channels, shape_.pixels, work_.x);
    if (!shape_.odd) return;
    vectors_.pairs_from_pixels(work_.pixels + 1, shape_.pixels, channels,
                               work_.x + odd_panel(channels), shape_.pixels * kAmxChannels);
  }
  void put_x_rows(const AmxBits* rows, std::int64_t c) {
    AmxBits* out = work_.x + c * shape_.pixels;
    put_rows(shape_.turned, rows, shape_.pixels, out);
    if (!shape_.odd) return;
    const std::int64_t channels = amx_channels(pb_, plan_.sharing, tile_.c.size());
    vectors_.pairs_from_rows(rows + 1, work_.row, shape_.pixels, out + odd_panel(channels));
  }
  void rows_of(const AmxBits* data, const std::array<std::int64_t, 3>& first, std::int64_t channels,
               AmxBits* rows) {
    const AmxPieces pieces = list_x(first, 1);
    vectors_.rows_from_channels(data, block_.x_strides.c, pieces.stride(), pieces.data(),
                                pieces.count(), channels, rows, work_.row);
  }

  // The panel's pixels from what tap `first` sees on; `width` neighbours in x make one.
  AmxPieces list_x(const std::array<std::int64_t, 3>& first, std::int64_t width) const {
    AmxPieces pieces;
    pieces.start(work_.pieces, block_.x_strides.spatial[2] * pb_.axis[2].stride);
    std::array<std::int64_t, 3> phase;
    for (phase[1] = 0; phase[1] < shape_.axis[1].phases; ++phase[1]) {
      for (phase[2] = 0; phase[2] < shape_.axis[2].phases; ++phase[2]) {
        for (phase[0] = 0; phase[0] < shape_.axis[0].phases; ++phase[0]) {
          list_phase(origin_of(first, phase), width, pieces);
        }
      }
    }
    pieces.zeros_until(shape_.pixels + kAmxPixels);
    return pieces;
  }

  // The position in x of a phase's first pixel.
  std::array<std::int64_t, 3> origin_of(const std::array<std::int64_t, 3>& first,
                                        const std::array<std::int64_t, 3>& phase) const {
    std::array<std::int64_t, 3> origin;
    for (std::size_t a = 0; a < 3; ++a) {
      origin[a] = input_position(pb_.axis[a], box_[a + 1].begin, first[a]) +
                  phase[a] * pb_.axis[a].dilation % pb_.axis[a].stride;
    }
    return origin;
  }

  // Columns of a line, the first of which begins at `origin`, with all of [begin, end) in x.
  Range columns_with(std::int64_t origin, std::int64_t begin, std::int64_t end) const {
    const std::int64_t columns = shape_.axis[2].lines, stride = pb_.axis[2].stride;
    const Range w = input_[2];
    const std::int64_t before =
        ceil_div(std::max<std::int64_t>(w.begin - origin - begin, 0), stride);
    const std::int64_t inside =
        ceil_div(std::max<std::int64_t>(w.end - origin - end + 1, 0), stride);
    return {std::min(before, columns), std::min(inside, columns)};
  }

  // Calls visit(n, d, h, index) for the lines of one phase that are in x, or visit(..., -1) with
  // nothing to see. Positions that no tap sees may lie outside of x, or of what the block has of
  // it.
  template <typename Visit>
  void for_lines(const std::array<std::int64_t, 3>& origin, Visit&& visit) const {
    std::int64_t index = 0;
    for (std::int64_t n = box_[0].begin; n < box_[0].end; ++n) {
      for (std::int64_t depth = 0; depth < shape_.axis[0].lines; ++depth) {
        const std::int64_t d = origin[0] + depth * pb_.axis[0].stride;
        for (std::int64_t line = 0; line < shape_.axis[1].lines; ++line, ++index) {
          const std::int64_t h = origin[1] + line * pb_.axis[1].stride;
          if (contains(input_[0], d) && contains(input_[1], h)) visit(n, d, h, index);
        }
      }
    }
  }

  // All images, depths, lines and columns of one phase.
  void list_phase(const std::array<std::int64_t, 3>& origin, std::int64_t width,
                  AmxPieces& pieces) const {
    const std::int64_t columns = shape_.axis[2].lines, stride = pb_.axis[2].stride;
    const Range seen = columns_with(origin[2], 0, width);
    const std::int64_t first = pieces.position();
    for_lines(origin, [&](std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t line) {
      if (seen.size() <= 0) return;
      pieces.zeros_until(first + line * columns + seen.begin);
      pieces.pixels(seen.size(), x_offset(block_, n, d, h, origin[2] + seen.begin * stride));
    });
    pieces.zeros_until(first + shape_.extent[0] * shape_.axis[0].lines * shape_.sheet);
  }

  // Pixels of a wide panel that are partly outside x, put together with zeros.
  void list_edges(const AmxBits* data, const std::array<std::int64_t, 3>& first) {
    const SpatialAxis& w = pb_.axis[2];
    const std::int64_t columns = shape_.axis[2].lines, c = pb_.C, phases = shape_.axis[1].phases;
    AmxBits* edge = work_.edges;
    std::array<std::int64_t, 3> phase = {};
    std::int64_t start = 0;  // of the phase
    for (phase[1] = 0; phase[1] < phases; ++phase[1]) {
      for (phase[0] = 0; phase[0] < shape_.axis[0].phases; ++phase[0]) {
        const std::array<std::int64_t, 3> origin = origin_of(first, phase);
        const Range whole = columns_with(origin[2], 0, w.taps);
        for_lines(origin, [&](std::int64_t n, std::int64_t d, std::int64_t h, std::int64_t line) {
          for (std::int64_t q = 0; q < columns; ++q) {
            if (q == whole.begin && whole.size() > 0) q = whole.end;
            if (q >= columns) break;
            const std::int64_t from = origin[2] + q * w.stride;
            const Range in = intersect({from, from + w.taps}, input_[2]);
            if (in.size() <= 0) continue;
            AmxBits* values = std::fill_n(edge, (in.begin - from) * c, AmxBits{0});
            values = std::copy_n(data + x_offset(block_, n, d, h, in.begin), in.size() * c, values);
            std::fill_n(values, (from + w.taps - in.end) * c, AmxBits{0});
            work_.pixels[start + line * columns + q] = edge;
            edge += w.taps * c;
          }
        });
        start += shape_.extent[0] * shape_.axis[0].lines * shape_.sheet;
      }
    }
  }
  static bool contains(Range range, std::int64_t position) {
    return position >= range.begin && position < range.end;
  }

  void add_taps(const std::array<std::int64_t, 3>& first, const std::array<std::int64_t, 3>& step,
                double* partial) {
    std::array<std::int64_t, 3> tap;
    const std::int64_t columns = plan_.sharing.wide ? 1 : step[2];
    for (tap[0] = 0; tap[0] < step[0]; ++tap[0]) {
      for (tap[1] = 0; tap[1] < step[1]; ++tap[1]) {
        for (tap[2] = 0; tap[2] < columns; ++tap[2]) {
          list_runs(first, tap);
          if (run_count_ == 0) continue;
          const std::int64_t index =
              ((first[0] + tap[0]) * pb_.axis[1].taps + first[1] + tap[1]) * pb_.axis[2].taps +
              first[2] + tap[2];
          add_blocks(partial + (index * pb_.group_c() + tile_.c.begin) * pb_.K + tile_.k.begin);
        }
      }
    }
  }

  // The runs whose outputs see x with a tap. Rows that do not see it are left out at both ends.
  void list_runs(const std::array<std::int64_t, 3>& first, const std::array<std::int64_t, 3>& tap) {
    run_count_ = 0;
    const Range z = outputs_of(0, first[0] + tap[0]), p = outputs_of(1, first[1] + tap[1]);
    if (z.size() <= 0 || p.size() <= 0) return;
    if (!plan_.sharing.wide && outputs_of(2, first[2] + tap[2]).size() <= 0) return;
    if (shape_.joined) {
      add_run(shape_.x_start(pb_, 0, 0, tap), 0, shape_.pitch);
      return;
    }
    const std::int64_t columns = shape_.axis[2].lines, top = box_[2].begin;
    const std::int64_t begin = (p.begin - top) * columns / kAmxPixels * kAmxPixels;
    const std::int64_t end = (p.end - 1 - top) * columns + shape_.extent[3];
    for (std::int64_t n = 0; n < shape_.extent[0]; ++n) {
      for (std::int64_t i = z.begin - box_[1].begin; i < z.end - box_[1].begin; ++i) {
        add_run(shape_.x_start(pb_, n, i, tap) + begin, shape_.dy_start(n, i) + begin, end - begin);
      }
    }
  }
  void add_run(std::int64_t x, std::int64_t dy, std::int64_t pixels) {
    const std::int64_t channels = amx_channels(pb_, plan_.sharing, tile_.c.size());
    const std::int64_t odd = x % 2 != 0 ? odd_panel(channels) : 0;
    runs_[run_count_++] = {dy * kAmxChannels, odd + x / 2 * 2 * kAmxChannels,
                           ceil_div(pixels, kAmxPixels)};
  }

  // The listed runs, for a tap's part of the tile.
  void add_blocks(double* cells) {
    const std::int64_t channels = amx_channels(pb_, plan_.sharing, tile_.c.size());
    for (std::int64_t c = 0; c < channels; c += kAmxBlock) {
      const std::int64_t c_count = std::min(kAmxBlock, channels - c);
      for (std::int64_t k = 0; k < tile_.k.size(); k += kAmxBlock) {
        const std::int64_t k_count = std::min(kAmxBlock, tile_.k.size() - k);
        const AmxPanels panels = panels_of(c, k);
        const int c_tiles = c_count > kAmxChannels ? 2 : 1,
                  k_tiles = k_count > kAmxChannels ? 2 : 1;
        tiles_.multiply(shape_.turned ? c_tiles : k_tiles, shape_.turned ? k_tiles : c_tiles,
                        panels, runs_, run_count_, sums_);
        vectors_.add_sums(sums_, shape_.turned, c_count, k_count, cells + c * pb_.K + k, pb_.K);
      }
    }
  }

  AmxPanels panels_of(std::int64_t c, std::int64_t k) const {
    const AmxBits* const dy = work_.dy + k * shape_.dy_pixels;
    const AmxBits* const x = work_.x + c * shape_.pixels;
    const std::int64_t dy_block = shape_.dy_pixels * kAmxChannels;
    const std::int64_t x_block = shape_.pixels * kAmxChannels;
    if (shape_.turned) return {x, dy, x_block, dy_block, work_.x_term, work_.dy_term, terms_};
    return {dy, x, dy_block, x_block, work_.dy_term, work_.x_term, terms_};
  }

  const AmxTiles& tiles_;
  const AmxVectors& vectors_;
  const WgradProblem& pb_;
  const Block& block_;
  const Tile& tile_;
  const AmxPlan plan_;
  const AmxWorkspace work_;
  const int terms_;
  const std::int64_t first_channel_;
  PixelBox box_;
  std::array<Range, 3> input_;
  AmxShape shape_;
  std::int64_t run_count_ = 0;
  AmxRun runs_[kMaxChunkPixels];
  alignas(64) float sums_[kAmxBlock * kAmxBlock];
};

}  // namespace convgrad
