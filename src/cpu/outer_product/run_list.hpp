// run_list.hpp - rows of pixels as the runs that a register tile goes through, and what is fetched
// meanwhile.
//
// While a chunk is computed, the next one is fetched into the second cache, a line for each pixel
// of the last register tiles: late enough to be still there when it is packed. From the start of a
// chunk on, it would evict panels of many channels (docs/measurements/performance.md).
#pragma once

#include <algorithm>

#include "cpu/outer_product/chunk_panels.hpp"
#include "engine/region.hpp"

namespace convgrad {

class RunList {
 public:
  // For a chunk whose register tiles go through `steps` elements of dy in each of `calls` calls.
  void start(const Region& x, const Region& dy, std::int64_t calls, std::int64_t steps) {
    const auto worth_it = [](const Region& region) {
      return region.piece_bytes() < kLeastPiece ? Region() : region;
    };
    fetch_.start(worth_it(x), worth_it(dy));
    calls_left_ = calls;
    // A quarter more calls than lines need: runs end with pieces of memory, and with rows.
    fetch_calls_ = fetch_.bytes() / LineCursor::kLineBytes / steps * 5 / 4 + 1;
  }
  void skip(std::int64_t calls) { calls_left_ -= calls; }
  void forget_rows() { rows_stay_ = false; }

  // Before each call. True if lines are to be fetched in it: then runs are parts of rows. Otherwise
  // each is a whole row, and they serve all register tiles until other rows are listed.
  template <typename Panels>
  bool list(const Panels& panels) {
    const bool fetches = calls_left_-- <= fetch_calls_ && !fetch_.done();
    if (fetches || !rows_stay_) {
      list_rows(panels, fetches);
      rows_stay_ = !fetches;
    }
    return fetches;
  }
  const PanelRun* data() const { return runs_; }
  std::int64_t count() const { return count_; }

 private:
  // Runs end with pieces of memory: of few lines, as with few channels of many, they would be so
  // short that listing them takes longer than waiting for what they fetch.
  static constexpr std::int64_t kLeastPiece = 4 * LineCursor::kLineBytes;
  // Pixels of a run: short enough to give each its own lines to fetch.
  static constexpr std::int64_t kRunPixels = 32;

  template <typename Panels>
  void list_rows(const Panels& panels, bool fetches) {
    const TileForm& form = panels.form();
    const std::int64_t steps = panels.steps(), x_line = panels.x_line(), x_pixel = panels.x_pixel();
    const auto* nothing = reinterpret_cast<const char*>(runs_);  // any address that is in a cache
    count_ = 0;
    for (const PanelRow& row : panels.rows()) {
      for (std::int64_t p = 0; p < steps;) {
        const std::int64_t x = row.line * x_line + p * x_pixel;
        const std::int64_t dy = row.dy + p * form.k_step;
        PanelRun& run = runs_[count_++];
        run = {form.swapped ? dy : x, form.swapped ? x : dy,
               fetches ? std::min(kRunPixels, steps - p) : steps, nothing, nothing};
        const std::int64_t lines = fetches ? fetch_.next(run.pixels, &run.prefetch) : 0;
        if (lines > 0) {
          run.pixels = lines;
          run.prefetch_end = run.prefetch + lines * LineCursor::kLineBytes;
        }
        p += run.pixels;
      }
    }
  }

  LineCursor fetch_;
  std::int64_t calls_left_ = 0, fetch_calls_ = 0;
  bool rows_stay_ = false;
  std::int64_t count_ = 0;
  PanelRun runs_[kMaxChunkPixels];
};

}  // namespace convgrad
