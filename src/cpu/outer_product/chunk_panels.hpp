// chunk_panels.hpp - packs dy and x of a chunk for outer_product.
//
// dy is packed once into panels of output channels. The rows of x that the chunk sees are packed
// into panels of input channels, padding columns as zeros; all taps of a filter row (with luck, of
// the whole filter) read the same panel, each a few columns further on.
#pragma once

#include <algorithm>
#include <span>

#include "cpu/isa/isa_set.hpp"
#include "cpu/outer_product/dy_panels.hpp"
#include "cpu/outer_product/outer_product_shape.hpp"
#include "cpu/shared/exponent_range.hpp"
#include "cpu/shared/pack.hpp"
#include "engine/region.hpp"

namespace convgrad {

// This is a row of dy that sees x with the filter row at work.
struct PanelRow {
  std::int64_t line, dy, start;  // of the x panel, of the dy panel, in the block
  bool partner;                  // whether the image has one
};

template <typename Scalar, typename Element>
class ChunkPanels {
 public:
  ChunkPanels(const OuterProductIsa<Element>& isa, const WgradProblem& problem, const Block& block,
              const Tile& tile, Element* workspace)
      : isa_(isa),
        pb_(problem),
        block_(block),
        tile_(tile),
        panels_(panels_of(problem)),
        form_(tile_form(isa, problem, panels_, tile)),
        dy_(isa, problem, block, tile, form_, workspace),
        x_panels_(workspace + dy_elements(problem)) {
    x_shape_ = {static_cast<int>(panels_.joined ? tile.c.size() : form_.x_step), 0};
  }

  const XPanels& shape() const { return panels_; }
  const TileForm& form() const { return form_; }

  // Packs dy, once for all taps, and x if that serves all of them. Returns false if the chunk must be
  // left to plain multiply-adds: dy is not finite where x panels hold zeros for padding (0 * Inf
  // must not be added), or numbers are too small for this instruction.
  bool start(const PixelBox& box) {
    box_ = box;
    input_ = input_box(pb_, box);
    steps_ = ceil_div(box[3].size(), form_.pixels);
    if (!dy_.pack(box)) return false;
    if (panels_.reuse == Reuse::filter) pack_filter();
    return isa_.exponent_range == nullptr || bf16_products_in_range(x_range(), dy_.range());
  }

  // Count the elements of a row of dy, and of all rows.
  std::int64_t steps() const { return steps_; }
  std::int64_t all_steps() const {
    return image_steps() * box_[1].size() * box_[2].size() * steps_;
  }
  Region x_of(const PixelBox& box) const { return x_region(pb_, block_, box, x_channels()); }
  Region dy_of(const PixelBox& box) const { return dy_region(pb_, block_, box, tile_.k); }

  const Element* dy_panel(std::int64_t k) const { return dy_.panel(k); }
  // Returns the panel from channel c of the tile on, or from element c of joined (s, c) pairs.
  const Element* x_panel(std::int64_t c) const {
    return x_panels_ + (panels_.joined ? c : c / form_.x_step * x_shape_.panel_stride);
  }
  // Count the elements from one output pixel to the next, and from one row of x to the next.
  std::int64_t x_pixel() const { return form_.pixels * panels_.pixel_columns * x_shape_.step; }
  std::int64_t x_line() const { return columns_ * x_shape_.step; }

  std::span<const PanelRow> rows() const { return {rows_, static_cast<std::size_t>(row_count_)}; }

