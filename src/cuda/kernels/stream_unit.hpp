// stream_unit.hpp - the units of cuda_streaming: outputs that are worked on at a time, and copies
// of what they need to shared memory.
#pragma once

#include "cuda/kernels/sum_again.hpp"

namespace convgrad::cuda {

inline constexpr int kStreamLanes = kWarp;
// Warps are few, as each goes through the loops over units, which are small: a block's shared
// memory holds two of them. Four blocks or more are on a multiprocessor.
inline constexpr int kStreamWarps = 4;
// So many neighbouring pixels of a row share loads: for kS taps, kStreamRun + kS - 1 values of x
// serve kStreamRun * kS products. Longer runs save little more, leave more pixels over at the ends
// of rows, and take registers from the sums.
inline constexpr int kStreamRun = 4;
// Units have so much shared memory beside the warps' sums, together within the 48 KiB that every
// device gives without being asked.
inline constexpr int kStreamBytes = 40 * 1024;

// Says how rows of pixels of x or dy come to shared memory, where each is [pixel][channel].
struct StreamRow {
  int pixels, pitch;  // pitch: elements of a pixel
  int channels;       // that are copied of each
  int piece;          // channels last: elements that one copy takes
  int pieces, log;    // of a pixel; 2^log is that many lanes or more, 32 at most
};

// Holds the outputs that are worked on at a time, and what they see of x. The host chooses them so
// that all fits kStreamBytes (choices.cpp).
struct StreamUnit {
  int rows, columns;
  int band;         // rows that a warp goes down at a time
  int ring;         // rows of x: of two units, as one is loaded while one is multiplied
  StreamRow x, dy;  // for whole runs of dy
  bool fast;        // neither strides nor dilations; pixels of kStreamLanes elements
};

struct StreamParams {
  BlockParams work;
  StreamUnit unit;
  int k_tiles, c_tiles, r_tiles, s_tiles;

  CONVGRAD_HD int x_line() const { return unit.x.pixels * unit.x.pitch; }
  CONVGRAD_HD int dy_line() const { return unit.dy.pixels * unit.dy.pitch; }
  // Returns the place in the ring of a row that is less than the ring's length behind one with
  // place i. A remainder would be a division for every row of taps.
  CONVGRAD_HD int ring_place(int i) const { return i < unit.ring ? i : i - unit.ring; }
  // dy is behind the ring, at a multiple of 16 bytes of any dtype's elements.
  CONVGRAD_HD int dy_begin(int buffer) const {
    return (unit.ring * x_line() + 7) / 8 * 8 + buffer * (unit.rows * dy_line());
  }
};

struct StreamTile {
  int t, r, s, c, k;  // the first of each; c within a group
  int group;          // of k
};

CONVGRAD_HD StreamTile stream_tile(const StreamParams& p, int rows, int columns, int channels,
                                   std::int64_t task) {
  std::int64_t rest = p.work.tile_of(task);
  StreamTile tile;
  tile.k = static_cast<int>(rest % p.k_tiles) * kStreamLanes;
  rest /= p.k_tiles;
  tile.c = static_cast<int>(rest % p.c_tiles) * channels;
  rest /= p.c_tiles;
  tile.s = static_cast<int>(rest % p.s_tiles) * columns;
  rest /= p.s_tiles;
  tile.r = static_cast<int>(rest % p.r_tiles) * rows;
  tile.t = static_cast<int>(rest / p.r_tiles);
  tile.group = tile.k / p.work.shape.group_k;
  return tile;
}

// Is one unit of a task's pixels, and where in the ring the rows of x are that it sees: from place
// `first` on `seen` rows, of which `kept` are there already.
struct StreamStep {
  std::int64_t n;
  int z, p, rows, q, columns;
  int first, seen, kept;
  int buffer;  // of dy

  // Goes to other rows, none of which is there, behind so many places of the ring.
  CONVGRAD_HD void start(const StreamParams& params, int places, int filter_rows, int count) {
    advance(params, places, filter_rows, count);
    kept = 0;
  }
  CONVGRAD_HD void move_down(const StreamParams& params, int filter_rows, int count) {
    const int passed = least(rows * params.work.shape.axis[1].stride, seen);
    const int left = seen - passed;
    p += rows;
    advance(params, passed, filter_rows, count);
    kept = left;
  }

