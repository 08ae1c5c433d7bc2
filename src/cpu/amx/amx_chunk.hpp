// amx_chunk.hpp - the chunks of one tile of a gradient, packed for AMX and multiplied.
//
// dy is packed once for a chunk, x once for all taps that can share the packing (at most half a MiB
// for even and for odd beginnings, amx_can_share()): both stay in the second cache while all taps
// and blocks read them. Taps are outside of blocks, as the runs are listed for each tap, and a
// block's 32 x 32 sums stay in the tiles over all of a tap's runs.
#pragma once

#include "cpu/amx/amx_packer.hpp"
#include "cpu/shared/exponent_range.hpp"

namespace convgrad {

class AmxChunks {
 public:
  AmxChunks(const AmxTiles& tiles, const AmxVectors& vectors, const WgradProblem& problem,
            const Block& block, const Tile& tile, std::byte* workspace)
      : tiles_(tiles),
        vectors_(vectors),
        packing_(packing_of(vectors, problem.dtype, tiles.f16_terms)),
        at_(problem, block, tile, tiles.f16_terms, workspace),
        packer_(vectors, packing_, at_) {
    tiles_.begin();
  }
  ~AmxChunks() { tiles_.end(); }
  AmxChunks(const AmxChunks&) = delete;
  AmxChunks& operator=(const AmxChunks&) = delete;

  // False if the chunk must be left to plain multiply-adds: zeros of one panel meet whatever is in
  // the other one (0 * Inf must not be added), and numbers may be too small for the instruction.
  // What the next chunk reads is not fetched meanwhile, as outer_product does: loads of tiles would
  // wait behind it.
  bool add_chunk(const PixelBox& box, double* partial) {
    at_.start_chunk(box);
    if (!in_range()) return false;
    packer_.pack_dy();
    const AmxTap step = served();
    AmxTap first;
    for (first[0] = 0; first[0] < at_.pb.axis[0].taps; first[0] += step[0]) {
      for (first[1] = 0; first[1] < at_.pb.axis[1].taps; first[1] += step[1]) {
        for (first[2] = 0; first[2] < at_.pb.axis[2].taps; first[2] += step[2]) {
          if (!sees_x(first, step)) continue;
          packer_.pack_x(first);
          add_taps(first, step, partial);
        }
      }
    }
    return true;
  }

 private:
  static const AmxPacking& packing_of(const AmxVectors& vectors, DType dtype, int f16_terms) {
    if (dtype == DType::f32) return vectors.f32_as_three;
    if (dtype == DType::bf16) return vectors.bf16;
    return f16_terms == 2 ? vectors.f16_as_two : vectors.f16;
  }

  bool in_range() const {
    const Range c = {at_.first_channel, at_.first_channel + at_.tile.c.size()};
    const ExponentRange x = exponent_range_of(x_region(at_.pb, at_.block, at_.box, c),
                                              packing_.exponent_range, packing_.bytes);
    const ExponentRange dy = exponent_range_of(dy_region(at_.pb, at_.block, at_.box, at_.tile.k),
                                               packing_.exponent_range, packing_.bytes);
    if (at_.pb.dtype == DType::f32) return f32_products_in_range(x, dy);
    // A float16, and each of its two terms, is 0 or at least 2^-24: no product is subnormal.
    return at_.pb.dtype == DType::f16 ? x.most < 31 && dy.most < 31 : bf16_products_in_range(x, dy);
  }

  // Taps that one packing of x serves, along each axis.
  AmxTap served() const {
    const AmxSharing& sharing = at_.plan.sharing;
    AmxTap taps;
    for (std::size_t a = 0; a < 3; ++a) taps[a] = sharing.taps[a] ? at_.pb.axis[a].taps : 1;
    if (sharing.wide) taps[2] = at_.pb.axis[2].taps;
    return taps;
  }

  // The outputs of an axis of the chunk that see x with a tap.
  Range outputs_of(std::size_t axis, std::int64_t tap) const {
    return intersect(outputs_inside(at_.pb.axis[axis], tap), at_.box[axis + 1]);
  }
  // Whether the one tap of each axis whose taps do not share a panel sees x from somewhere.
  bool sees_x(const AmxTap& first, const AmxTap& step) const {
    for (std::size_t a = 0; a < 3; ++a) {
      if (step[a] == 1 && outputs_of(a, first[a]).size() <= 0) return false;
    }
    return true;
  }

