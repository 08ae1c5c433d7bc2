// outer_product_tile.hpp - one tile's work of outer_product.
//
// For each chunk of at most 512 pixels and each tile of channels, dy is packed once into panels of
// output channels. The rows of x that the chunk sees are packed into panels of input channels,
// padding columns as zeros; all taps of a filter row (with luck, of the whole filter) read the same
// panel, each a few columns further on. The sums of a register tile stay in registers over all the
// chunk's pixels, also across rows and images, and are added to the float64 partial at the end.
// While a chunk is computed, the next one is fetched into the cache.
#pragma once

#include <algorithm>

#include "cpu/isa/isa_set.hpp"
#include "cpu/outer_product/outer_product_shape.hpp"
#include "cpu/outer_product/x_panels.hpp"
#include "cpu/shared/exponent_range.hpp"
#include "cpu/shared/pack.hpp"
#include "engine/region.hpp"

namespace convgrad {

template <typename Scalar, typename Element>
class OuterProductTile {
 public:
  OuterProductTile(const OuterProductIsa<Element>& isa, const WgradProblem& problem,
                   const Block& block, const Tile& tile, Element* workspace)
      : isa_(isa),
        pb_(problem),
        block_(block),
        tile_(tile),
        panels_(panels_of(problem)),
        first_channel_(tile.k.begin / problem.group_k() * problem.group_c()),
        dy_panels_(workspace),
        x_panels_(workspace + dy_elements(problem)) {
    // Pairs are of neighbouring images where a chunk has several, else of neighbouring pixels.
    if (kPixels == 2 && chunk_extent(problem)[0] > 1) images_ = 2;
    pixels_ = kPixels / images_;
    const std::int64_t c = tile.c.size(), k = tile.k.size();
    const std::int64_t rows = panels_.joined ? pb_.axis[2].taps * c : c;
    swapped_ = 4 * tile_cost(isa, k, rows) < 3 * tile_cost(isa, rows, k);
    x_step_ = swapped_ ? isa.max_columns : even_step(rows, isa.max_rows);
    k_step_ = swapped_ ? even_step(k, isa.max_rows) : isa.max_columns;
    x_shape_ = {static_cast<int>(panels_.joined ? c : x_step_), 0};
  }

  // False if a chunk must be left to plain multiply-adds: dy is not finite where x panels hold
  // zeros for padding (0 * Inf must not be added), or numbers are too small for this instruction.
  bool add_chunk(const PixelBox& box, const PixelBox* next, double* partial) {
    box_ = box;
    input_ = input_box(pb_, box);
    steps_ = ceil_div(box[3].size(), pixels_);
    if (!in_range() || !pack_dy()) return false;
    fetch_next(next);
    const SpatialAxis &ad = pb_.axis[0], &ah = pb_.axis[1];
    if (panels_.reuse == Reuse::filter) pack_planes(input_[0]);
    for (std::int64_t t = 0; t < ad.taps; ++t) {
      if (panels_.reuse == Reuse::plane) pack_plane_rows(t);
      for (std::int64_t r = 0; r < ah.taps; ++r) {
        list_rows(t, r);
        if (row_count_ == 0) {
          calls_left_ -= calls_in_row_;
          continue;
        }
        double* filter_row = partial + (t * ah.taps + r) * pb_.axis[2].taps * pb_.group_c() * pb_.K;
        if (panels_.reuse == Reuse::tap) {
          add_taps(filter_row);
        } else {
          if (panels_.reuse == Reuse::row) pack_rows(0, pb_.axis[2].taps);
          add_filter_row(filter_row);
        }
      }
    }
    return true;
  }

 private:
  static constexpr std::int64_t kPixels = PanelTraits<Element>::kPixels;

  struct Row {
    std::int64_t line, dy, start;  // of the x panel, of the dy panel, in the block
    bool partner;                  // whether the image has one
  };

