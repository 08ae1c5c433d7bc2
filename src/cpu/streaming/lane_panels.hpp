// lane_panels.hpp - dy and x of a chunk, packed for the lanes that streaming works on.
//
// In x's panel every lane has the value of its own group, beside its dy: no product is wasted on
// other groups. The panel has zeros for padding, so that all taps of all outputs are alike. With
// 64 lanes at most, dy's panel has 128 KiB of floats, and x's not much more where taps are near.
#pragma once

#include <algorithm>

#include "cpu/isa/isa_set.hpp"
#include "cpu/shared/pack.hpp"
#include "cpu/streaming/stream_shape.hpp"

namespace convgrad {

template <typename Scalar, typename Acc>
class LanePanels {
 public:
  LanePanels(const IsaTable<Acc>& isa, const WgradProblem& problem, const Block& block,
             Acc* workspace)
      : packer_(isa.outer_product),
        isa_(isa.streaming),
        pb_(problem),
        block_(block),
        dy_(workspace),
        x_(workspace + kMaxChunkPixels * kMostLanes) {}

  void start(const PixelBox& box, const std::array<Range, 3>& input) {
    box_ = box;
    input_ = input;
  }
  // The output channels k, in `width` lanes: zeros behind them.
  void use_lanes(Range k, std::int64_t width) {
    k_ = k;
    width_ = width;
  }

  const Acc* dy() const { return dy_; }  // [row][column][lane]
  const Acc* x() const { return x_; }    // [image and depth][row][column][lane]

  void pack_dy() {
    const Strides& strides = block_.dy_strides;
    Acc* out = dy_;
    for_each_row(box_, [&](std::int64_t n, std::int64_t z, std::int64_t p) {
      const std::int64_t offset = dy_offset(block_, n, z, p, box_[3].begin) + k_.begin * strides.c;
      packer_.pack(source(block_.dy, offset, strides), box_[3].size(), k_.size(), {lanes(), 0},
                   out);
      out += box_[3].size() * width_;
    });
  }
  // Of a row of the box.
  std::int64_t dy_row(std::int64_t n, std::int64_t z, std::int64_t p) const {
    const std::int64_t plane = (n - box_[0].begin) * box_[1].size() + z - box_[1].begin;
    return (plane * box_[2].size() + p - box_[2].begin) * box_[3].size() * width_;
  }

  // Row and column 0 are what tap 0 of the first output sees, c is a channel of a group. All
  // columns between the taps are packed, also those that strides or dilations leave out: where that
  // were too many, this kernel is not taken (kMostPanelPixels).
  void pack_x(std::int64_t c) {
    const std::int64_t group_c = pb_.group_c(), first_group = k_.begin / pb_.group_k();
    for (std::int64_t k = k_.begin; k < k_.end; ++k) {
      channel_[k - k_.begin] = static_cast<int>((k / pb_.group_k() - first_group) * group_c + c);
    }
    const std::int64_t base = first_group * group_c * block_.x_strides.c;
    const std::int64_t first_h = input_position(pb_.axis[1], box_[2].begin, 0);
    Acc* row = x_;
    for (std::int64_t n = box_[0].begin; n < box_[0].end; ++n) {
      for (std::int64_t d = input_[0].begin; d < input_[0].end; ++d) {
        for (std::int64_t h = first_h; h < first_h + rows(); ++h, row += x_row()) {
          if (is_inside(pb_.axis[1], h)) {
            pack_columns(base, n, d, h, row);
          } else {
            std::fill_n(row, x_row(), Acc{0});
          }
        }
      }
    }
  }
  // From one row to the next, and where the rows of an image and depth begin that output row p
  // sees.
  std::int64_t x_row() const { return columns() * width_; }
  std::int64_t x_rows(std::int64_t n, std::int64_t d, std::int64_t p) const {
    const std::int64_t image = (n - box_[0].begin) * input_[0].size() + d - input_[0].begin;
    return (image * rows() + (p - box_[2].begin) * pb_.axis[1].stride) * x_row();
  }

 private:
  std::int64_t rows() const { return spanned_inputs(pb_.axis[1], box_[2].size()); }
  std::int64_t columns() const { return spanned_inputs(pb_.axis[2], box_[3].size()); }
  int lanes() const { return static_cast<int>(width_); }

  PackSource source(const void* data, std::int64_t offset, const Strides& strides) const {
    return {static_cast<const Scalar*>(data) + offset, nullptr, static_cast<int>(pb_.dtype),
            strides.spatial[2], strides.c};
  }

  void pack_columns(std::int64_t base, std::int64_t n, std::int64_t d, std::int64_t h, Acc* row) {
    const std::int64_t first = input_position(pb_.axis[2], box_[3].begin, 0);
    const Range inside = intersect({first, first + columns()}, {0, pb_.axis[2].in});
    const std::int64_t before = std::clamp<std::int64_t>(inside.begin - first, 0, columns());
    const std::int64_t count = inside.size(), behind = columns() - before - count;
    std::fill_n(row, before * width_, Acc{0});
    row += before * width_;
    if (count > 0) pack_row(base + x_offset(block_, n, d, h, inside.begin), count, row);
    std::fill_n(row + count * width_, behind * width_, Acc{0});
  }

  // Depthwise with multiplier 1 is packed like dy, in whole vectors.
  void pack_row(std::int64_t offset, std::int64_t pixels, Acc* row) const {
    const PackSource from = source(block_.x, offset, block_.x_strides);
    if (pb_.group_c() == 1 && pb_.group_k() == 1) {  // lanes are neighbours
      packer_.pack(from, pixels, k_.size(), {lanes(), 0}, row);
    } else {
      isa_.spread(from, pixels, channel_, static_cast<int>(k_.size()), lanes(), row);
    }
  }

  const OuterProductIsa<Acc>& packer_;
  const StreamingIsa<Acc>& isa_;
  const WgradProblem& pb_;
  const Block& block_;
  Acc* dy_;
  Acc* x_;
  PixelBox box_;
  std::array<Range, 3> input_;
  Range k_;
  std::int64_t width_ = 0;
  int channel_[kMostLanes];  // that each lane reads, from the first one's group on
};

}  // namespace convgrad