 private:
  CONVGRAD_HD void advance(const StreamParams& params, int places, int filter_rows, int count) {
    const Axis& h = params.work.shape.axis[1];
    first = params.ring_place(first + places);
    rows = count;
    seen = (rows - 1) * h.stride + (filter_rows - 1) * h.dilation + 1;
    buffer ^= 1;
  }
};

// Walks through the units of a slice in order. Strips of columns are outside, rows inside: down a
// strip, the ring keeps the rows that two units see, which are more than the columns that two
// strips see.
template <int kR>
struct StreamWalker : ChunkWalker {
  const StreamParams& params;
  StreamStep step{};

  CONVGRAD_HD StreamWalker(const StreamParams& p, const ChunkWalker& first)
      : ChunkWalker(first), params(p) {
    begin_chunk();
  }
  CONVGRAD_HD void next() {
    const int below = box.begin[1] + box.size[2] - (step.p + step.rows);
    if (below > 0) return step.move_down(params, kR, least(params.unit.rows, below));
    step.q += step.columns;
    if (step.q == box.begin[2] + box.size[3]) {
      step.q = box.begin[2];
      if (++step.z == box.begin[0] + box.size[1]) {
        step.z = box.begin[0];
        if (++step.n == box.n + box.size[0]) {
          ChunkWalker::next();
          return begin_chunk();
        }
      }
    }
    begin_strip();
  }

 private:
  CONVGRAD_HD void begin_chunk() {
    if (done()) return;
    step.n = box.n;
    step.z = box.begin[0];
    step.q = box.begin[2];
    begin_strip();
  }
  CONVGRAD_HD void begin_strip() {
    const StreamUnit& unit = params.unit;
    const int places = step.seen;
    step.columns = least(unit.columns, box.begin[2] + box.size[3] - step.q);
    step.p = box.begin[1];
    step.start(params, places, kR, least(unit.rows, box.size[2]));
  }
};

// Says where a tile's channels are in x or dy: `inside` of each of `groups` groups.
struct StreamChannels {
  std::int64_t first, apart, group_apart;
  int inside, groups;
};

// Copies a unit to shared memory, where elements are as they are in device memory. A warp takes a
// row of pixels at a time.
template <typename Scalar, int kS, int kC>
struct StreamLoad {
  static constexpr int kVector = 16 / static_cast<int>(sizeof(Scalar));
  static constexpr int kBatch = 8;  // loads of a thread under way where no copy takes them

  // Copies `count` pieces of kPiece elements, `apart` in device memory and `step` in shared memory;
  // all but those from lo to hi - 1 are zeros.
  template <int kPiece, class Block>
  CONVGRAD_HD static void copy(Block& block, const Scalar* from, std::int64_t apart, Scalar* to,
                               int step, int count, int lo, int hi) {
    if constexpr (kPiece * sizeof(Scalar) >= 4) {
      CONVGRAD_UNROLL_4
      for (int i = 0; i < count; ++i, from += apart, to += step) {
        block.template copy_async<kPiece * sizeof(Scalar)>(to, from, i >= lo && i < hi);
      }
    } else {  // less than cp.async can copy
      CONVGRAD_NO_UNROLL
      for (int i = 0; i < count; i += kBatch, from += kBatch * apart, to += kBatch * step) {
        Scalar raw[kBatch];
        CONVGRAD_UNROLL
        for (int j = 0; j < kBatch; ++j) {
          raw[j] = i + j >= lo && i + j < hi ? from[j * apart] : Scalar{};
        }
        CONVGRAD_UNROLL
        for (int j = 0; j < kBatch; ++j) {
          if (i + j < count) to[j * step] = raw[j];
        }
      }
    }
  }

  // With channels last lanes go along the pieces of a pixel, then the pixels.
  template <int kPiece, int kInGroup, class Block>
  CONVGRAD_HD static void copy_pixels(Block& block, const StreamRow& row,
                                      const StreamChannels& channels, const Scalar* from,
                                      std::int64_t apart, Scalar* to, int lo, int hi) {
    static_assert(kWarp == 1 << 5);
    const int lane = block.thread() % kWarp, first = lane >> row.log, shift = 5 - row.log;
    // Counts the lane's pixels before one.
    const auto before = [&](int end) {
      return end > first ? (end - first + (1 << shift) - 1) >> shift : 0;
    };
    CONVGRAD_NO_UNROLL
    for (int i = lane & ((1 << row.log) - 1); i < row.pieces; i += kWarp) {
      const int group = i * kPiece / kInGroup, c = i * kPiece % kInGroup;
      const bool there = group < channels.groups && c < channels.inside;
      const std::int64_t at =
          channels.first + group * channels.group_apart + c * channels.apart + first * apart;
      copy<kPiece>(block, from + at, apart << shift, to + first * row.pitch + i * kPiece,
                   row.pitch << shift, before(row.pixels), before(lo), there ? before(hi) : 0);
    }
  }