  // Fetches what the next chunk reads, late enough to be still in the cache when it is read.
  void fetch_next(const PixelBox* next) {
    const Region none;
    fetch_.start(next == nullptr ? none : x_region(pb_, block_, *next, x_channels()),
                 next == nullptr ? none : dy_region(pb_, block_, *next, tile_.k));
    const std::int64_t c = tile_.c.size(), taps = pb_.axis[2].taps;
    const std::int64_t blocks =
        panels_.joined ? ceil_div(taps * c, x_step_) : taps * ceil_div(c, x_step_);
    calls_in_row_ = blocks * ceil_div(tile_.k.size(), k_step_);
    calls_left_ = pb_.axis[0].taps * pb_.axis[1].taps * calls_in_row_;
    const std::int64_t steps = image_steps() * box_[1].size() * box_[2].size() * steps_;
    const std::int64_t lines = fetch_.bytes() / LineCursor::kLineBytes;
    fetch_calls_ = lines / steps * 5 / 4 + 1;
  }

  std::int64_t panel_elements() const { return kMaxChunkPixels * k_step_ + kPanelSlack; }
  std::int64_t image_steps() const { return ceil_div(box_[0].size(), images_); }
  bool has_partner(std::int64_t n) const { return images_ > 1 && n + 1 < box_[0].end; }
  Range x_channels() const {
    return {first_channel_ + tile_.c.begin, first_channel_ + tile_.c.end};
  }

  // Where products of pairs are as IEEE arithmetic has them.
  bool in_range() const {
    if (isa_.exponent_range == nullptr) return true;
    return bf16_products_in_range(
        exponent_range_of(x_region(pb_, block_, box_, x_channels()), isa_.exponent_range),
        exponent_range_of(dy_region(pb_, block_, box_, tile_.k), isa_.exponent_range));
  }

  PackSource source(const void* data, std::int64_t offset, std::int64_t pixel_stride,
                    std::int64_t pair_stride, std::int64_t channel_stride) const {
    const Scalar* at = static_cast<const Scalar*>(data) + offset;
    return {at, at + pair_stride, static_cast<int>(pb_.dtype), pixel_stride, channel_stride};
  }

  // dy_panels_[k / k_step_][row][pixel][k % k_step_], zeros behind the last k.
  bool pack_dy() {
    const PanelShape shape = {static_cast<int>(k_step_), panel_elements()};
    const std::int64_t stride = block_.dy_strides.spatial[2], k = tile_.k.size();
    const std::int64_t partner = images_ > 1 ? block_.dy_strides.n : stride;
    const std::int64_t whole = box_[3].size() / pixels_;
    // Whole rows follow each other in the file as in the panel.
    const bool together =
        block_.dy_strides.spatial[1] == box_[3].size() * stride && whole == steps_;
    const std::int64_t rows = together ? box_[2].size() : 1;
    Element* out = dy_panels_;
    for (std::int64_t n = box_[0].begin; n < box_[0].end; n += images_) {
      for (std::int64_t z = box_[1].begin; z < box_[1].end; ++z) {
        for (std::int64_t p = box_[2].begin; p < box_[2].end; p += rows) {
          const std::int64_t offset =
              dy_offset(block_, n, z, p, box_[3].begin) + tile_.k.begin * block_.dy_strides.c;
          PackSource from =
              source(block_.dy, offset, pixels_ * stride, partner, block_.dy_strides.c);
          if (images_ > 1 && !has_partner(n)) from.second = nullptr;
          isa_.pack(from, rows * whole, k, shape, out);
          out += rows * steps_ * k_step_;
          if (whole == steps_) continue;
          from =
              source(block_.dy, offset + whole * pixels_ * stride, stride, 0, block_.dy_strides.c);
          from.second = nullptr;  // an odd pixel out
          isa_.pack(from, 1, k, shape, out - k_step_);
        }
      }
    }
    if (!sees_padding(pb_.axis[2])) return true;
    for (std::int64_t panel = 0; panel * k_step_ < k; ++panel) {
      const Element* begin = dy_panels_ + panel * panel_elements();
      if (!isa_.all_finite(begin, out - dy_panels_)) return false;
    }
    return true;
  }

