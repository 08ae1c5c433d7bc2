// converted_tile.hpp - does one tile's work of streaming for small groups that cannot be read in
// place: of 16 bits, or with channels apart. What a chunk reads is copied, channels side by side in
// the type of the sums, and then read as if it were the tensors.
#pragma once

#include "cpu/isa/isa_set.hpp"
#include "cpu/shared/pack.hpp"
#include "cpu/streaming/group_tile.hpp"
#include "cpu/streaming/stream_shape.hpp"
#include "engine/kernel.hpp"

namespace convgrad {

inline WgradProblem converted_problem(const WgradProblem& problem) {
  WgradProblem converted = problem;
  converted.dtype = accumulator_dtype(problem.dtype);
  converted.channels_last = true;
  return converted;
}

// Counts elements of the copies for one chunk and one tile's channels, by the shape alone.
struct ConvertedShape {
  // Reading a vector may begin before the first element and end behind the last one.
  static constexpr std::int64_t kSlack = 64;
  static constexpr std::int64_t kMostElements = 512 << 10;

  std::int64_t x = 0, dy = 0;

  explicit ConvertedShape(const WgradProblem& problem) {
    const std::int64_t k = stream_tile_k(problem);
    const std::int64_t pixels = seen_pixels(problem, kMostElements);
    x = pixels * (k / problem.group_k() * problem.group_c()) + 2 * kSlack;
    dy = kMaxChunkPixels * k + 2 * kSlack;
  }
  // Copies are at most 2 MiB of floats: they must still be in a cache when they are read.
  bool fits() const { return x <= kMostElements; }
};

template <typename Scalar>
class ConvertedTile {
  using Acc = AccumulatorOf<Scalar>;

 public:
  // workspace has room for the copies, then GroupTile's.
  ConvertedTile(const IsaTable<Acc>& isa, const WgradProblem& problem, const Block& block,
                const Tile& tile, Acc* workspace)
      : packer_(isa.outer_product),
        pb_(problem),
        converted_(converted_problem(problem)),
        from_(block),
        shape_(problem),
        k_(tile.k),
        c_{k_.begin / problem.group_k() * problem.group_c(),
           k_.end / problem.group_k() * problem.group_c()},
        x_(workspace + ConvertedShape::kSlack),
        dy_(workspace + shape_.x + ConvertedShape::kSlack),
        inner_(isa, converted_, copy_, tile, workspace + shape_.x + shape_.dy) {}
  ConvertedTile(const ConvertedTile&) = delete;
  ConvertedTile& operator=(const ConvertedTile&) = delete;

  bool add_chunk(const PixelBox& box, const PixelBox* /*next*/, double* partial) {
    copy_.pixels = box;
    copy_.input = input_box(pb_, box);
    const auto& [d, h, w] = copy_.input;
    copy_.x_strides = box_strides(true, c_.size(), {d.size(), h.size(), w.size()});
    copy_.dy_strides = box_strides(true, k_.size(), {box[1].size(), box[2].size(), box[3].size()});
    copy_.x = x_ - c_.begin;  // of channel 0, as if it were there
    copy_.dy = dy_ - k_.begin;
    // All that the chunk sees is copied once: filters overlap, and several taps read most values.
    copy(from_.x, x_offset(from_, box[0].begin, d.begin, h.begin, w.begin), from_.x_strides,
         {box[0], d, h, w}, c_, x_);
    copy(from_.dy, dy_offset(from_, box[0].begin, box[1].begin, box[2].begin, box[3].begin),
         from_.dy_strides, box, k_, dy_);
    return inner_.add_chunk(box, nullptr, partial);
  }

 private:
  // Pixels with all channels of the tensor are one piece of memory, packed as one long pixel.
  void copy(const void* data, std::int64_t start, const Strides& strides, const PixelBox& box,
            Range channels, Acc* out) {
    const Scalar* from = static_cast<const Scalar*>(data) + start + channels.begin * strides.c;
    for_each_piece(strides, box, [&](std::int64_t at, std::int64_t pixels, std::int64_t first) {
      if (pixels <= 0) return;
      const bool is_one = strides.c == 1 && strides.spatial[2] == channels.size();
      const std::int64_t count = channels.size() * (is_one ? pixels : 1);
      packer_.pack({from + at, nullptr, static_cast<int>(pb_.dtype), strides.spatial[2], strides.c},
                   is_one ? 1 : pixels, count, {static_cast<int>(count), 0},
                   out + first * channels.size());
    });
  }

  const OuterProductIsa<Acc>& packer_;
  const WgradProblem& pb_;
  const WgradProblem converted_;
  const Block& from_;
  const ConvertedShape shape_;
  const Range k_, c_;
  Acc* x_;
  Acc* dy_;
  Block copy_;
  GroupTile<Acc> inner_;
};

}  // namespace convgrad
