// depthwise_lines.hpp - rings of lines of x and dy in shared memory for depthwise.hpp.
//
// A line is one row of pixels, of `planes` planes side by side. A chunk is gone through in runs,
// each down a column of tiles; a step has `rows` output rows of a run. The lines of x that its taps
// see are a window: output row i sees line i * row_step + tap * row_tap of it. Windows of a run
// overlap, and a step copies what the one before has not, so that x is read once but for the rows
// between chunks. Where taps are far apart, or strides large, each tap's rows are copied on their
// own, one behind the other, instead of all between them; and so are columns.
#pragma once

#include <cstddef>

#include "cuda/kernels/bulk.hpp"
#include "cuda/kernels/geometry.hpp"

namespace convgrad::cuda {

inline constexpr int kDepthwiseWarps = 8;
inline constexpr int kStrip = 8;         // neighbouring pixels of a row that a warp takes together
inline constexpr int kVectorBytes = 16;  // that are copied at a time
inline constexpr int kLinesAhead = 2;    // steps whose copies are under way
// Devices of compute capability 8.6 have 99 KiB for a block, others of 8.0 and up have more. Those
// of 7.5 have 64 KiB, where nothing is copied ahead.
inline constexpr int kRingBytes = 96 * 1024, kLeastRingBytes = 64 * 1024 - kBulkAlignment;

// A strip has so many rows, which see some lines of x together, where registers suffice besides so
// many bytes of sums; and so many thread blocks a multiprocessor.
constexpr int strip_rows(std::size_t sum_bytes) { return sum_bytes <= 144 ? 2 : 1; }
constexpr int resident_blocks(std::size_t sum_bytes) { return sum_bytes <= 200 ? 2 : 1; }

// i / divisor by a product, for i and divisors below 2^15.
struct Divider {
  std::uint32_t reciprocal;  // ceil(2^31 / divisor): too large by less than 1, and 2^15 / 2^31 is
                             // less than 1 / divisor
  CONVGRAD_HD int quotient(int i) const {
    // Twice the product has 2^32 where the product has 2^31, and its upper half is one instruction.
    return static_cast<int>(
        static_cast<std::uint64_t>(static_cast<std::uint32_t>(2 * i)) * reciprocal >> 32);
  }
};

enum class LineKind : int {
  dense,  // no stride, no dilation
  twice,  // columns with stride 2
  any     // columns of each tap are neighbours in shared memory
};

// Lines of one tensor.
struct Lines {
  int vectors, pitch;  // of a pixel: 16 bytes each, and bytes of all
  int columns;         // of a plane
  int line_bytes;      // a multiple of kBulkAlignment
  Divider by_vectors;
};

// Follows from the shape and the dtype alone (depthwise_choice.cpp), but for `ahead`.
struct LineLayout {
  LineKind kind;
  int panel;                         // output channels of a block
  int planes, rows, columns;         // output pixels of a step
  int strips, row_units, unit_rows;  // strips of a row; a strip has unit_rows rows
  Divider by_strips, by_units, by_planes, by_parts;
  int row_taps, row_step, row_tap;  // taps, and the lines from row to row, from tap to tap
  int column_taps, column_tap;      // the same in a line, for LineKind::any
  bool apart_rows, apart_columns;   // each tap's are copied on their own
  int window;                       // lines of x of a step
  int x_slots, dy_slots;            // lines of the rings
  int parts;                        // into which warps cut a plane's line to copy it
  int ahead;                        // kLinesAhead, or 0: steps that are copied ahead
  int ring_bytes;
  Lines x, dy;
};

// Where lines are boxes of x and dy, which compute capability 9.0 copies in bulk.
struct BulkLines {
  BulkTensor x, dy;
  std::int64_t first_image;  // of these tensors, which begin at View::lo
  int log_copiers;           // warps that start copies
  bool used;

  CONVGRAD_HD int copiers() const { return 1 << log_copiers; }
};

// A step of a chunk: where it begins within the box, and the slots of its first lines.
struct LineCursor {
  int plane, column, row, x_slot, dy_slot;