  // Rows that see only padding with a filter row are left out of it, so that their zeros are never
  // multiplied. Lists the chunk's rows for which filter row (t, r) is in x, and where the x panel
  // has them.
  void list_rows(std::int64_t t, std::int64_t r) {
    row_count_ = 0;
    std::int64_t pixel = 0;
    for (std::int64_t n = box_[0].begin; n < box_[0].end; n += form_.images) {
      for (std::int64_t z = box_[1].begin; z < box_[1].end; ++z) {
        const std::int64_t d = input_position(pb_.axis[0], z, t);
        for (std::int64_t p = box_[2].begin; p < box_[2].end; ++p, pixel += steps_) {
          const std::int64_t h = input_position(pb_.axis[1], p, r);
          if (!is_inside(pb_.axis[0], d) || !is_inside(pb_.axis[1], h)) continue;
          rows_[row_count_] = {line_of(n, z, d, h), pixel * form_.k_step,
                               x_offset(block_, n, d, h, 0), form_.has_partner(box_, n)};
          ++row_count_;
        }
      }
    }
  }

  // Packs x for the taps of one t, where all planes of x together are too large (kMostXElements).
  void pack_planes(std::int64_t t) {
    begin_panels(image_steps() * box_[1].size() * input_[1].size(), pb_.axis[2].taps);
    std::int64_t line = 0;
    for (std::int64_t n = box_[0].begin; n < box_[0].end; n += form_.images) {
      for (std::int64_t z = box_[1].begin; z < box_[1].end; ++z) {
        const std::int64_t d = input_position(pb_.axis[0], z, t);
        if (is_inside(pb_.axis[0], d)) {
          pack_plane(n, d, line);
        } else {
          line += input_[1].size();  // no row of it will be listed
        }
      }
    }
  }
  // Packs the listed rows, for taps first_tap, ... of the filter row.
  void pack_rows(std::int64_t first_tap, std::int64_t taps) {
    begin_panels(row_count_, taps);
    for (std::int64_t row = 0; row < row_count_; ++row) {
      pack_line(row, rows_[row].start, first_tap, rows_[row].partner);
    }
  }

 private:
  std::int64_t image_steps() const { return ceil_div(box_[0].size(), form_.images); }
  Range x_channels() const {
    const std::int64_t first = tile_.k.begin / pb_.group_k() * pb_.group_c();
    return {first + tile_.c.begin, first + tile_.c.end};
  }

  // Panels are read in place of the file where they hold all of x: they are in the cache.
  ExponentRange x_range() const {
    if (panels_.reuse != Reuse::filter) return exponent_range_of(x_of(box_), isa_.exponent_range);
    const std::int64_t blocks = panels_.joined ? 1 : ceil_div(tile_.c.size(), form_.x_step);
    return exponent_range_of(isa_, x_panels_, x_shape_.panel_stride - kPanelSlack, blocks,
                             x_shape_.panel_stride);
  }

  // Packs x for all taps. A row of x is packed once and read by all of them, from the cache.
  void pack_filter() {
    begin_panels(image_steps() * input_[0].size() * input_[1].size(), pb_.axis[2].taps);
    std::int64_t line = 0;
    for (std::int64_t n = box_[0].begin; n < box_[0].end; n += form_.images) {
      for (std::int64_t d = input_[0].begin; d < input_[0].end; ++d) pack_plane(n, d, line);
    }
  }

  std::int64_t line_of(std::int64_t n, std::int64_t z, std::int64_t d, std::int64_t h) const {
    const std::int64_t image = (n - box_[0].begin) / form_.images, row = h - input_[1].begin;
    switch (panels_.reuse) {
      case Reuse::filter:
        return (image * input_[0].size() + d - input_[0].begin) * input_[1].size() + row;
      case Reuse::plane:
        return (image * box_[1].size() + z - box_[1].begin) * input_[1].size() + row;
      default:
        return row_count_;
    }
  }

  // Panels follow each other without a gap but for what packing may spoil behind the last pixel.
  void begin_panels(std::int64_t lines, std::int64_t taps) {
    columns_ = panels_.columns(box_[3].size(), taps);
    x_shape_.panel_stride = lines * columns_ * x_shape_.step + kPanelSlack;
  }

  void pack_plane(std::int64_t n, std::int64_t d, std::int64_t& line) {
    for (std::int64_t h = input_[1].begin; h < input_[1].end; ++h) {
      pack_line(line++, x_offset(block_, n, d, h, 0), 0, form_.has_partner(box_, n));
    }
  }