  // Copies a row whose pixels begin at `from`, `apart`; zeros outside lo <= pixel < hi.
  template <int kInGroup, class Block>
  CONVGRAD_HD static void copy_row(Block& block, const StreamRow& row,
                                   const StreamChannels& channels, bool channels_last,
                                   const Scalar* from, std::int64_t apart, Scalar* to, int lo,
                                   int hi) {
    if (channels_last) {
      if (row.piece == kVector) {
        copy_pixels<kVector, kInGroup>(block, row, channels, from, apart, to, lo, hi);
      } else if (kInGroup == 4 && kInGroup < kVector && row.piece == kInGroup) {
        copy_pixels < kInGroup<kVector ? kInGroup : 1, kInGroup>(block, row, channels, from, apart,
                                                                 to, lo, hi);
      } else {
        copy_pixels<1, kInGroup>(block, row, channels, from, apart, to, lo, hi);
      }
      return;
    }
    // With channels first lanes go along the pixels, and steps along the channels.
    CONVGRAD_NO_UNROLL
    for (int i = block.thread() % kWarp; i < row.pixels; i += kWarp) {
      const bool there = i >= lo && i < hi;
      const Scalar* source = from + channels.first + i * apart;
      Scalar* target = to + i * row.pitch;
      if constexpr (kInGroup == 1) {
        copy<1>(block, source, channels.group_apart, target, 1, row.channels, 0,
                there ? channels.groups : 0);
      } else {
        CONVGRAD_NO_UNROLL
        for (int group = 0; group * kInGroup < row.channels; ++group) {
          copy<1>(block, source + group * channels.group_apart, channels.apart,
                  target + group * kInGroup, 1, kInGroup, 0,
                  there && group < channels.groups ? channels.inside : 0);
        }
      }
    }
  }

  // Copies the rows of x that the ring has not yet.
  template <class Block>
  CONVGRAD_HD static void x(Block& block, const StreamParams& p, const StreamTile& tile,
                            const StreamStep& u, Scalar* ring) {
    const BlockParams& w = p.work;
    const Axis* axis = w.shape.axis;
    const int d = axis[0].first_input(u.z) + tile.t * axis[0].dilation;
    const int h = axis[1].first_input(u.p) + tile.r * axis[1].dilation;
    const int first = axis[2].first_input(u.q) + tile.s * axis[2].dilation;
    const bool inside = d >= w.x.lo[0] && d < w.x.hi[0];
    const int seen = (u.columns - 1) * axis[2].stride + (kS - 1) * axis[2].dilation + 1;
    const int lo = w.x.lo[2] - first, hi = least(seen, w.x.hi[2] - first);
    const std::int64_t group_apart = w.shape.group_c * w.x.c_stride;
    const StreamChannels channels = {tile.group * group_apart + tile.c * w.x.c_stride, w.x.c_stride,
                                     group_apart, w.shape.group_c - tile.c,
                                     w.shape.groups - tile.group};
    const auto* from = static_cast<const Scalar*>(w.x.data) + w.x.pixel(u.n, d, h, first);
    CONVGRAD_NO_UNROLL
    for (int row = u.kept + block.thread() / kWarp; row < u.seen; row += kStreamWarps) {
      const bool there = inside && h + row >= w.x.lo[1] && h + row < w.x.hi[1];
      copy_row<kC>(block, p.unit.x, channels, w.shape.channels_last, from + row * w.x.spatial[1],
                   w.x.spatial[2], ring + p.ring_place(u.first + row) * p.x_line(), lo,
                   there ? hi : 0);
    }
  }

  // Copies dy of the unit.
  template <class Block>
  CONVGRAD_HD static void dy(Block& block, const StreamParams& p, const StreamTile& tile,
                             const StreamStep& u, Scalar* to) {
    const BlockParams& w = p.work;
    const std::int64_t left = w.shape.K - tile.k;
    const int count = left < kStreamLanes ? static_cast<int>(left) : kStreamLanes;
    const StreamChannels channels = {tile.k * w.dy.c_stride, w.dy.c_stride, 0, count, 1};
    const auto* from = static_cast<const Scalar*>(w.dy.data) + w.dy.pixel(u.n, u.z, u.p, u.q);
    CONVGRAD_NO_UNROLL
    for (int row = block.thread() / kWarp; row < u.rows; row += kStreamWarps) {
      copy_row<kStreamLanes>(block, p.unit.dy, channels, w.shape.channels_last,
                             from + row * w.dy.spatial[1], w.dy.spatial[2], to + row * p.dy_line(),
                             0, u.columns);
    }
  }
};

}  // namespace convgrad::cuda
