// amx_chunk.hpp - the chunks of one tile of a gradient, packed for AMX and multiplied.
#pragma once

#include "cpu/amx_workspace.hpp"
#include "cpu/bf16_range.hpp"
#include "cpu/pack.hpp"

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
        plan_(amx_plan(problem)),
        work_(amx_workspace(problem, plan_, workspace)),
        terms_(problem.dtype == DType::f16 ? 2 : 1),
        first_channel_(tile.k.begin / problem.group_k() * problem.group_c() + tile.c.begin) {
    tiles_.begin();
  }
  ~AmxChunks() { tiles_.end(); }
  AmxChunks(const AmxChunks&) = delete;
  AmxChunks& operator=(const AmxChunks&) = delete;

  // False if the chunk must be left to plain multiply-adds: zeros of one panel meet whatever is in
  // the other one (0 * Inf must not be added), and numbers may be too small for the instruction.
  bool add_chunk(const PixelBox& box, const PixelBox* next, double* partial) {
    box_ = box;
    input_ = input_box(pb_, box);
    if (!in_range()) return false;
    shape_ =
        amx_shape(pb_, plan_.sharing, {box[0].size(), box[1].size(), box[2].size(), box[3].size()});
    fetch_next(next);
    pack_dy();
    const auto& shared = plan_.sharing.taps;
    std::array<std::int64_t, 3> step, first;  // taps that one packing of x serves
    for (std::size_t a = 0; a < 3; ++a) step[a] = shared[a] ? pb_.axis[a].taps : 1;
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
    const SurveyFunction survey = half ? vectors_.survey_f16 : vectors_.survey_bf16;
    const Exponents x = exponents_of(x_region(pb_, block_, box_, c), survey);
    const Exponents dy = exponents_of(dy_region(pb_, block_, box_, tile_.k), survey);
    // The terms of a float16 are 0 or at least 2^-24.
    return half ? x.most < 31 && dy.most < 31 : bf16_products_in_range(x, dy);
  }

  // Lines of the next chunk are fetched with each block of sums.
  void fetch_next(const PixelBox* next) {
    const Region none;
    const Range c = {first_channel_, first_channel_ + tile_.c.size()};
    fetch_.start(next == nullptr ? none : x_region(pb_, block_, *next, c),
                 next == nullptr ? none : dy_region(pb_, block_, *next, tile_.k));
    const std::int64_t blocks =
        pb_.taps() * ceil_div(tile_.c.size(), kAmxBlock) * ceil_div(tile_.k.size(), kAmxBlock);
    fetch_lines_ = fetch_.bytes() / LineCursor::kLineBytes / blocks + 1;
  }
  void fetch_some() {
    for (std::int64_t left = fetch_lines_; left > 0;) {
      const char* line = nullptr;
      const std::int64_t count = fetch_.next(left, &line);
      if (count == 0) return;
      for (std::int64_t i = 0; i < count; ++i) {
        __builtin_prefetch(line + i * LineCursor::kLineBytes, 0, 2);
      }
      left -= count;
    }
  }

  // The outputs of an axis of the chunk that see x with a tap.
  Range outputs_of(std::size_t axis, std::int64_t tap) const {
    return intersect(outputs_inside(pb_.axis[axis], tap), box_[axis + 1]);
  }
  // Whether the one tap of each axis whose taps do not share a panel sees x from somewhere.
  bool sees_x(const std::array<std::int64_t, 3>& first) const {
    for (std::size_t a = 0; a < 3; ++a) {
      if (!plan_.sharing.taps[a] && outputs_of(a, first[a]).size() <= 0) return false;
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
    const std::int64_t channels = tile_.k.size(), block = shape_.dy_pixels * kAmxChannels;
    if (strides.c == 1) {
      list_pixels(data, pieces);
      vectors_.pairs_from_pixels(work_.pixels, shape_.dy_pixels, channels, work_.dy, block);
    } else {
      for (std::int64_t k = 0; k < channels; k += kAmxChannels) {
        vectors_.rows_from_channels(data + k * strides.c, strides.c, pieces.stride(), pieces.data(),
                                    pieces.count(), std::min(kAmxChannels, channels - k),
                                    work_.rows, shape_.dy_pixels);
        vectors_.pairs_from_rows(work_.rows, shape_.dy_pixels, shape_.dy_pixels,
                                 work_.dy + k * shape_.dy_pixels);
      }
    }
    if (terms_ == 2) {
      vectors_.split(work_.dy, round_up(channels, kAmxChannels) * shape_.dy_pixels,
                     work_.dy + work_.dy_term);
    }
  }

  void list_pixels(const AmxBits* data, const AmxPieces& pieces) {
    alignas(64) static constexpr AmxBits kZeros[256] = {};  // as many as channels of a tile
    const AmxBits** out = work_.pixels;
    for (std::int64_t i = 0; i < pieces.count(); ++i) {
      const AmxPiece& piece = pieces.data()[i];
      const AmxBits* from = piece.source < 0 ? kZeros : data + piece.source;
      const std::int64_t step = piece.source < 0 ? 0 : pieces.stride();
      for (std::int64_t j = 0; j < piece.count; ++j) out[j] = from + j * step;
      out += piece.count;
    }
  }

  void pack_x(const std::array<std::int64_t, 3>& first) {
    const Strides& strides = block_.x_strides;
    AmxPieces pieces;
    pieces.start(work_.pieces, strides.spatial[2] * pb_.axis[2].stride);
    std::array<std::int64_t, 3> phase;
    for (phase[1] = 0; phase[1] < shape_.axis[1].phases; ++phase[1]) {
      for (phase[2] = 0; phase[2] < shape_.axis[2].phases; ++phase[2]) {
        for (phase[0] = 0; phase[0] < shape_.axis[0].phases; ++phase[0]) {
          std::array<std::int64_t, 3> origin;  // what the panel's first position of the phase is
          for (std::size_t a = 0; a < 3; ++a) {
            origin[a] = input_position(pb_.axis[a], box_[a + 1].begin, first[a]) +
                        phase[a] * pb_.axis[a].dilation % pb_.axis[a].stride;
          }
          list_phase(origin, pieces);
        }
      }
    }
    pieces.zeros_until(shape_.row);
    const AmxBits* data = static_cast<const AmxBits*>(block_.x) + first_channel_ * strides.c;
    const std::int64_t channels = tile_.c.size();
    if (strides.c == 1) {
      list_pixels(data, pieces);
      vectors_.rows_from_pixels(work_.pixels, shape_.row, channels, work_.x, shape_.row);
    } else {
      vectors_.rows_from_channels(data, strides.c, pieces.stride(), pieces.data(), pieces.count(),
                                  channels, work_.x, shape_.row);
    }
    if (terms_ == 2) {
      vectors_.split(work_.x, round_up(channels, kAmxChannels) * shape_.row,
                     work_.x + work_.x_term);
    }
  }

  // All images, depths, lines and columns of one phase. Positions that no tap sees may lie outside
  // of x, or of what the block has of it.
  void list_phase(const std::array<std::int64_t, 3>& origin, AmxPieces& pieces) const {
    const std::int64_t columns = shape_.axis[2].lines, stride = pb_.axis[2].stride;
    const Range w = input_[2];
    const std::int64_t before = ceil_div(std::max<std::int64_t>(w.begin - origin[2], 0), stride);
    const std::int64_t inside = ceil_div(std::max<std::int64_t>(w.end - origin[2], 0), stride);
    const Range seen = {std::min(before, columns), std::min(inside, columns)};
    for (std::int64_t n = box_[0].begin; n < box_[0].end; ++n) {
      for (std::int64_t depth = 0; depth < shape_.axis[0].lines; ++depth) {
        const std::int64_t d = origin[0] + depth * pb_.axis[0].stride;
        for (std::int64_t line = 0; line < shape_.axis[1].lines; ++line) {
          const std::int64_t h = origin[1] + line * pb_.axis[1].stride;
          const std::int64_t start = pieces.position();
          if (contains(input_[0], d) && contains(input_[1], h) && seen.size() > 0) {
            pieces.zeros_until(start + seen.begin);
            pieces.pixels(seen.size(), x_offset(block_, n, d, h, origin[2] + seen.begin * stride));
          }
          pieces.zeros_until(start + columns);
        }
      }
    }
  }
  static bool contains(Range range, std::int64_t position) {
    return position >= range.begin && position < range.end;
  }

  void add_taps(const std::array<std::int64_t, 3>& first, const std::array<std::int64_t, 3>& step,
                double* partial) {
    std::array<std::int64_t, 3> tap;
    for (tap[0] = 0; tap[0] < step[0]; ++tap[0]) {
      for (tap[1] = 0; tap[1] < step[1]; ++tap[1]) {
        for (tap[2] = 0; tap[2] < step[2]; ++tap[2]) {
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
    if (z.size() <= 0 || p.size() <= 0 || outputs_of(2, first[2] + tap[2]).size() <= 0) return;
    if (shape_.joined) {
      runs_[run_count_++] = {shape_.x_start(pb_, 0, 0, tap), 0, shape_.pitch / kAmxPixels};
      return;
    }
    const std::int64_t columns = shape_.axis[2].lines, top = box_[2].begin;
    const std::int64_t begin = (p.begin - top) * columns / kAmxPixels * kAmxPixels;
    const std::int64_t end = (p.end - 1 - top) * columns + shape_.extent[3];
    const std::int64_t steps = ceil_div(end - begin, kAmxPixels);
    for (std::int64_t n = 0; n < shape_.extent[0]; ++n) {
      for (std::int64_t i = z.begin - box_[1].begin; i < z.end - box_[1].begin; ++i) {
        runs_[run_count_++] = {shape_.x_start(pb_, n, i, tap) + begin,
                               (shape_.dy_start(n, i) + begin) * kAmxChannels, steps};
      }
    }
  }

  // The listed runs, for a tap's part of the tile.
  void add_blocks(double* cells) {
    const std::int64_t block = shape_.dy_pixels * kAmxChannels;
    for (std::int64_t c = 0; c < tile_.c.size(); c += kAmxBlock) {
      const std::int64_t c_count = std::min(kAmxBlock, tile_.c.size() - c);
      for (std::int64_t k = 0; k < tile_.k.size(); k += kAmxBlock) {
        const std::int64_t k_count = std::min(kAmxBlock, tile_.k.size() - k);
        const AmxPanels panels = {work_.x + c * shape_.row,
                                  work_.dy + k * shape_.dy_pixels,
                                  shape_.row,
                                  block,
                                  work_.x_term,
                                  work_.dy_term,
                                  terms_};
        double* out = cells + c * pb_.K + k;
        for (std::int64_t i = 0; i < c_count; ++i) {
          for (std::int64_t j = 0; j < k_count; j += 8) __builtin_prefetch(out + i * pb_.K + j, 1);
        }
        fetch_some();
        tiles_.multiply(c_count > kAmxChannels ? 2 : 1, k_count > kAmxChannels ? 2 : 1, panels,
                        runs_, run_count_, sums_);
        vectors_.add_sums(sums_, c_count, k_count, out, pb_.K);
      }
    }
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
  LineCursor fetch_;
  std::int64_t fetch_lines_ = 0, run_count_ = 0;
  AmxRun runs_[kMaxChunkPixels];
  alignas(64) float sums_[kAmxBlock * kAmxBlock];
};

}  // namespace convgrad