  void add_taps(const AmxTap& first, const AmxTap& step, double* partial) {
    const WgradProblem& pb = at_.pb;
    const std::int64_t columns = at_.plan.sharing.wide ? 1 : step[2];
    AmxTap tap;
    for (tap[0] = 0; tap[0] < step[0]; ++tap[0]) {
      for (tap[1] = 0; tap[1] < step[1]; ++tap[1]) {
        for (tap[2] = 0; tap[2] < columns; ++tap[2]) {
          list_runs(first, tap);
          if (run_count_ == 0) continue;
          const std::int64_t index =
              ((first[0] + tap[0]) * pb.axis[1].taps + first[1] + tap[1]) * pb.axis[2].taps +
              first[2] + tap[2];
          add_blocks(partial + (index * pb.group_c() + at_.tile.c.begin) * pb.K + at_.tile.k.begin);
        }
      }
    }
  }

  // The runs whose outputs see x with a tap. Rows that do not see it are left out at both ends.
  void list_runs(const AmxTap& first, const AmxTap& tap) {
    const AmxShape& shape = at_.shape;
    run_count_ = 0;
    const Range z = outputs_of(0, first[0] + tap[0]), p = outputs_of(1, first[1] + tap[1]);
    if (z.size() <= 0 || p.size() <= 0) return;
    if (!at_.plan.sharing.wide && outputs_of(2, first[2] + tap[2]).size() <= 0) return;
    if (shape.joined) {
      add_run(shape.x_start(at_.pb, 0, 0, tap), 0, shape.pitch);
      return;
    }
    // Runs begin with a whole tile of dy, so a few rows that do not see x may be in them: they meet
    // zeros.
    const std::int64_t columns = shape.axis[2].lines, top = at_.box[2].begin;
    const std::int64_t begin = (p.begin - top) * columns / kAmxPixels * kAmxPixels;
    const std::int64_t end = (p.end - 1 - top) * columns + shape.extent[3];
    for (std::int64_t n = 0; n < shape.extent[0]; ++n) {
      for (std::int64_t i = z.begin - at_.box[1].begin; i < z.end - at_.box[1].begin; ++i) {
        add_run(shape.x_start(at_.pb, n, i, tap) + begin, shape.dy_start(n, i) + begin,
                end - begin);
      }
    }
  }
  void add_run(std::int64_t x, std::int64_t dy, std::int64_t pixels) {
    const std::int64_t odd = x % 2 != 0 ? at_.odd_panel() : 0;
    runs_[run_count_++] = {dy * kAmxChannels, odd + x / 2 * 2 * kAmxChannels,
                           ceil_div(pixels, kAmxPixels)};
  }

  // The listed runs, for a tap's part of the tile. 32 channels of x (32 KiB for 512
  // pixels) meet all of dy before the next ones do, so that rows of the partial are visited from
  // their front to their end.
  void add_blocks(double* cells) {
    const bool turned = at_.shape.turned;
    const std::int64_t K = at_.pb.K, k_end = at_.tile.k.size();
    for (std::int64_t c = 0; c < at_.channels; c += kAmxBlock) {
      const std::int64_t c_count = std::min(kAmxBlock, at_.channels - c);
      for (std::int64_t k = 0; k < k_end; k += kAmxBlock) {
        const std::int64_t k_count = std::min(kAmxBlock, k_end - k);
        const int c_tiles = c_count > kAmxChannels ? 2 : 1;
        const int k_tiles = k_count > kAmxChannels ? 2 : 1;
        tiles_.multiply(turned ? c_tiles : k_tiles, turned ? k_tiles : c_tiles, panels_of(c, k),
                        runs_, run_count_, sums_);
        vectors_.add_sums(sums_, turned, c_count, k_count, cells + c * K + k, K);
      }
    }
  }

  AmxPanels panels_of(std::int64_t c, std::int64_t k) const {
    const AmxWorkspace& work = at_.work;
    const AmxBits* const dy = work.dy + k * at_.shape.dy_pixels;
    const AmxBits* const x = work.x + c * at_.shape.pixels;
    const std::int64_t dy_block = at_.shape.dy_pixels * kAmxChannels;
    const std::int64_t x_block = at_.shape.pixels * kAmxChannels;
    const auto terms = static_cast<int>(at_.plan.terms);
    if (at_.shape.turned) return {x, dy, x_block, dy_block, work.x_term, work.dy_term, terms};
    return {dy, x, dy_block, x_block, work.dy_term, work.x_term, terms};
  }

  const AmxTiles& tiles_;
  const AmxVectors& vectors_;
  const AmxPacking& packing_;
  AmxContext at_;
  AmxPacker packer_;
  std::int64_t run_count_ = 0;
  AmxRun runs_[kMaxChunkPixels];
  alignas(64) float sums_[kAmxBlock * kAmxBlock];
};

}  // namespace convgrad
