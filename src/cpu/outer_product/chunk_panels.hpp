// chunk_panels.hpp - packs dy and x of a chunk for outer_product.
//
// dy is packed once into panels of output channels. The rows of x that the chunk sees are packed
// into panels of input channels, padding columns as zeros; all taps of a filter row (with luck, of
// the whole filter) read the same panel, each a few columns further on.
#pragma once

#include <algorithm>
#include <span>
#include <utility>

#include "cpu/isa/isa_set.hpp"
#include "cpu/outer_product/outer_product_shape.hpp"
#include "cpu/shared/exponent_range.hpp"
#include "cpu/shared/pack.hpp"
#include "engine/region.hpp"

namespace convgrad {

// Tells of a row of x whether it is there, and the row with the second pixels of its pairs.
struct RowsThere {
  bool first, second;
  bool any() const { return first || second; }
  bool operator==(const RowsThere&) const = default;
};

// Tells what a row of an x panel holds, and where in the block of x.
struct RowSource {
  std::int64_t start;
  RowsThere there;
};

template <typename Scalar, typename Element>
class ChunkPanels {
 public:
  ChunkPanels(const OuterProductIsa<Element>& isa, const WgradProblem& problem, const Block& block,
              const Tile& tile, Element* workspace)
      : isa_(isa),
        pb_(problem),
        block_(block),
        tile_{tile.tap,
              tile.c,
              {tile.k.begin, std::min(tile.k.end, tile.k.begin + problem.group_k())}},
        groups_(ceil_div(tile.k.size(), problem.group_k())),
        whole_(outer_product_shape<Element>(problem)),
        form_(tile_form(isa, problem, panels_, tile_)),
        dy_panels_(workspace),
        x_panels_(workspace + whole_.dy_elements()) {
    if (form_.dy_in_place) {
      dy_ = static_cast<const Element*>(block.dy) + tile.k.begin;
      dy_pixel_ = block.dy_strides.spatial[2];
      dy_stride_ = form_.k_step;
      dy_group_ = problem.group_k();
    }
    if (!form_.in_place) return;
    x_ = static_cast<const Element*>(block.x) + x_channels().begin;
    x_pixel_ = problem.axis[2].stride * block.x_strides.spatial[2];
    x_tap_ = problem.axis[2].dilation * block.x_strides.spatial[2];
    x_shape_.panel_stride = form_.x_step;
  }

  // Returns the tile's part of its first group; those of groups() follow each other.
  const Tile& tile() const { return tile_; }
  std::int64_t groups() const { return groups_; }
  const TileForm& form() const { return form_; }
  bool joined() const { return panels_.joined; }
  Reuse reuse() const { return reuse_; }

  // Packs dy, once for all taps, and x if that serves all of them. Returns false if the chunk must
  // be left to plain multiply-adds: dy is not finite where x panels hold zeros for padding (0 * Inf
  // must not be added), or numbers are too small for this instruction.
  bool start(const PixelBox& box) {
    box_ = box;
    low_ = halves_.elements(box);
    pairs_ = halves_.pairs(box);
    input_ = input_box(pb_, box);
    const std::int64_t distance = halves_.distance(box);
    x_apart_ = halves_.axis == 0 ? distance * block_.x_strides.n : 0;
    dy_apart_ = halves_.axis == 0 ? distance * block_.dy_strides.n : 0;
    for (std::size_t a = 0; a < 3; ++a) {
      const std::int64_t outputs = halves_.axis == a + 1 ? distance : 0;
      apart_[a] = outputs * pb_.axis[a].stride;
      x_apart_ += apart_[a] * block_.x_strides.spatial[a];
      dy_apart_ += outputs * block_.dy_strides.spatial[a];
    }
    for (std::size_t a = 0; a < 2; ++a) lines_[a] = lines_of(a);
    columns_ = panels_.columns(steps(), panels_.reuse == Reuse::tap ? 1 : pb_.axis[2].taps);
    const SpatialAxis& aw = pb_.axis[2];
    inner_ = intersect(box[3], intersect(outputs_inside(aw, 0), outputs_inside(aw, aw.taps - 1)));
    if (inner_.size() == 0) inner_ = {box[3].end, box[3].end};
    if (!form_.dy_in_place) pack_dy();
    const bool has_zeros = !form_.in_place || panels_.joined;  // else taps leave padding out
    if (isa_.exponent_range == nullptr && has_zeros && !edges_are_finite()) return false;
    if (reuse_ == Reuse::filter && !form_.in_place) pack_filter();
    if (isa_.exponent_range == nullptr) return true;
    const std::int64_t dy_panels = groups_ * ceil_div(tile_.k.size(), form_.k_step);
    return bf16_products_in_range(x_range(),
                                  range_of(dy_panels_, dy_elements_, dy_panels, dy_stride_));
  }