  // Packs one row of x: columns_ columns from what first_tap sees of the first pixel, zeros outside
  // of what the chunk's pixels see. Behind the last pixel of an odd number, pairs would read on: in
  // x there may be anything, or it may not be in the block.
  void pack_line(std::int64_t line, std::int64_t row_start, std::int64_t first_tap, bool partner) {
    const SpatialAxis& w = pb_.axis[2];
    const std::int64_t first = input_position(w, box_[3].begin, first_tap);
    // For these columns the pixel, and for pairs its partner, is inside.
    const Range low = panels_.columns_of(input_[2], first, columns_);
    const Range high = panels_.columns_of(input_[2], first + w.stride, columns_);
    if (form_.pixels == 1) {  // padding, x, padding
      pack_columns(line, row_start, first, {0, low.begin}, false, false);
      pack_columns(line, row_start, first, low, true, partner);
      pack_columns(line, row_start, first, {low.end, columns_}, false, false);
    } else {
      std::int64_t cuts[] = {0, low.begin, low.end, high.begin, high.end, columns_};
      std::sort(std::begin(cuts), std::end(cuts));
      for (int i = 0; i < 5; ++i) {
        const Range part = {cuts[i], cuts[i + 1]};
        if (part.size() <= 0) continue;
        pack_columns(line, row_start, first, part, part.begin >= low.begin && part.end <= low.end,
                     part.begin >= high.begin && part.end <= high.end);
      }
    }
  }

  // Packs one part of a line: where neither pixel of an element is in x, zeros; where one is, the
  // other is read as zeros.
  void pack_columns(std::int64_t line, std::int64_t row_start, std::int64_t first, Range columns,
                    bool low, bool high) {
    if (columns.size() <= 0) return;
    Element* out = x_panels_ + (line * columns_ + columns.begin) * x_shape_.step;
    if (!low && !high) {
      zero_columns(out, columns.size());
      return;
    }
    const Strides& strides = block_.x_strides;
    const std::int64_t w = strides.spatial[2];
    const std::int64_t offset =
        row_start + (first + columns.begin * panels_.step) * w + x_channels().begin * strides.c;
    const std::int64_t partner = form_.images > 1 ? strides.n : pb_.axis[2].stride * w;
    PackSource from =
        pair_source<Scalar>(pb_, block_.x, offset, panels_.step * w, partner, strides.c);
    if (!low) from.data = nullptr;
    if (!high) from.second = nullptr;
    const std::int64_t channels = tile_.c.size();
    if (panels_.joined && from.channel_stride == 1 && from.pixel_stride == channels) {
      // The panel is the row as it stands in the file.
      const auto count = static_cast<int>(columns.size() * channels);
      isa_.pack(from, 1, count, {count, 0}, out);
      return;
    }
    isa_.pack(from, columns.size(), channels, x_shape_, out);
  }

  void zero_columns(Element* out, std::int64_t count) {
    const std::int64_t blocks = panels_.joined ? 1 : ceil_div(tile_.c.size(), form_.x_step);
    for (std::int64_t b = 0; b < blocks; ++b) {
      std::fill_n(out + b * x_shape_.panel_stride, count * x_shape_.step, Element{});
    }
  }

  const OuterProductIsa<Element>& isa_;
  const WgradProblem& pb_;
  const Block& block_;
  const Tile& tile_;
  const XPanels panels_;
  const TileForm form_;
  DyPanels<Scalar, Element> dy_;
  Element* x_panels_;
  PanelShape x_shape_{};
  PixelBox box_;
  std::array<Range, 3> input_;
  std::int64_t steps_ = 0;
  std::int64_t columns_ = 0;  // of the x panels as they are packed now
  std::int64_t row_count_ = 0;
  PanelRow rows_[kMaxChunkPixels];
};

}  // namespace convgrad
