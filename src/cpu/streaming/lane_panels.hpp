// lane_panels.hpp - packs dy and x of some pixels for the lanes that streaming works on.
//
// In x's panel every lane has the value of its own group, beside its dy: no product is wasted on
// other groups. A panel is a block of its own, in the type of the sums, with the pixels of the
// tensor and no others: what is copied is read again from the first cache, by all taps.
#pragma once

#include "cpu/isa/isa_set.hpp"
#include "cpu/shared/pack.hpp"
#include "cpu/streaming/stream_shape.hpp"
#include "engine/kernel.hpp"

namespace convgrad {

template <typename Scalar, typename Acc>
class LanePanels {
 public:
  LanePanels(const IsaTable<Acc>& isa, const WgradProblem& problem, const Block& block,
             Acc* workspace)
      : packer_(isa.outer_product),
        isa_(isa.streaming),
        pb_(problem),
        from_(block),
        dy_(workspace),
        x_(workspace + kMaxChunkPixels * kMostLanes) {
    panels_.dy = dy_;
    panels_.x = x_;
  }

  // Takes the output channels k in `width` lanes, zeros behind them.
  void use_lanes(Range k, std::int64_t width) {
    k_ = k;
    width_ = width;
  }
  void start(const PixelBox& box) {
    panels_.pixels = box;
    panels_.input = input_box(pb_, box);
    const std::array<Range, 3>& in = panels_.input;
    panels_.x_strides = box_strides(true, width_, {in[0].size(), in[1].size(), in[2].size()});
    panels_.dy_strides = box_strides(true, width_, {box[1].size(), box[2].size(), box[3].size()});
  }
  // Lane 0 is channel 0 of the block.
  const Block& block() const { return panels_; }

  void pack_dy() {
    const PixelBox& box = panels_.pixels;
    const std::int64_t at =
        dy_offset(from_, box[0].begin, box[1].begin, box[2].begin, box[3].begin);
    const Strides& strides = from_.dy_strides;
    for_each_piece(strides, box, [&](std::int64_t offset, std::int64_t pixels, std::int64_t first) {
      packer_.pack(source(from_.dy, at + offset + k_.begin * strides.c, strides), pixels, k_.size(),
                   {lanes(), 0}, dy_ + first * width_);
    });
  }

  // c is a channel of a group. All pixels between the taps are packed, also those that strides or
  // dilations leave out: where that were too many, this kernel is not taken (kMostPanelPixels).
  void pack_x(std::int64_t c) {
    const std::int64_t group_c = pb_.group_c(), first_group = k_.begin / pb_.group_k();
    for (std::int64_t k = k_.begin; k < k_.end; ++k) {
      channel_[k - k_.begin] = static_cast<int>((k / pb_.group_k() - first_group) * group_c + c);
    }
    const std::array<Range, 3>& in = panels_.input;
    const Strides& strides = from_.x_strides;
    const std::int64_t at =
        x_offset(from_, panels_.pixels[0].begin, in[0].begin, in[1].begin, in[2].begin) +
        first_group * group_c * strides.c;
    for_each_piece(strides, {panels_.pixels[0], in[0], in[1], in[2]},
                   [&](std::int64_t offset, std::int64_t pixels, std::int64_t first) {
                     pack_piece(source(from_.x, at + offset, strides), pixels, x_ + first * width_);
                   });
  }

 private:
  int lanes() const { return static_cast<int>(width_); }

  PackSource source(const void* data, std::int64_t offset, const Strides& strides) const {
    return {static_cast<const Scalar*>(data) + offset, nullptr, static_cast<int>(pb_.dtype),
            strides.spatial[2], strides.c};
  }

  // Depthwise with multiplier 1 is packed like dy, in whole vectors.
  void pack_piece(const PackSource& from, std::int64_t pixels, Acc* to) const {
    if (pixels <= 0) return;
    if (is_depthwise(pb_)) {  // lanes are neighbours
      packer_.pack(from, pixels, k_.size(), {lanes(), 0}, to);
    } else {
      isa_.spread(from, pixels, channel_, static_cast<int>(k_.size()), lanes(), to);
    }
  }

  const OuterProductIsa<Acc>& packer_;
  const StreamingIsa<Acc>& isa_;
  const WgradProblem& pb_;
  const Block& from_;
  Acc* dy_;
  Acc* x_;
  Block panels_;
  Range k_;
  std::int64_t width_ = 0;
  int channel_[kMostLanes];  // that each lane reads, from the first one's group on
};

}  // namespace convgrad