  // Count the elements of a row of dy, and of all rows.
  std::int64_t steps() const { return low_[3].size(); }
  std::int64_t all_steps() const { return pixel_count(low_); }
  // Tells whether all pixels see x with three rows of the filter, which one register tile takes.
  // There must be room for the edges of all rows, which are copied where x is read in place.
  bool takes_filter() const {
    const SpatialAxis &ah = pb_.axis[1], &aw = pb_.axis[2];
    const std::int64_t k = tile_.k.size(), lanes = isa_.max_columns / 2;
    return !kIsPair<Element> && panels_.joined && !form_.swapped && reuse_ == Reuse::filter &&
           groups_ == 1 && ah.taps == 3 && 3 * aw.taps * tile_.c.size() <= 2 * isa_.max_rows &&
           k <= lanes && input_position(ah, low_[2].begin, 0) >= 0 &&
           input_position(ah, low_[2].end - 1, 2) < ah.in &&
           3 * ((steps() - inner_.size()) * aw.stride + 2 * aw.taps) <= columns_;
  }
  // Tells whether every tap goes through all pixels of each row.
  bool sees_whole_rows() const { return panels_.joined || !sees_padding(pb_.axis[2]); }
  Region x_of(const PixelBox& box) const {
    const Range c = x_channels();
    return x_region(pb_, block_, box, {c.begin, c.end + (groups_ - 1) * pb_.group_c()});
  }
  Region dy_of(const PixelBox& box) const {
    return dy_region(pb_, block_, box,
                     {tile_.k.begin, tile_.k.end + (groups_ - 1) * pb_.group_k()});
  }

  // Returns the panel from output channel k of a group's tile on, a multiple of k_step.
  const Element* dy_panel(std::int64_t group, std::int64_t k) const {
    return dy_ + group * dy_group_ + k / form_.k_step * dy_stride_;
  }
  // Returns the panel from channel c of it on, or from element c of joined (s, c) pairs.
  const Element* x_panel(std::int64_t group, std::int64_t c) const {
    const std::int64_t of_group =
        form_.in_place ? pb_.group_c() : x_panel_count() * x_shape_.panel_stride;
    return x_ + group * of_group + (panels_.joined ? c : c / form_.x_step * x_shape_.panel_stride);
  }
  // Count the elements from one output pixel, or tap, to the next.
  std::int64_t x_pixel() const { return x_pixel_; }
  std::int64_t x_tap() const { return x_tap_; }
  std::int64_t dy_pixel() const { return dy_pixel_; }

  // Each run is a row, or rows that follow each other, of dy and of what sees x of it.
  std::span<const PanelRun> runs() const { return {runs_, static_cast<std::size_t>(run_count_)}; }