  CONVGRAD_HD bool done(const Box& box) const { return plane >= box.size[0] * box.size[1]; }
  CONVGRAD_HD void advance(const LineLayout& l, const Box& box) {
    row += l.rows;
    dy_slot += l.rows;
    if (dy_slot >= l.dy_slots) dy_slot -= l.dy_slots;
    x_slot += row < box.size[2] ? l.rows * l.row_step : l.window;
    if (x_slot >= l.x_slots) x_slot -= l.x_slots;
    if (row < box.size[2]) return;
    row = 0;
    column += l.columns;
    if (column < box.size[3]) return;
    column = 0;
    plane += l.planes;
  }
};

// Copies the lines of a chunk's steps.
template <typename Scalar>
struct LineCopies {
  static constexpr std::int64_t kItem = sizeof(Scalar);

  const BlockParams& work;
  const LineLayout& layout;
  const Box& box;
  int x_panel, dy_panel;  // first channels
  int x_start[3] = {};    // what the tile's first tap sees from the box's first pixel

  // Is a plane's part of a line: the tensor's pixel that it begins with, which columns are there
  // counted from that one, and how many vectors of a pixel from the panel's first on.
  struct Source {
    const unsigned char* first;
    int begin, count;
    std::uint32_t pixel_bytes;
    int vectors;
  };
  CONVGRAD_HD Source source(const View& view, std::int64_t n, int d, int row, int column, int panel,
                            bool there) const {
    const std::int64_t at = view.pixel(n, d, row, column) + panel;
    return {static_cast<const unsigned char*>(view.data) + at * kItem, view.lo[2] - column,
            there ? view.hi[2] - view.lo[2] : 0,
            static_cast<std::uint32_t>(view.spatial[2] * kItem),
            static_cast<int>((view.spatial[2] - panel) * kItem / kVectorBytes)};
  }
  CONVGRAD_HD static bool inside(const View& view, int axis, int at) {
    return at >= view.lo[axis] && at < view.hi[axis];
  }

  // Finds line number i of the step's window.
  CONVGRAD_HD Source x_source(const LineCursor& at, std::int64_t n, int z, int i,
                              bool there) const {
    const Axis* axis = work.shape.axis;
    int row = x_start[1] + at.row * axis[1].stride;
    if (layout.apart_rows) {
      const int down = i / layout.row_taps;
      row += down * axis[1].stride + (i - down * layout.row_taps) * axis[1].dilation;
    } else {
      row += i;
    }
    const int d = x_start[0] + z * axis[0].stride;
    return source(work.x, n, d, row, x_start[2] + at.column * axis[2].stride, x_panel,
                  there && inside(work.x, 0, d) && inside(work.x, 1, row));
  }
  CONVGRAD_HD Source dy_source(const LineCursor& at, std::int64_t n, int z, int i,
                               bool there) const {
    Source from = source(work.dy, n, box.begin[0] + z, box.begin[1] + at.row + i,
                         box.begin[2] + at.column, dy_panel, there && at.row + i < box.size[2]);
    // What is beside the box is another chunk's.
    from.begin = 0;
    from.count = from.count > 0 ? box.size[3] - at.column : 0;
    return from;
  }

  // Warps take parts of planes' lines in turn.
  template <class Block>
  CONVGRAD_HD void copy_step(Block& block, const LineCursor& at, unsigned char* x,
                             unsigned char* dy) const {
    const LineLayout& l = layout;
    const int old = at.row == 0 ? 0 : l.window - l.rows * l.row_step, lines = l.window - old;
    const int items = (lines + l.rows) * l.planes * l.parts;
    CONVGRAD_NO_UNROLL
    for (int i = block.thread() / kWarp; i < items; i += kDepthwiseWarps) {
      const int plane_line = l.by_parts.quotient(i), part = i - plane_line * l.parts;
      int line = l.by_planes.quotient(plane_line);
      const int plane = plane_line - line * l.planes, z_plane = at.plane + plane;
      const int image = box.size[1] == 1 ? z_plane : z_plane / box.size[1];
      const int z = z_plane - image * box.size[1];
      const bool there = image < box.size[0];
      if (line < lines) {
        line += old;
        int slot = at.x_slot + line;
        if (slot >= l.x_slots) slot -= l.x_slots;
        copy_line<true>(block, l.x, x_source(at, box.n + image, z, line, there),
                        x + slot * l.x.line_bytes + plane * l.x.columns * l.x.pitch, part);
      } else {
        line -= lines;
        copy_line<false>(
            block, l.dy, dy_source(at, box.n + image, z, line, there),
            dy + (at.dy_slot + line) * l.dy.line_bytes + plane * l.dy.columns * l.dy.pitch, part);
      }
    }
  }

