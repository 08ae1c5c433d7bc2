// outer_product_tile.hpp - does one tile's work of outer_product.
//
// The sums of a register tile stay in registers over all the chunk's pixels, also across rows and
// images, and are added to the float64 partial at the end. Taps are outside of the panels of dy,
// which a panel of x of at most 14 rows meets one after the other: it stays in the first cache,
// dy's panels in the second.
#pragma once

#include "cpu/outer_product/chunk_panels.hpp"
#include "cpu/shared/first_sums.hpp"
#include "engine/region.hpp"

namespace convgrad {

// Lists rows of pixels as runs that a register tile goes through, and what is fetched meanwhile.
//
// While a chunk is computed, the next one is fetched into the second cache, a line for every few
// pixels of the last register tiles: earlier it would evict panels of many channels.
class RunList {
 public:
  // Starts a chunk whose register tiles go through `steps` elements of dy in each of `calls` calls.
  void start(const Region& x, const Region& dy, std::int64_t calls, std::int64_t steps,
             int filter_rows) {
    const auto worth_it = [](const Region& region) {
      return region.piece_bytes() < kLeastPiece ? Region() : region;
    };
    fetch_.start(worth_it(x), worth_it(dy));
    calls_left_ = calls;
    // A quarter more pixels than lines need: runs end with pieces of memory, and with rows.
    const std::int64_t pixels = fetch_.bytes() / LineCursor::kLineBytes * 5 / 4 + 1;
    step_ = kLine / std::clamp<std::int64_t>(calls * steps / pixels, 1, kMostApart);
    if (filter_rows > 1 && calls * steps < pixels) step_ = 2 * kLine;
    fetch_calls_ = pixels * kLine / step_ / steps + 1;
  }
  void skip(std::int64_t calls) { calls_left_ -= calls; }

  // Runs end with pieces of memory: listing those of few lines would take longer than waiting.
  static constexpr std::int64_t kLeastPiece = 4 * LineCursor::kLineBytes;

  // Is called before each call: returns the panels' runs, or parts of them if it fetches lines.
  template <typename Panels>
  std::span<const PanelRun> list(const Panels& panels) {
    if (calls_left_-- > fetch_calls_ || fetch_.done()) return panels.runs();
    PanelRun* out = runs_;
    const std::int64_t a_pixel = panels.form().swapped ? panels.dy_pixel() : panels.x_pixel();
    const std::int64_t b_pixel = panels.form().swapped ? panels.x_pixel() : panels.dy_pixel();
    for (PanelRun rest : panels.runs()) {
      while (rest.pixels > 0) {
        PanelRun& run = *out++ = rest;
        const std::int64_t lines = fetch_.next(ceil_div(run.pixels * step_, kLine), &run.prefetch);
        if (lines > 0) {
          run.pixels = std::min(ceil_div(lines * kLine, step_), run.pixels);
          run.prefetch_step = step_;
        }
        rest.pixels -= run.pixels;
        rest.a += run.pixels * a_pixel;
        rest.b += run.pixels * b_pixel;
      }
    }
    return {runs_, out};
  }

 private:
  // Lines are so many pixels apart, at most: one with each pixel keeps loads waiting.
  static constexpr std::int64_t kMostApart = 4, kLine = LineCursor::kLineBytes;

  LineCursor fetch_;
  std::int64_t calls_left_ = 0, fetch_calls_ = 0, step_ = 1;  // bytes with a pixel
  PanelRun runs_[kMaxChunkPixels];
};

template <typename Scalar, typename Element>
class OuterProductTile {
 public:
  OuterProductTile(const OuterProductIsa<Element>& isa, const WgradProblem& problem,
                   const Block& block, const Tile& tile, Element* workspace, TileSums& sums)
      : isa_(isa),
        pb_(problem),
        panels_(isa, problem, block, tile, workspace),
        whole_(tile),
        sums_(sums) {}

  // Returns false if the chunk must be left to plain multiply-adds, as ChunkPanels::start() says.
  bool add_chunk(const PixelBox& box, const PixelBox* next, double* partial) {
    const bool starts = panels_.start(box);
    const bool stores = stores_first(pb_, whole_, box, starts, sums_.fresh, partial);
    if (!starts) return false;
    sums_.are_in_result = stores && sums_.result != nullptr;
    const Cells results = pb_.out_dtype == DType::bf16 ? Cells::bfloat16s : Cells::results;
    cells_ = sums_.are_in_result ? results : stores ? Cells::stored : Cells::added_to;
    const SpatialAxis &ad = pb_.axis[0], &ah = pb_.axis[1], &aw = pb_.axis[2];
    const int together = panels_.takes_filter() ? 3 : 1;
    const std::int64_t calls = panels_.groups() * calls_in_filter_row();
    // Parts of rows, as they are fetched with, cannot leave padding out.
    if (form().in_place && !panels_.sees_whole_rows()) next = nullptr;
    runs_.start(next != nullptr ? panels_.x_of(*next) : Region(),
                next != nullptr ? panels_.dy_of(*next) : Region(),
                ad.taps * ah.taps / together * calls, panels_.all_steps(), together);
    for (std::int64_t t = 0; t < ad.taps; ++t) {
      for (std::int64_t r = 0; r < ah.taps; r += together) {
        panels_.list_rows(t, r, together);
        if (panels_.runs().empty()) {
          runs_.skip(calls);
          continue;
        }
        const std::int64_t filter_row = (t * ah.taps + r) * aw.taps * pb_.group_c() * pb_.K;
        const std::int64_t taps = panels_.reuse() == Reuse::tap ? 1 : aw.taps;  // of a packing
        for (std::int64_t s = 0; s < aw.taps; s += taps) {
          if (panels_.reuse() != Reuse::filter) panels_.pack_rows(s);
          for (std::int64_t g = 0; g < panels_.groups(); ++g) {
            if (panels_.joined()) {
              add_joined(g, filter_row, together);
            } else {
              add_blocks(g, s, taps, filter_row);
            }
          }
        }
      }
    }
    return true;
  }