  // Lists the chunk's rows for which filter row (t, r) is in x, and where the x panel has them.
  // Zeros of rows that see only padding are never multiplied.
  // With three, each pixel of the first filter row is listed, which all of them see.
  void list_rows(std::int64_t t, std::int64_t r, std::int64_t filter_rows = 1) {
    const auto& [ad, ah, aw] = pb_.axis;
    const bool in_place = form_.in_place, packs = reuse_ != Reuse::filter;
    const std::int64_t line = columns_ * x_shape_.step, pixels = steps();
    const std::int64_t w = in_place ? input_position(aw, low_[3].begin, 0) : 0;
    const std::int64_t x_line = in_place || packs ? block_.x_strides.spatial[1] : line;
    const std::int64_t x_step = ah.stride * x_line, thirds = form_.thirds;
    const std::int64_t a_row = thirds > 1 ? form_.x_step / thirds : ah.dilation * x_line;
    const std::int64_t dy_step =
        form_.dy_in_place ? block_.dy_strides.spatial[1] : pixels * dy_pixel_;
    const bool swapped = form_.swapped, joins = sees_whole_rows();
    const auto* nothing = reinterpret_cast<const char*>(runs_);  // any address that is in a cache
    std::int64_t dy = 0, x_end = -1, dy_end = -1;
    PanelRun* run = runs_;
    const auto add = [&](std::int64_t x_at, std::int64_t dy_at, std::int64_t count,
                         std::int64_t row) {
      if (joins && x_at == x_end && dy_at == dy_end) {
        run[-1].pixels += count;
      } else {
        *run++ = {swapped ? dy_at : x_at, swapped ? x_at : dy_at, row, count, nothing, 0};
      }
      x_end = x_at + count * x_pixel_;
      dy_end = dy_at + count * dy_pixel_;
    };
    const bool copies_edges = in_place && panels_.joined;
    const std::int64_t left = copies_edges ? inner_.begin - box_[3].begin : 0;
    const std::int64_t right = copies_edges ? inner_.end - box_[3].begin : pixels;
    Element* edge = x_panels_;
    const auto add_edge = [&](std::int64_t x_at, Range part, std::int64_t dy_at) {
      const Element* const first = edge;
      const std::int64_t at = copy_edge(x_at, part, &edge);
      const std::int64_t size = thirds > 1 ? a_row : edge - first;
      for (std::int64_t i = 1; i < filter_rows; ++i) copy_edge(x_at + i * a_row, part, &edge);
      add(at, dy_at + part.begin * dy_pixel_, part.size(), size);
    };
    row_count_ = 0;
    for (std::int64_t n = low_[0].begin; n < low_[0].end; ++n) {
      for (std::int64_t z = low_[1].begin; z < low_[1].end; ++z) {
        std::int64_t p = low_[2].begin, h = input_position(ah, p, r);
        const std::int64_t d = input_position(ad, z, t);
        const std::int64_t plane = (n - low_[0].begin) * lines_[0].size() + d - lines_[0].begin;
        std::int64_t at = in_place || packs
                              ? x_offset(block_, n, d, h, w)
                              : (plane * lines_[1].size() + h - lines_[1].begin) * line;
        if (form_.dy_in_place) dy = dy_offset(block_, n, z, p, low_[3].begin);
        for (; p < low_[2].end; ++p, h += ah.stride, at += x_step, dy += dy_step) {
          RowsThere there = rows_there(d, h);
          there.second = there.second && has_second(n, z, p);
          if (!there.any()) continue;
          std::int64_t x = at;
          if (packs) {
            x = row_count_ * line;
            rows_[row_count_++] = {at, there};
          }
          if (left > 0) add_edge(x, {0, left}, dy);
          if (right > left) add(x + left * x_pixel_, dy + left * dy_pixel_, right - left, a_row);
          if (right < pixels) add_edge(x, {right, pixels}, dy);
        }
      }
    }
    run_count_ = run - runs_;
  }

  // Returns what a tap of the filter row sees of a row's elements, or a few more.
  Range seen_by(std::int64_t s) const {
    const Range inside = intersect(box_[3], outputs_inside(pb_.axis[2], s));
    const Range seen = halves_.seen(box_, 3, inside);
    return {seen.begin - box_[3].begin, seen.end - box_[3].begin};
  }

  // Packs the listed rows, for taps first_tap, ... of the filter row.
  void pack_rows(std::int64_t first_tap) {
    begin_panels(row_count_, first_tap);
    for (std::int64_t row = 0; row < row_count_; ++row) {
      pack_lines(row, 1, rows_[row].start, rows_[row].there);
    }
  }

 private:
  // Returns the positions along d or h of the rows that elements see with all taps. Where second
  // pixels are further along the axis, first ones may see padding in them.
  Range lines_of(std::size_t a) const {
    if (halves_.axis != a + 1) return input_[a];
    const SpatialAxis& axis = pb_.axis[a];
    const Range outputs = low_[a + 1];
    return intersect({-apart_[a], axis.in},
                     {input_position(axis, outputs.begin, 0),
                      input_position(axis, outputs.end - 1, axis.taps - 1) + 1});
  }

  RowsThere rows_there(std::int64_t d, std::int64_t h) const {
    return {contains(input_[0], d) && contains(input_[1], h),
            kIsPair<Element> && contains(input_[0], d + apart_[0]) &&
                contains(input_[1], h + apart_[1])};
  }