  // The chunk's rows for which filter row (t, r) lies in x, and where the x panel has them.
  void list_rows(std::int64_t t, std::int64_t r) {
    row_count_ = 0;
    runs_stay_ = false;
    std::int64_t pixel = 0;
    for (std::int64_t n = box_[0].begin; n < box_[0].end; n += images_) {
      for (std::int64_t z = box_[1].begin; z < box_[1].end; ++z) {
        const std::int64_t d = input_position(pb_.axis[0], z, t);
        for (std::int64_t p = box_[2].begin; p < box_[2].end; ++p, pixel += steps_) {
          const std::int64_t h = input_position(pb_.axis[1], p, r);
          if (d < 0 || d >= pb_.axis[0].in || h < 0 || h >= pb_.axis[1].in) continue;
          rows_[row_count_] = {line_of(n, z, d, h), pixel * k_step_, x_offset(block_, n, d, h, 0),
                               has_partner(n)};
          ++row_count_;
        }
      }
    }
    if (panels_.reuse == Reuse::row || panels_.reuse == Reuse::tap) lines_ = row_count_;
  }

  std::int64_t line_of(std::int64_t n, std::int64_t z, std::int64_t d, std::int64_t h) const {
    const std::int64_t image = (n - box_[0].begin) / images_, row = h - input_[1].begin;
    switch (panels_.reuse) {
      case Reuse::filter:
        return (image * input_[0].size() + d - input_[0].begin) * input_[1].size() + row;
      case Reuse::plane:
        return (image * box_[1].size() + z - box_[1].begin) * input_[1].size() + row;
      default:
        return row_count_;
    }
  }

  void begin_panels(std::int64_t lines, std::int64_t taps) {
    lines_ = lines;
    columns_ = panels_.columns(box_[3].size(), taps);
    x_shape_.panel_stride = lines_ * columns_ * x_shape_.step + kPanelSlack;
  }

  void pack_planes(Range planes) {
    begin_panels(image_steps() * planes.size() * input_[1].size(), pb_.axis[2].taps);
    std::int64_t line = 0;
    for (std::int64_t n = box_[0].begin; n < box_[0].end; n += images_) {
      for (std::int64_t d = planes.begin; d < planes.end; ++d) {
        for (std::int64_t h = input_[1].begin; h < input_[1].end; ++h) {
          pack_line(line++, x_offset(block_, n, d, h, 0), 0, has_partner(n));
        }
      }
    }
  }

  void pack_plane_rows(std::int64_t t) {
    begin_panels(image_steps() * box_[1].size() * input_[1].size(), pb_.axis[2].taps);
    std::int64_t line = 0;
    for (std::int64_t n = box_[0].begin; n < box_[0].end; n += images_) {
      for (std::int64_t z = box_[1].begin; z < box_[1].end; ++z) {
        const std::int64_t d = input_position(pb_.axis[0], z, t);
        if (d < 0 || d >= pb_.axis[0].in) {
          line += input_[1].size();
          continue;
        }
        for (std::int64_t h = input_[1].begin; h < input_[1].end; ++h) {
          pack_line(line++, x_offset(block_, n, d, h, 0), 0, has_partner(n));
        }
      }
    }
  }

  // The listed rows, for taps first_tap, ... of the filter row.
  void pack_rows(std::int64_t first_tap, std::int64_t taps) {
    begin_panels(row_count_, taps);
    for (std::int64_t row = 0; row < row_count_; ++row) {
      pack_line(row, rows_[row].start, first_tap, rows_[row].partner);
    }
  }

