// amx_chunk.hpp - packs the chunks of one tile of a gradient for AMX and multiplies them.
//
// dy is packed once for a chunk, x once for all taps that can share the packing (amx_can_share()):
// both stay in the second cache while all taps and blocks read them. Taps are outside of blocks, as
// the runs are listed for each group of them, and a block's sums stay in the tiles over all runs.
#pragma once

#include "cpu/amx/amx_packer.hpp"
#include "cpu/shared/exponent_range.hpp"
#include "cpu/shared/first_sums.hpp"

namespace convgrad {

class AmxChunks {
 public:
  AmxChunks(const AmxTiles& tiles, const AmxVectors& vectors, const WgradProblem& problem,
            const Block& block, const Tile& tile, std::byte* workspace, bool fresh)
      : tiles_(tiles),
        vectors_(vectors),
        packing_(packing_of(vectors, problem.dtype, tiles.f16_terms)),
        at_(problem, block, tile, tiles.f16_terms, workspace),
        packer_(packing_, at_),
        fresh_(fresh) {
    tiles_.begin();
  }
  ~AmxChunks() { tiles_.end(); }
  AmxChunks(const AmxChunks&) = delete;
  AmxChunks& operator=(const AmxChunks&) = delete;

  // Returns false if the chunk must be left to plain multiply-adds: zeros of one panel meet
  // whatever is in the other one (0 * Inf must not be added), and numbers may be too small for the
  // instruction. What the next chunk reads is not fetched meanwhile, as outer_product does, nor
  // packed: loads of tiles would wait (docs/measurements/performance.md).
  bool add_chunk(const PixelBox& box, double* partial) {
    at_.start_chunk(box);
    ExponentRange x, dy;
    packer_.pack_dy(dy);
    const AmxTap step = served();
    AmxTap first = {};
    // Packing finds out the range of exponents. Where x is packed several times, it is known only
    // after the last, which is too late: then x is read once more.
    const bool once = step == AmxTap{at_.pb.axis[0].taps, at_.pb.axis[1].taps, at_.pb.axis[2].taps};
    if (once) {
      packer_.pack_x(first, x);
    } else {
      const Range c = {at_.first_channel, at_.first_channel + at_.tile.c.size()};
      x = exponent_range_of(x_region(at_.pb, at_.block, box, c), packing_.exponent_range,
                            packing_.bytes);
    }
    const bool adds = in_range(x, dy);
    stores_ = stores_first(at_.pb, at_.tile, box, adds, fresh_, partial);
    if (!adds) return false;
    for (first[0] = 0; first[0] < at_.pb.axis[0].taps; first[0] += step[0]) {
      for (first[1] = 0; first[1] < at_.pb.axis[1].taps; first[1] += step[1]) {
        for (first[2] = 0; first[2] < at_.pb.axis[2].taps; first[2] += step[2]) {
          if (!once) packer_.pack_x(first, x);
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

  bool in_range(const ExponentRange& x, const ExponentRange& dy) const {
    if (at_.pb.dtype == DType::f32) return f32_products_in_range(x, dy);
    // A float16, and each of its two terms, is 0 or at least 2^-24: no product is subnormal.
    return at_.pb.dtype == DType::f16 ? x.most < 31 && dy.most < 31 : bf16_products_in_range(x, dy);
  }

  // Returns the number of taps along each axis that one packing of x serves.
  AmxTap served() const {
    const AmxSharing& sharing = at_.shape.sharing;
    AmxTap taps;
    for (std::size_t a = 0; a < 3; ++a) taps[a] = sharing.taps[a] ? at_.pb.axis[a].taps : 1;
    if (sharing.wide) taps[2] = at_.pb.axis[2].taps;
    return taps;
  }

  // Returns an axis' outputs that see x with a tap in one of the halves, counted from its first.
  Range outputs_of(std::size_t axis, std::int64_t tap) const {
    const Range all = outputs_inside(at_.pb.axis[axis], tap);
    const auto in_half = [&](std::size_t half) {
      const Range its = at_.half[half][axis + 1], seen = intersect(all, its);
      return Range{seen.begin - its.begin, seen.end - its.begin};
    };
    return hull(in_half(0), in_half(1));
  }
  static Range hull(Range a, Range b) {
    if (a.size() <= 0) return b;
    if (b.size() <= 0) return a;
    return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
  }
  // Tells whether a tap of those that a packing serves from `first` on sees x from somewhere. Taps
  // of a wide panel are all in its pixels.
  bool sees_x(const AmxTap& first, const AmxTap& tap) const {
    const std::size_t axes = at_.shape.sharing.wide ? 2 : 3;
    for (std::size_t a = 0; a < axes; ++a) {
      if (outputs_of(a, first[a] + tap[a]).size() <= 0) return false;
    }
    return true;
  }

  // Rows of the filter are next to each other in a group: they see the same lines of x one after
  // the other, which are in the first cache by then.
  void add_taps(const AmxTap& first, const AmxTap& step, double* partial) {
    const std::int64_t columns = at_.shape.sharing.wide ? 1 : step[2];
    AmxTap tap;
    for (tap[2] = 0; tap[2] < columns; ++tap[2]) {
      for (tap[0] = 0; tap[0] < step[0]; ++tap[0]) {
        for (tap[1] = 0; tap[1] < step[1]; ++tap[1]) {
          if (!sees_x(first, tap)) continue;
          group_[static_cast<std::size_t>(group_size_++)] = tap;
          if (group_size_ == kAmxMostB) add_group(first, partial);
        }
      }
    }
    if (group_size_ > 0) add_group(first, partial);
  }

  void add_group(const AmxTap& first, double* partial) {
    list_runs(first);
    const WgradProblem& pb = at_.pb;
    double* cells[kAmxMostB];
    for (int j = 0; j < group_size_; ++j) {
      const AmxTap& tap = group_[static_cast<std::size_t>(j)];
      const std::int64_t index =
          ((first[0] + tap[0]) * pb.axis[1].taps + first[1] + tap[1]) * pb.axis[2].taps + first[2] +
          tap[2];
      cells[j] = partial + (index * pb.group_c() + at_.tile.c.begin) * pb.K + at_.tile.k.begin;
    }
    add_blocks(cells);
    group_size_ = 0;
  }

  // Lists the runs of pixels that a tap of the group sees, without unseen rows at both ends.
  void list_runs(const AmxTap& first) {
    const AmxShape& shape = at_.shape;
    run_count_ = 0;
    if (shape.sharing.joined) return add_run(0, 0, 0, 0, shape.pitch);
    Range z, p;
    for (int j = 0; j < group_size_; ++j) {
      const AmxTap& tap = group_[static_cast<std::size_t>(j)];
      z = hull(z, outputs_of(0, first[0] + tap[0]));
      p = hull(p, outputs_of(1, first[1] + tap[1]));
    }
    // Runs begin with a whole tile of dy: a few rows in them may not see x, and meet zeros.
    const std::int64_t columns = shape.axis[2].lines;
    const std::int64_t begin = p.begin * columns / kAmxPairs * kAmxPairs;
    const std::int64_t end = (p.end - 1) * columns + shape.extent[3];
    for (std::int64_t n = 0; n < shape.extent[0]; ++n) {
      for (std::int64_t i = z.begin; i < z.end; ++i) {
        add_run(n, i, begin, shape.dy_start(n, i) + begin, end - begin);
      }
    }
  }
  // Adds `pairs` of dy from `dy` on, and what each tap sees from `begin` behind output (n, z, 0,
  // 0). A single tap takes several blocks of channels instead: of x, or of dy in turned panels.
  void add_run(std::int64_t n, std::int64_t z, std::int64_t begin, std::int64_t dy,
               std::int64_t pairs) {
    AmxRun& run = at_.work.runs[run_count_++];
    run.steps = ceil_div(pairs, kAmxPairs);
    std::int64_t x[kAmxMostB] = {};
    for (int j = 0; j < group_size_; ++j) {
      const AmxTap& tap = group_[static_cast<std::size_t>(j)];
      x[j] = (at_.shape.x_start(at_.pb, n, z, tap) + begin) * kAmxRow;
    }
    const bool turned = at_.shape.turned;
    run.a = turned ? x[0] : dy * kAmxRow;
    const std::int64_t block = (turned ? at_.shape.dy_pairs : at_.shape.x_pairs) * kAmxRow;
    for (int j = 0; j < kAmxMostB; ++j) {
      run.b[j] =
          group_size_ > 1 && j < group_size_ ? x[j] : (turned ? dy * kAmxRow : x[0]) + j * block;
    }
  }

  // Multiplies the listed runs, for a part of the tile. 16 channels of x meet all of dy before the
  // next ones do, so that rows of the partial are visited from their front to their end.
  void add_blocks(double* const* cells) {
    const bool turned = at_.shape.turned, by_tap = group_size_ > 1;
    const std::int64_t c_most = turned ? kAmxMostA : by_tap ? 1 : kAmxMostB;
    const std::int64_t k_most = turned ? kAmxMostB : kAmxMostA;
    for_parts(at_.channels, c_most, [&](std::int64_t c, std::int64_t c_count) {
      for_parts(at_.tile.k.size(), k_most, [&](std::int64_t k, std::int64_t k_count) {
        const auto c_tiles = static_cast<int>(ceil_div(c_count, kAmxChannels));
        const auto k_tiles = static_cast<int>(ceil_div(k_count, kAmxChannels));
        const int a_tiles = turned ? c_tiles : k_tiles;
        const int b_tiles = turned ? k_tiles : by_tap ? group_size_ : c_tiles;
        tiles_.multiply(a_tiles, b_tiles, panels_of(c, k), at_.work.runs, run_count_, sums_);
        for (int i = 0; i < a_tiles; ++i) {
          for (int j = 0; j < b_tiles; ++j) {
            const std::int64_t c_at = (turned ? i : by_tap ? 0 : j) * kAmxChannels;
            const std::int64_t k_at = (turned ? j : i) * kAmxChannels;
            vectors_.add_sums(
                sums_ + (i * kAmxMostB + j) * kAmxSums, turned,
                std::min(kAmxChannels, c_count - c_at), std::min(kAmxChannels, k_count - k_at),
                cells[by_tap ? j : 0] + (c + c_at) * at_.pb.K + k + k_at, at_.pb.K, stores_);
          }
        }
      });
    });
  }

  // Calls function(first, count) for equal parts of at most `most` tiles.
  template <typename Function>
  static void for_parts(std::int64_t channels, std::int64_t most, const Function& function) {
    const std::int64_t tiles = ceil_div(channels, kAmxChannels), parts = ceil_div(tiles, most);
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t begin = part * tiles / parts * kAmxChannels;
      const std::int64_t end = (part + 1) * tiles / parts * kAmxChannels;
      function(begin, std::min(end, channels) - begin);
    }
  }

  AmxPanels panels_of(std::int64_t c, std::int64_t k) const {
    const AmxWorkspace& work = at_.work;
    const std::int64_t dy_pairs = at_.shape.dy_pairs, x_pairs = at_.shape.x_pairs;
    const AmxBits* const dy = work.dy + 2 * k * dy_pairs;
    const AmxBits* const x = work.x + 2 * c * x_pairs;
    const auto terms = static_cast<int>(at_.plan.terms);
    if (at_.shape.turned) {
      return {x, dy, x_pairs * kAmxRow, work.x_term, work.dy_term, terms};
    }
    return {dy, x, dy_pairs * kAmxRow, work.dy_term, work.x_term, terms};
  }

  const AmxTiles& tiles_;
  const AmxVectors& vectors_;
  const AmxPacking& packing_;
  AmxContext at_;
  AmxPacker packer_;
  bool fresh_;
  bool stores_ = false;  // the chunk's sums, instead of adding them
  int group_size_ = 0;   // taps whose sums are made together
  std::array<AmxTap, kAmxMostB> group_;
  std::int64_t run_count_ = 0;
  alignas(64) float sums_[kAmxMostA * kAmxMostB * kAmxSums];
};

}  // namespace convgrad