  // Copies what such pixels of a row see of x, which begins at row_start, zeros for padding, to
  // *edge, which is moved behind them. Returns where they are, counted from x.
  std::int64_t copy_edge(std::int64_t row_start, Range pixels, Element** edge) const {
    const SpatialAxis& axis = pb_.axis[2];
    const std::int64_t channels = tile_.c.size(), first = input_position(axis, low_[3].begin, 0);
    const Range columns = {pixels.begin * axis.stride, (pixels.end - 1) * axis.stride + axis.taps};
    const Range there = intersect(columns, {input_[2].begin - first, input_[2].end - first});
    Element* const begin = std::exchange(*edge, *edge + columns.size() * channels);
    std::fill(begin, *edge, Element{});
    std::copy_n(x_ + row_start + there.begin * channels, there.size() * channels,
                begin + (there.begin - columns.begin) * channels);
    // The two are no parts of one array, for which C++ would know a distance.
    return (reinterpret_cast<std::intptr_t>(begin) - reinterpret_cast<std::intptr_t>(x_)) /
           static_cast<std::int64_t>(sizeof(Element));
  }

  // Tells whether a row has second pixels; along q, the first of an odd number has none.
  bool has_second(std::int64_t n, std::int64_t z, std::int64_t p) const {
    return n >= pairs_[0].begin && z >= pairs_[1].begin && p >= pairs_[2].begin;
  }

  // Fills dy_panels_[k / k_step][row][pixel][k % k_step], zeros behind the last k.
  void pack_dy() {
    const Strides& strides = block_.dy_strides;
    // Where whole rows follow each other in the file as in the panel, one call packs all of them.
    const bool together =
        low_[3] == box_[3] && strides.spatial[1] == box_[3].size() * strides.spatial[2];
    dy_elements_ = 0;
    for (std::int64_t n = low_[0].begin; n < low_[0].end; ++n) {
      for (std::int64_t z = low_[1].begin; z < low_[1].end; ++z) {
        for (std::int64_t p = low_[2].begin, end = p; p < low_[2].end; p = end) {
          end = !together ? p + 1 : p < pairs_[2].begin ? pairs_[2].begin : low_[2].end;
          const std::int64_t at = dy_offset(block_, n, z, p, 0), rows = end - p;
          pack_pixels(at, rows, {low_[3].begin, pairs_[3].begin}, false);
          pack_pixels(at, rows, pairs_[3], has_second(n, z, p));
        }
      }
    }
  }
  void pack_pixels(std::int64_t row_start, std::int64_t rows, Range pixels, bool is_pair) {
    if (pixels.size() <= 0) return;
    const Strides& s = block_.dy_strides;
    const std::int64_t offset = row_start + pixels.begin * s.spatial[2] + tile_.k.begin * s.c;
    PackSource from = source(block_.dy, offset, s.spatial[2], dy_apart_, s.c);
    if (!is_pair) from.second = nullptr;
    pack(from, rows * pixels.size(), tile_.k.size(), {static_cast<int>(form_.k_step), dy_stride_},
         dy_panels_ + dy_elements_);
    dy_elements_ += rows * pixels.size() * form_.k_step;
  }

  // Packs the channels of all groups, which are of one panel or several, at once where those are
  // full: panels would hold neighbouring channels else.
  void pack(PackSource from, std::int64_t pixels, std::int64_t channels, const PanelShape& shape,
            Element* out) {
    const std::int64_t at_once = channels % shape.step == 0 ? groups_ : 1;
    const std::int64_t bytes = channels * from.channel_stride * std::int64_t{sizeof(Scalar)};
    const std::int64_t panels = ceil_div(channels, shape.step);
    for (std::int64_t g = 0; g < groups_; g += at_once) {
      isa_.pack(from, pixels, at_once * channels, shape, out + g * panels * shape.panel_stride);
      for (const void** pixel : {&from.data, &from.second}) {
        if (*pixel != nullptr) *pixel = static_cast<const std::byte*>(*pixel) + bytes;
      }
    }
  }