  // One row of x: columns_ columns from what first_tap sees of the first pixel, zeros outside of
  // what the chunk's pixels see. Behind the last pixel of an odd number, pairs would read on: in x
  // there may be anything, or it may not be in the block.
  void pack_line(std::int64_t line, std::int64_t row_start, std::int64_t first_tap, bool partner) {
    const SpatialAxis& w = pb_.axis[2];
    const std::int64_t first = input_position(w, box_[3].begin, first_tap);
    // Columns for which the pixel, and for pairs its partner, is inside.
    const Range low = inside_columns(first), high = inside_columns(first + w.stride);
    if (pixels_ == 1) {
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

  Range inside_columns(std::int64_t first) const {
    const Range seen = input_[2];
    const std::int64_t begin = first >= seen.begin ? 0 : ceil_div(seen.begin - first, panels_.step);
    const std::int64_t end = first >= seen.end ? 0 : (seen.end - 1 - first) / panels_.step + 1;
    const std::int64_t low = std::min(begin, columns_);
    return {low, std::clamp(end, low, columns_)};
  }

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
    const std::int64_t partner = images_ > 1 ? strides.n : pb_.axis[2].stride * w;
    PackSource from = source(block_.x, offset, panels_.step * w, partner, strides.c);
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
    const std::int64_t blocks = panels_.joined ? 1 : ceil_div(tile_.c.size(), x_step_);
    for (std::int64_t b = 0; b < blocks; ++b) {
      std::fill_n(out + b * x_shape_.panel_stride, count * x_shape_.step, Element{});
    }
  }

  void add_filter_row(double* filter_row) {
    if (panels_.joined) {
      add_joined(filter_row);
    } else {
      add_blocks(0, pb_.axis[2].taps, filter_row);
    }
  }

  void add_taps(double* filter_row) {
    for (std::int64_t s = 0; s < pb_.axis[2].taps; ++s) {
      pack_rows(s, 1);
      add_blocks(s, 1, filter_row);
    }
  }

  // Taps first_tap, ... from a panel that begins with what first_tap sees.
  void add_blocks(std::int64_t first_tap, std::int64_t taps, double* filter_row) {
    for (std::int64_t c = 0; c < tile_.c.size(); c += x_step_) {
      const std::int64_t count = std::min(x_step_, tile_.c.size() - c);
      const Element* panel = x_panels_ + c / x_step_ * x_shape_.panel_stride;
      for (std::int64_t s = 0; s < taps; ++s) {
        multiply(count, panel + s * panels_.tap_columns * x_step_, seen_by(first_tap + s),
                 filter_row + ((first_tap + s) * pb_.group_c() + tile_.c.begin + c) * pb_.K);
      }
    }
  }

  // A register tile's (s, c) are neighbours, in the panel as in the filter.
  void add_joined(double* filter_row) {
    const std::int64_t total = pb_.axis[2].taps * tile_.c.size();
    for (std::int64_t i = 0; i < total; i += x_step_) {
      multiply(std::min(x_step_, total - i), x_panels_ + i, {0, steps_}, filter_row + i * pb_.K);
    }
  }

  // The elements of a row of dy for which tap s lies in x, or a few more.
  Range seen_by(std::int64_t s) const {
    const Range inside = intersect(box_[3], outputs_inside(pb_.axis[2], s));
    return {(inside.begin - box_[3].begin) / pixels_,
            ceil_div(inside.end - box_[3].begin, pixels_)};
  }

  // The listed rows of `count` channels of x against every dy panel, for `count` rows of the filter
  // from `out` on. Elements of a row that are not in `seen` meet zeros in x and may be left out.
  void multiply(std::int64_t count, const Element* x, Range seen, double* out) {
    const std::int64_t x_pixel = pixels_ * panels_.pixel_columns * x_shape_.step;
    for (std::int64_t k = 0, panel = 0; k < tile_.k.size(); k += k_step_, ++panel) {
      const std::int64_t k_count = std::min(k_step_, tile_.k.size() - k);
      const Element* dy = dy_panels_ + panel * panel_elements();
      const bool fetches = calls_left_-- <= fetch_calls_ && !fetch_.done();
      if (fetches || !runs_stay_) list_runs(x_pixel, fetches);
      double* cells = out + tile_.k.begin + k;
      if (seen.size() <= 0) continue;
      const Range part = fetches ? Range{0, steps_} : seen;
      const Element* x_first = x + part.begin * x_pixel;
      const Element* dy_first = dy + part.begin * k_step_;
      const std::int64_t trim = steps_ - part.size();
      if (!swapped_) {
        isa_.multiply(static_cast<int>(count), static_cast<int>(k_count), x_first, x_pixel,
                      dy_first, k_step_, runs_, run_count_, trim, cells, pb_.K);
        continue;
      }
      std::fill_n(transposed_, k_count * isa_.max_columns, 0.0);
      isa_.multiply(static_cast<int>(k_count), static_cast<int>(count), dy_first, k_step_, x_first,
                    x_pixel, runs_, run_count_, trim, transposed_, isa_.max_columns);
      for (std::int64_t c = 0; c < count; ++c) {
        for (std::int64_t i = 0; i < k_count; ++i) {
          cells[c * pb_.K + i] += transposed_[i * isa_.max_columns + c];
        }
      }
    }
  }

  // The listed rows as runs, with lines of the next chunk to fetch if it is time for that. Without,
  // each is a whole row, and they serve until other rows are listed.
  void list_runs(std::int64_t x_pixel, bool fetches) {
    const std::int64_t line = columns_ * x_shape_.step;
    const auto* nothing = reinterpret_cast<const char*>(dy_panels_);
    run_count_ = 0;
    runs_stay_ = !fetches;
    for (std::int64_t row = 0; row < row_count_; ++row) {
      for (std::int64_t p = 0; p < steps_;) {
        const std::int64_t x = rows_[row].line * line + p * x_pixel;
        const std::int64_t dy = rows_[row].dy + p * k_step_;
        PanelRun& run = runs_[run_count_++];
        run = {swapped_ ? dy : x, swapped_ ? x : dy,
               fetches ? std::min(kRunPixels, steps_ - p) : steps_, nothing, nothing};
        const std::int64_t lines = fetches ? fetch_.next(run.pixels, &run.prefetch) : 0;
        if (lines > 0) {
          run.pixels = lines;
          run.prefetch_end = run.prefetch + lines * LineCursor::kLineBytes;
        }
        p += run.pixels;
      }
    }
  }

  const OuterProductIsa<Element>& isa_;
  const WgradProblem& pb_;
  const Block& block_;
  const Tile& tile_;
  const XPanels panels_;
  const std::int64_t first_channel_;
  Element* dy_panels_;
  Element* x_panels_;
  PanelShape x_shape_{};
  bool swapped_ = false;                  // dy is broadcast to channels of x side by side
  std::int64_t x_step_ = 1, k_step_ = 1;  // channels of a register tile
  double transposed_[kMostTileCells];     // the sums of a register tile, when swapped
  PixelBox box_;
  std::array<Range, 3> input_;
  std::int64_t images_ = 1, pixels_ = 1;  // of an element of the panels
  std::int64_t steps_ = 0;                // elements of a row of dy panels
  std::int64_t lines_ = 0, columns_ = 0;  // of the x panels as they are packed now
  LineCursor fetch_;
  std::int64_t row_count_ = 0, run_count_ = 0;
  bool runs_stay_ = false;
  std::int64_t calls_in_row_ = 0, calls_left_ = 0, fetch_calls_ = 0;  // of isa_.multiply
  Row rows_[kMaxChunkPixels];
  PanelRun runs_[kMaxChunkPixels];
};

}  // namespace convgrad