 private:
  void* at(std::int64_t cell) {
    if (!sums_.are_in_result) return sums_.partial + cell;
    return static_cast<std::byte*>(sums_.result) + cell * dtype_bytes(pb_.out_dtype);
  }

  // Counts calls of isa_.multiply.
  std::int64_t calls_in_filter_row() const {
    const std::int64_t c = tile().c.size(), taps = pb_.axis[2].taps, step = form().x_step;
    const std::int64_t blocks =
        panels_.joined() ? ceil_div(taps * c, step) : taps * ceil_div(c, step);
    return blocks * ceil_div(tile().k.size(), form().k_step);
  }

  const TileForm& form() const { return panels_.form(); }
  const Tile& tile() const { return panels_.tile(); }

  // Channels of x are outside of taps: all taps read the same panel of them, each from a few
  // columns further on, while it is in the first cache. Taps first_tap, ... from a panel that
  // begins with what first_tap sees.
  void add_blocks(std::int64_t group, std::int64_t first_tap, std::int64_t taps,
                  std::int64_t filter_row) {
    const std::int64_t x_step = form().x_step;
    for (std::int64_t c = 0; c < tile().c.size(); c += x_step) {
      const std::int64_t count = std::min(x_step, tile().c.size() - c);
      for (std::int64_t s = 0; s < taps; ++s) {
        add_rows(group, count, panels_.x_panel(group, c) + s * panels_.x_tap(),
                 panels_.seen_by(first_tap + s),
                 filter_row + ((first_tap + s) * pb_.group_c() + tile().c.begin + c) * pb_.K);
      }
    }
  }

  // A register tile's (s, c) are neighbours, in the panel as in the filter.
  void add_joined(std::int64_t group, std::int64_t filter_row, int filter_rows) {
    const std::int64_t total = pb_.axis[2].taps * tile().c.size(), x_step = form().x_step;
    for (std::int64_t i = 0; i < total; i += x_step) {
      const int thirds = form().thirds;
      add_rows(group, std::min(x_step, total - i) / thirds, panels_.x_panel(group, i),
               {0, panels_.steps()}, filter_row + i * pb_.K, std::max(filter_rows, thirds));
    }
  }

  // Multiplies the listed rows of `count` channels of x by every dy panel, for `count` rows of the
  // filter from `out` on. Elements that are not in `seen` meet zeros in x and may be left out.
  void add_rows(std::int64_t group, std::int64_t count, const Element* x, Range seen,
                std::int64_t out, int filter_rows = 1) {
    const std::int64_t x_pixel = panels_.x_pixel(), dy_pixel = panels_.dy_pixel();
    const std::int64_t k_step = form().k_step;
    for (std::int64_t k = 0; k < tile().k.size(); k += k_step) {
      const std::span<const PanelRun> runs = runs_.list(panels_);
      if (seen.size() <= 0) continue;
      // Where lines are fetched, runs are parts of rows, which cannot be trimmed alike.
      const Range part = runs.data() != panels_.runs().data() ? Range{0, panels_.steps()} : seen;
      const Element* x_first = x + part.begin * x_pixel;
      const Element* dy_first = panels_.dy_panel(group, k) + part.begin * dy_pixel;
      const std::int64_t trim = panels_.steps() - part.size();
      ProductView<Element> view = {x_first, dy_first, x_pixel, dy_pixel,   trim,
                                   cells_,  false,    0,       filter_rows};
      int rows = static_cast<int>(count);
      int columns = static_cast<int>(std::min(k_step, tile().k.size() - k));
      if (form().swapped) {
        view = {dy_first, x_first, dy_pixel, x_pixel, trim, cells_, true, 0, filter_rows};
        std::swap(rows, columns);
      }
      view.skipped = static_cast<int>(round_up(columns, form().part)) - columns;
      view.b -= view.skipped;
      columns += view.skipped;
      isa_.multiply(rows, columns, view, runs.data(), std::ssize(runs),
                    at(out + tile().k.begin + group * pb_.group_k() + k), pb_.K);
    }
  }

  const OuterProductIsa<Element>& isa_;
  const WgradProblem& pb_;
  ChunkPanels<Scalar, Element> panels_;
  RunList runs_;
  const Tile& whole_;  // tile() is of its first group
  TileSums& sums_;
  Cells cells_ = Cells::added_to;  // what happens to the chunk's sums
};

}  // namespace convgrad