  PackSource source(const void* data, std::int64_t offset, std::int64_t pixel_stride,
                    std::int64_t apart, std::int64_t channel_stride) const {
    const Scalar* at = static_cast<const Scalar*>(data) + offset;
    return {at, kIsPair<Element> ? at + apart : nullptr, static_cast<int>(pb_.dtype), pixel_stride,
            channel_stride};
  }

  // Tells whether dy is finite where it meets zeros for padding.
  bool edges_are_finite() const {
    if (inner_ == box_[3]) return true;
    const std::int64_t panels = ceil_div(tile_.k.size(), form_.k_step);
    std::int64_t packed = 0;
    bool finite = true;
    for_each_row(box_, [&](std::int64_t n, std::int64_t z, std::int64_t p) {
      const std::int64_t at =
          form_.dy_in_place ? dy_offset(block_, n, z, p, box_[3].begin) : packed;
      packed += steps() * dy_pixel_;
      for (std::int64_t q = box_[3].begin; q < box_[3].end; ++q) {
        if (q == inner_.begin) q = inner_.end;
        if (q == box_[3].end) break;
        const std::int64_t pixel = at + (q - box_[3].begin) * dy_pixel_;
        for (std::int64_t i = 0; i < groups_ * panels; ++i) {
          const std::int64_t k = i % panels * form_.k_step;
          const std::int64_t count = std::min(form_.k_step, tile_.k.size() - k);
          finite = finite && isa_.all_finite(dy_panel(i / panels, k) + pixel, count);
        }
      }
    });
    return finite;
  }
  // Finds the range of panels of pairs.
  ExponentRange range_of(const Element* panel, std::int64_t elements, std::int64_t panels,
                         std::int64_t stride) const {
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Element));
    ExponentRange range;
    isa_.exponent_range(panel, elements * kBytes / 2, panels, stride * kBytes, range);
    return range;
  }

  std::int64_t x_panel_count() const { return ceil_div(tile_.c.size(), x_shape_.step); }
  // Returns the channels of the first group.
  Range x_channels() const {
    const std::int64_t first = tile_.k.begin / pb_.group_k() * pb_.group_c();
    return {first + tile_.c.begin, first + tile_.c.end};
  }

  // Panels are read in place of the file where they hold all of x: they are in the cache.
  ExponentRange x_range() const {
    if (reuse_ != Reuse::filter) return exponent_range_of(x_of(box_), isa_.exponent_range);
    return range_of(x_panels_, x_shape_.panel_stride - kPanelSlack, groups_ * x_panel_count(),
                    x_shape_.panel_stride);
  }

  // Packs x for all taps. A row of x is packed once and read by all of them, from the cache.
  void pack_filter() {
    begin_panels(low_[0].size() * lines_[0].size() * lines_[1].size(), 0);
    const bool together =
        is_joined_in_file() && low_columns_ == high_columns_ && low_columns_.size() > 0;
    std::int64_t line = 0;
    for (std::int64_t n = low_[0].begin; n < low_[0].end; ++n) {
      for (std::int64_t d = lines_[0].begin; d < lines_[0].end; ++d) {
        for (std::int64_t h = lines_[1].begin; h < lines_[1].end;) {
          const RowsThere there = rows_there(d, h);
          const std::int64_t first = h++;
          while (together && there.any() && h < lines_[1].end && rows_there(d, h) == there) ++h;
          pack_lines(line, h - first, x_offset(block_, n, d, first, 0), there);
          line += h - first;
        }
      }
    }
  }

  // Panels follow each other without a gap but for what packing may spoil behind the last pixel.
  // Their columns begin with what first_tap sees of the first pixel.
  void begin_panels(std::int64_t lines, std::int64_t first_tap) {
    x_shape_.panel_stride = lines * columns_ * x_shape_.step + kPanelSlack;
    first_ = input_position(pb_.axis[2], low_[3].begin, first_tap);
    low_columns_ = panels_.columns_of(input_[2], first_, columns_);
    high_columns_ = panels_.columns_of(input_[2], first_ + apart_[2], columns_);
  }

  // Tells whether a joined panel's row is as it stands in the file.
  bool is_joined_in_file() const {
    return panels_.joined && groups_ == 1 && block_.x_strides.c == 1 &&
           panels_.step * block_.x_strides.spatial[2] == tile_.c.size();
  }

  // Packs rows of x, zeros outside of what the chunk's pixels see: in x there may be anything,
  // or it may not be in the block.
  void pack_lines(std::int64_t line, std::int64_t lines, std::int64_t row_start, RowsThere there) {
    const Range low = low_columns_, high = high_columns_;
    const std::int64_t cuts[] = {
        0,       high.begin, std::min(high.end, low.begin), std::max(high.end, low.begin),
        low.end, columns_};
    for (int i = 0; i < 5; ++i) {
      const Range part = {cuts[i], cuts[i + 1]};
      if (part.size() <= 0) continue;
      pack_columns(
          line, lines, row_start, part,
          {there.first && contains(low, part.begin), there.second && contains(high, part.begin)});
    }
  }

  // Packs one part of a line: where neither pixel of an element is in x, zeros; where one is, the
  // other is read as zeros.
  void pack_columns(std::int64_t line, std::int64_t lines, std::int64_t row_start, Range columns,
                    RowsThere there) {
    Element* out = x_panels_ + (line * columns_ + columns.begin) * x_shape_.step;
    for (std::int64_t b = 0; !there.any() && b < groups_ * x_panel_count(); ++b) {
      std::fill_n(out + b * x_shape_.panel_stride, columns.size() * x_shape_.step, Element{});
    }
    if (!there.any()) return;
    const Strides& strides = block_.x_strides;
    const std::int64_t w = strides.spatial[2];
    const std::int64_t offset =
        row_start + (first_ + columns.begin * panels_.step) * w + x_channels().begin * strides.c;
    PackSource from = source(block_.x, offset, panels_.step * w, x_apart_, strides.c);
    if (!there.first) from.data = nullptr;
    if (!there.second) from.second = nullptr;
    const std::int64_t channels = tile_.c.size();
    if (is_joined_in_file()) {
      // Zeros behind a row are the padding on both sides of it.
      const std::int64_t count = columns.size() * channels;
      from.pixel_stride = strides.spatial[1];
      isa_.pack(from, lines, count, {static_cast<int>(columns_ * channels), 0}, out);
      return;
    }
    pack(from, columns.size(), channels, x_shape_, out);
  }

  const OuterProductIsa<Element>& isa_;
  const WgradProblem& pb_;
  const Block& block_;
  const Tile tile_;
  const std::int64_t groups_;
  const OuterProductShape whole_;
  const XPanels& panels_ = whole_.x;
  const Halves& halves_ = whole_.halves;
  const TileForm form_;
  const Reuse reuse_ = form_.in_place ? Reuse::filter : panels_.reuse;
  Element* dy_panels_;
  Element* x_panels_;
  const Element* x_ = x_panels_;  // what is read: panels, or the block
  const Element* dy_ = dy_panels_;
  PanelShape x_shape_{static_cast<int>(panels_.joined ? tile_.c.size() : form_.x_step), 0};
  // Count elements from one output pixel, tap or panel of dy to the next.
  std::int64_t x_pixel_ = panels_.pixel_columns * x_shape_.step, dy_pixel_ = form_.k_step;
  std::int64_t x_tap_ = panels_.tap_columns * x_shape_.step;
  std::int64_t dy_stride_ = kMaxChunkPixels * form_.k_step + kPanelSlack;
  std::int64_t dy_group_ = ceil_div(tile_.k.size(), form_.k_step) * dy_stride_;  // ... or group
  PixelBox box_, low_, pairs_;  // the chunk, its elements, those with a second pixel
  Range inner_;                 // of the chunk's columns, those that see no padding
  std::array<Range, 3> input_;
  std::array<Range, 2> lines_;    // positions along d and h of the rows that a packing has
  std::int64_t dy_elements_ = 0;  // of a panel, as they are packed now
  std::int64_t x_apart_ = 0, dy_apart_ = 0;  // from a first pixel to the second, in the files
  std::array<std::int64_t, 3> apart_{};      // ... along x's axes
  std::int64_t first_ = 0;                   // the column of x that the x panels begin with
  Range low_columns_, high_columns_;  // of them, where the first pixel is in x, and the second
  std::int64_t columns_ = 0;          // of the x panels
  std::int64_t row_count_ = 0, run_count_ = 0;
  RowSource rows_[kMaxChunkPixels];
  PanelRun runs_[kMaxChunkPixels];
};

}  // namespace convgrad
