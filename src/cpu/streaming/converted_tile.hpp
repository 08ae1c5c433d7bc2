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
    copy_x(box[0]);
    copy_dy(box);
    return inner_.add_chunk(box, nullptr, partial);
  }

 private:
  // Copies all that the chunk sees once: filters overlap, so most values are read by several taps.
  void copy_x(Range images) {
    const std::array<Range, 3>& in = copy_.input;
    copy_.x_strides = box_strides(true, c_.size(), {in[0].size(), in[1].size(), in[2].size()});
    copy_.x = x_ - c_.begin;  // of channel 0, as if it were there
    Acc* out = x_;
    for (std::int64_t n = images.begin; n < images.end; ++n) {
      for (std::int64_t d = in[0].begin; d < in[0].end; ++d) {
        for (std::int64_t h = in[1].begin; h < in[1].end; ++h) {
          const std::int64_t at = x_offset(from_, n, d, h, in[2].begin);
          copy_row(from_.x, at, from_.x_strides, in[2].size(), c_, out);
          out += in[2].size() * c_.size();
        }
      }
    }
  }

  void copy_dy(const PixelBox& box) {
    copy_.dy_strides = box_strides(true, k_.size(), {box[1].size(), box[2].size(), box[3].size()});
    copy_.dy = dy_ - k_.begin;
    Acc* out = dy_;
    for_each_row(box, [&](std::int64_t n, std::int64_t z, std::int64_t p) {
      const std::int64_t at = dy_offset(from_, n, z, p, box[3].begin);
      copy_row(from_.dy, at, from_.dy_strides, box[3].size(), k_, out);
      out += box[3].size() * k_.size();
    });
  }

  // Rows with all channels of the tensor are one piece of memory, packed as one long pixel.
  void copy_row(const void* data, std::int64_t offset, const Strides& strides, std::int64_t pixels,
                Range channels, Acc* out) {
    if (pixels <= 0) return;
    const Scalar* from = static_cast<const Scalar*>(data) + offset + channels.begin * strides.c;
    PackSource source = {from, nullptr, static_cast<int>(pb_.dtype), strides.spatial[2], strides.c};
    std::int64_t count = channels.size();
    if (source.channel_stride == 1 && source.pixel_stride == count) {  // one piece
      count *= pixels;
      pixels = 1;
    }
    packer_.pack(source, pixels, count, {static_cast<int>(count), 0}, out);
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