  // The same in bulk, a line by one thread, of the last warps, which have the fewest strips. All
  // are a round of the barrier.
  template <class Block>
  CONVGRAD_HD void copy_step_in_bulk(Block& block, const BulkLines& bulk, const LineCursor& at,
                                     unsigned char* x, unsigned char* dy,
                                     BulkBarrier& arrived) const {
    const LineLayout& l = layout;
    const int old = at.row == 0 ? 0 : l.window - l.rows * l.row_step, lines = l.window - old;
    const int first = kDepthwiseWarps - 1 - block.thread() / kWarp, copiers = bulk.copiers();
    if (first >= copiers) return;
    block.by_one_of_warp([&] {
      const auto own = [&](int some) { return (some - first + copiers - 1) >> bulk.log_copiers; };
      block.expect_bulk(arrived, l.planes * (own(lines) * l.x.columns * l.x.pitch +
                                             own(l.rows) * l.dy.columns * l.dy.pitch));
      const int image = box.size[1] == 1 ? at.plane : at.plane / box.size[1];
      const int z = at.plane - image * box.size[1];
      const Axis* axis = work.shape.axis;
      int from[5] = {x_panel, x_start[2] + at.column * axis[2].stride - work.x.lo[2],
                     x_start[1] + at.row * axis[1].stride + old + first - work.x.lo[1],
                     x_start[0] + z * axis[0].stride - work.x.lo[0],
                     static_cast<int>(box.n - bulk.first_image) + image};
      int slot = at.x_slot + old + first;
      CONVGRAD_NO_UNROLL
      for (int i = first; i < lines; i += copiers) {
        while (slot >= l.x_slots) slot -= l.x_slots;
        block.copy_bulk(x + slot * l.x.line_bytes, bulk.x, from, arrived);
        from[2] += copiers;
        slot += copiers;
      }
      from[0] = dy_panel;
      from[1] = box.begin[2] + at.column - work.dy.lo[2];
      from[3] = box.begin[0] + z - work.dy.lo[0];
      slot = at.dy_slot + first;
      CONVGRAD_NO_UNROLL
      for (int i = first; i < l.rows; i += copiers) {
        // Rows below the box are another chunk's. In their place are zeros, as above dy.
        const int row = at.row + i;
        from[2] = row < box.size[2] ? box.begin[1] + row - work.dy.lo[1] : -1;
        while (slot >= l.dy_slots) slot -= l.dy_slots;
        block.copy_bulk(dy + slot * l.dy.line_bytes, bulk.dy, from, arrived);
        slot += copiers;
      }
    });
  }

  template <bool kIsX, class Block>
  CONVGRAD_HD void copy_line(Block& block, const Lines& lines, const Source& from,
                             unsigned char* to, int part) const {
    const LineLayout& l = layout;
    const int all = lines.columns * lines.vectors, share = ceil_div(all, l.parts);
    const int end = least(all, (part + 1) * share);
    const Axis& q = work.shape.axis[2];
    CONVGRAD_NO_UNROLL
    for (int i = part * share + block.thread() % kWarp; i < end; i += kWarp) {
      int column = lines.by_vectors.quotient(i);
      const int vector = i - column * lines.vectors;
      if (kIsX && l.apart_columns) {
        const int tap = column / l.columns;
        column = (column - tap * l.columns) * q.stride + tap * q.dilation;
      }
      const bool there =
          static_cast<unsigned>(column - from.begin) < static_cast<unsigned>(from.count) &&
          vector < from.vectors;
      const std::uint64_t apart =
          std::uint64_t{static_cast<std::uint32_t>(column)} * from.pixel_bytes;
      block.copy_async(to + i * kVectorBytes,
                       from.first + (apart + static_cast<std::uint32_t>(vector * kVectorBytes)),
                       there);
    }
  }
};

}  // namespace convgrad::cuda
