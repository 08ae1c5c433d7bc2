// dy_panels.hpp - packs dy of a chunk for outer_product into panels of output channels, once for
// all taps. They stay in the second cache until the chunk is done.
#pragma once

#include "cpu/isa/isa_set.hpp"
#include "cpu/outer_product/outer_product_shape.hpp"
#include "cpu/shared/exponent_range.hpp"
#include "cpu/shared/pack.hpp"

namespace convgrad {

// `pair_stride` is the distance of an element's second pixel from its first.
template <typename Scalar>
PackSource pair_source(const WgradProblem& problem, const void* data, std::int64_t offset,
                       std::int64_t pixel_stride, std::int64_t pair_stride,
                       std::int64_t channel_stride) {
  const Scalar* at = static_cast<const Scalar*>(data) + offset;
  return {at, at + pair_stride, static_cast<int>(problem.dtype), pixel_stride, channel_stride};
}

// Finds the range of panels of pairs.
template <typename Element>
ExponentRange exponent_range_of(const OuterProductIsa<Element>& isa, const Element* panel,
                                std::int64_t elements, std::int64_t panels, std::int64_t stride) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Element));
  ExponentRange range;
  isa.exponent_range(panel, elements * kBytes / 2, panels, stride * kBytes, &range.least,
                     &range.most);
  return range;
}

template <typename Scalar, typename Element>
class DyPanels {
 public:
  DyPanels(const OuterProductIsa<Element>& isa, const WgradProblem& problem, const Block& block,
           const Tile& tile, const TileForm& form, Element* memory)
      : isa_(isa), pb_(problem), block_(block), tile_(tile), form_(form), data_(memory) {}

  // Returns the panel from output channel k of the tile on, a multiple of k_step.
  const Element* panel(std::int64_t k) const { return data_ + k / form_.k_step * panel_elements(); }

  // Returns false if dy is not finite where x panels hold zeros for padding. Fills data_[k /
  // k_step][row][pixel][k % k_step], zeros behind the last k.
  bool pack(const PixelBox& box) {
    const std::int64_t steps = ceil_div(box[3].size(), form_.pixels);
    const PanelShape shape = {static_cast<int>(form_.k_step), panel_elements()};
    const Strides& strides = block_.dy_strides;
    const std::int64_t stride = strides.spatial[2], k = tile_.k.size();
    const std::int64_t partner = form_.images > 1 ? strides.n : stride;
    const std::int64_t whole = box[3].size() / form_.pixels;
    // Where whole rows follow each other in the file as in the panel, one call packs all of them.
    const bool together = strides.spatial[1] == box[3].size() * stride && whole == steps;
    const std::int64_t rows = together ? box[2].size() : 1;
    Element* out = data_;
    for (std::int64_t n = box[0].begin; n < box[0].end; n += form_.images) {
      for (std::int64_t z = box[1].begin; z < box[1].end; ++z) {
        for (std::int64_t p = box[2].begin; p < box[2].end; p += rows) {
          const std::int64_t offset =
              dy_offset(block_, n, z, p, box[3].begin) + tile_.k.begin * strides.c;
          PackSource from = pair_source<Scalar>(pb_, block_.dy, offset, form_.pixels * stride,
                                                partner, strides.c);
          if (form_.images > 1 && !form_.has_partner(box, n)) from.second = nullptr;
          isa_.pack(from, rows * whole, k, shape, out);
          out += rows * steps * form_.k_step;
          if (whole == steps) continue;
          from = pair_source<Scalar>(pb_, block_.dy, offset + whole * form_.pixels * stride, stride,
                                     0, strides.c);
          from.second = nullptr;  // an odd pixel out
          isa_.pack(from, 1, k, shape, out - form_.k_step);
        }
      }
    }
    elements_ = out - data_;
    return !sees_padding(pb_.axis[2]) || isa_.exponent_range != nullptr || is_finite();
  }

  // Returns that of what is packed, of pairs of bfloat16.
  ExponentRange range() const {
    return exponent_range_of(isa_, data_, elements_, ceil_div(tile_.k.size(), form_.k_step),
                             panel_elements());
  }

 private:
  std::int64_t panel_elements() const { return kMaxChunkPixels * form_.k_step + kPanelSlack; }

  // Looks at the panels, not the file: they have just been written, and are in the cache.
  bool is_finite() const {
    for (std::int64_t k = 0; k < tile_.k.size(); k += form_.k_step) {
      if (!isa_.all_finite(panel(k), elements_)) return false;
    }
    return true;
  }

  const OuterProductIsa<Element>& isa_;
  const WgradProblem& pb_;
  const Block& block_;
  const Tile& tile_;
  const TileForm form_;
  Element* data_;
  std::int64_t elements_ = 0;  // of a panel, as they are packed now
};

}  // namespace convgrad
