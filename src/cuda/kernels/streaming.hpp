// streaming.hpp - depthwise and small groups: what is read of x and dy serves all taps.
//
// A block of threads has 32 output channels, one in each lane, and up to kR x kS taps of kC input
// channels of each one's group in registers. It goes through the chunks of one slice in strips of
// columns, and down a strip a unit at a time: a box of output pixels whose dy fits shared memory
// beside the rows of x that its taps see. Those are a ring: the rows that two units see stay there.
// Warps take runs of pixels of the unit in turn. After a chunk the warps' sums are added in order.
// Where dy is not finite, and at ragged ends, products are taken one by one, without padding's.
#pragma once

#include "cuda/kernels/geometry.hpp"
#include "cuda/kernels/sum.hpp"

namespace convgrad::cuda {

inline constexpr int kStreamLanes = 32;
inline constexpr int kStreamWarps = 8;
inline constexpr int kStreamRun = 4;            // neighbouring pixels that share loads of x
inline constexpr int kStreamBytes = 44 * 1024;  // of shared memory: less than every device has

// The outputs that are worked on at a time, and what they see of each image of x.
struct StreamUnit {
  int images, rows, columns;
  int ring;  // rows of x
  int patch_columns;
};

template <typename Scalar, int kR, int kS, int kC>
struct Streaming {
  using Acc = typename AccumulatorOf<Scalar>::type;
  static constexpr int kThreads = kStreamLanes * kStreamWarps;
  static constexpr int kSums = kR * kS * kC;
  static constexpr int kRounds = (kSums + kStreamWarps - 1) / kStreamWarps;
  static constexpr int kRun = kStreamRun;
  static constexpr int kPitch = kStreamLanes + 1;

  struct Params {
    BlockParams work;
    StreamUnit unit;
    int k_tiles, c_tiles, r_tiles, s_tiles;
    int x_channels;  // of the groups that 32 output channels belong to, kC of each
  };
  struct Regs {
    Acc sum[kC][kR][kS];  // of this warp's pixels of the chunk
    Sum<Acc> total[kRounds];
  };
  struct Shared {
    alignas(16) Acc memory[kStreamBytes / sizeof(Acc)];
  };

  // One task's part of dw, and one unit of its pixels.
  struct Tile {
    int t, r, s, c, k;  // the first of each; c within a group
    int group;          // of k
  };
  struct Unit {
    std::int64_t n;
    int images, z, p, rows, q, columns;
    int strip;  // its first p
    int first, begin,
        end;  // rows of x, from the strip's first on: seen from, loaded from and up to
  };

  CONVGRAD_HD static Tile tile_of(const Params& p, std::int64_t task) {
    std::int64_t rest = p.work.tile_of(task);
    Tile tile;
    tile.k = static_cast<int>(rest % p.k_tiles) * kStreamLanes;
    rest /= p.k_tiles;
    tile.c = static_cast<int>(rest % p.c_tiles) * kC;
    rest /= p.c_tiles;
    tile.s = static_cast<int>(rest % p.s_tiles) * kS;
    rest /= p.s_tiles;
    tile.r = static_cast<int>(rest % p.r_tiles) * kR;
    tile.t = static_cast<int>(rest / p.r_tiles);
    tile.group = tile.k / p.work.shape.group_k;
    return tile;
  }

  CONVGRAD_HD static int x_pitch(const Params& p) { return p.x_channels | 1; }
  CONVGRAD_HD static int patch_pixels(const Params& p) {
    return p.unit.images * p.unit.ring * p.unit.patch_columns;
  }
  // The place in the ring of a row that is less than the ring's length behind one with place i.
  CONVGRAD_HD static int ring_place(const Params& p, int i) {
    return i < p.unit.ring ? i : i - p.unit.ring;
  }

  // To the next unit of a strip; `end` is what has been loaded of it.
  CONVGRAD_HD static void move_down(const Params& p, int row, int rows, Unit& u) {
    const Axis& h = p.work.shape.axis[1];
    u.p = u.strip + row;
    u.rows = rows;
    u.first = row * h.stride;
    u.begin = u.first < u.end ? u.end : u.first;
    u.end = u.first + (rows - 1) * h.stride + (kR - 1) * h.dilation + 1;
  }

  // Where channel number j of the patch lies in x; -1 if there is none.
  CONVGRAD_HD static std::int64_t x_channel(const BlockParams& w, const Tile& tile, int j) {
    const int group = tile.group + j / kC, c = tile.c + j % kC;
    if (group >= w.shape.groups || c >= w.shape.group_c) return -1;
    return (static_cast<std::int64_t>(group) * w.shape.group_c + c) * w.x.c_stride;
  }

  CONVGRAD_HD static void load_patch(const Params& p, const Tile& tile, const Unit& u, int thread,
                                     Acc* patch) {
    const BlockParams& w = p.work;
    const auto* x = static_cast<const Scalar*>(w.x.data);
    const int warp = thread / kStreamLanes, lane = thread % kStreamLanes, pitch = x_pitch(p);
    const int d = w.shape.axis[0].first_input(u.z) + tile.t * w.shape.axis[0].dilation;
    const int h_first = w.shape.axis[1].first_input(u.strip) + tile.r * w.shape.axis[1].dilation;
    const int w_first = w.shape.axis[2].first_input(u.q) + tile.s * w.shape.axis[2].dilation;
    const int columns = p.unit.patch_columns, rows = u.end - u.begin;
    for (int i = warp; i < u.images * rows; i += kStreamWarps) {
      const int row = u.begin + i % rows, h = h_first + row, image = i / rows;
      const std::int64_t n = u.n + image;
      const bool there = d >= w.x.lo[0] && d < w.x.hi[0] && h >= w.x.lo[1] && h < w.x.hi[1];
      const std::int64_t start = there ? w.x.pixel(n, d, h, 0) : 0;
      Acc* to = patch + (image * p.unit.ring + row % p.unit.ring) * columns * pitch;
      // The innermost loop goes along the axis that is not contiguous in memory.
      const bool last = w.shape.channels_last;
      const int lanes = last ? p.x_channels : columns, steps = last ? columns : p.x_channels;
      for (int l = lane; l < lanes; l += kStreamLanes) {
        CONVGRAD_UNROLL_4
        for (int j = 0; j < steps; ++j) {
          const int column = last ? j : l, channel = last ? l : j;
          const std::int64_t at = x_channel(w, tile, channel);
          const int position = w_first + column;
          const bool inside = there && at >= 0 && position >= w.x.lo[2] && position < w.x.hi[2];
          to[column * pitch + channel] =
              inside ? convert<Acc>(x[start + position * w.x.spatial[2] + at]) : Acc{0};
        }
      }
    }
  }

  CONVGRAD_HD static void load_dy(const Params& p, const Tile& tile, const Unit& u, int thread,
                                  Acc* to) {
    const BlockParams& w = p.work;
    const auto* dy = static_cast<const Scalar*>(w.dy.data);
    const int warp = thread / kStreamLanes, lane = thread % kStreamLanes;
    for (int row = warp; row < u.images * u.rows; row += kStreamWarps) {
      const std::int64_t start = w.dy.pixel(u.n + row / u.rows, u.z, u.p + row % u.rows, u.q);
      const bool last = w.shape.channels_last;
      const int lanes = last ? kStreamLanes : u.columns, steps = last ? u.columns : kStreamLanes;
      for (int i = lane; i < lanes; i += kStreamLanes) {
        CONVGRAD_UNROLL_4
        for (int j = 0; j < steps; ++j) {
          const int column = last ? j : i, k = last ? i : j;
          to[(row * u.columns + column) * kPitch + k] =
              tile.k + k < w.shape.K
                  ? convert<Acc>(
                        dy[start + column * w.dy.spatial[2] + (tile.k + k) * w.dy.c_stride])
                  : Acc{0};
        }
      }
    }
  }

  // One run of kRun pixels: x points into the ring's first row, at the first one's first tap and
  // the lane's first channel; `place` is the first tap's row.
  CONVGRAD_HD static void add_run(const Params& p, const Acc* x, int place, const Acc* dy,
                                  Regs& r) {
    const Shape& shape = p.work.shape;
    const int pitch = x_pitch(p), line = p.unit.patch_columns * pitch;
    const bool dense = shape.axis[2].stride == 1 && shape.axis[2].dilation == 1;
    const int step = shape.axis[2].stride * pitch, apart = shape.axis[2].dilation * pitch;
    CONVGRAD_UNROLL
    for (int i = 0; i < kR; ++i) {
      const Acc* row = x + ring_place(p, place + i * shape.axis[1].dilation) * line;
      CONVGRAD_UNROLL
      for (int c = 0; c < kC; ++c) {
        const Acc* from = row + c;
        if (dense) {
          Acc values[kRun + kS - 1];
          CONVGRAD_UNROLL
          for (int j = 0; j < kRun + kS - 1; ++j) values[j] = from[j * pitch];
          CONVGRAD_UNROLL
          for (int s = 0; s < kS; ++s) {
            CONVGRAD_UNROLL
            for (int j = 0; j < kRun; ++j) r.sum[c][i][s] += values[j + s] * dy[j];
          }
        } else {
          CONVGRAD_UNROLL
          for (int s = 0; s < kS; ++s) {
            CONVGRAD_UNROLL
            for (int j = 0; j < kRun; ++j) r.sum[c][i][s] += from[j * step + s * apart] * dy[j];
          }
        }
      }
    }
  }

  // The same for one pixel, at (d, h, w) of its tile's first tap, without what lies outside x.
  CONVGRAD_HD static void add_pixel(const Params& p, const Acc* x, int place, Acc dy, int d, int h,
                                    int w, Regs& r) {
    const Axis* axis = p.work.shape.axis;
    const int pitch = x_pitch(p), line = p.unit.patch_columns * pitch;
    if (d < 0 || d >= axis[0].in) return;
    CONVGRAD_UNROLL
    for (int i = 0; i < kR; ++i) {
      const int below = i * axis[1].dilation;
      if (h + below < 0 || h + below >= axis[1].in) continue;
      const Acc* row = x + ring_place(p, place + below) * line;
      CONVGRAD_UNROLL
      for (int s = 0; s < kS; ++s) {
        const int column = s * axis[2].dilation;
        if (w + column < 0 || w + column >= axis[2].in) continue;
        CONVGRAD_UNROLL
        for (int c = 0; c < kC; ++c) {
          r.sum[c][i][s] += row[column * pitch + c] * dy;
        }
      }
    }
  }

  CONVGRAD_HD static void multiply(const Params& p, const Tile& tile, const Unit& u, int thread,
                                   const Shared& shared, Regs& r) {
    const Shape& shape = p.work.shape;
    const int warp = thread / kStreamLanes, lane = thread % kStreamLanes;
    if (tile.k + lane >= shape.K) return;
    const int pitch = x_pitch(p), runs = ceil_div(u.columns, kRun);
    const int channel = ((tile.k + lane) / shape.group_k - tile.group) * kC;
    const int first = u.first % p.unit.ring;
    const Acc* all_dy = shared.memory + patch_pixels(p) * pitch;
    for (int e = warp; e < u.images * u.rows * runs; e += kStreamWarps) {
      const int row = e / runs, column = e % runs * kRun;
      const int image = row / u.rows, below = row % u.rows;
      const Acc* dy_row = all_dy + row * u.columns * kPitch + lane;
      Acc dy[kRun];
      bool plain = column + kRun <= u.columns;
      CONVGRAD_UNROLL
      for (int j = 0; j < kRun; ++j) {
        dy[j] = column + j < u.columns ? dy_row[(column + j) * kPitch] : Acc{0};
        plain = plain && is_finite(dy[j]);
      }
      const int place = ring_place(p, first + below * shape.axis[1].stride);
      const Acc* x =
          shared.memory + channel +
          (image * p.unit.ring * p.unit.patch_columns + column * shape.axis[2].stride) * pitch;
      if (plain) {
        add_run(p, x, place, dy, r);
        continue;
      }
      const int d = shape.axis[0].first_input(u.z) + tile.t * shape.axis[0].dilation;
      const int h = shape.axis[1].first_input(u.p + below) + tile.r * shape.axis[1].dilation;
      const int w = shape.axis[2].first_input(u.q + column) + tile.s * shape.axis[2].dilation;
      for (int j = 0; j < kRun && column + j < u.columns; ++j) {
        const int step = j * shape.axis[2].stride;
        add_pixel(p, x + step * pitch, place, dy_row[(column + j) * kPitch], d, h, w + step, r);
      }
    }
  }

  // The element of a partial gradient that belongs to sum number v of an output channel's lane.
  CONVGRAD_HD static Sum<Acc>* element(const BlockParams& w, const Tile& tile, std::int64_t slice,
                                       int v, int lane) {
    const int c = tile.c + v / (kR * kS), r = tile.r + v / kS % kR, s = tile.s + v % kS;
    const Axis* axis = w.shape.axis;
    const bool there = v < kSums && c < w.shape.group_c && r < axis[1].taps && s < axis[2].taps &&
                       tile.k + lane < w.shape.K;
    if (!there) return nullptr;
    const int tap = (tile.t * axis[1].taps + r) * axis[2].taps + s;
    return static_cast<Sum<Acc>*>(w.partials) + slice * w.dw_count +
           (static_cast<std::int64_t>(tap) * w.shape.group_c + c) * w.shape.K + tile.k + lane;
  }

  // Adds the warps' sums of the chunk: those of kStreamWarps elements at a time.
  template <class Block>
  CONVGRAD_HD static void add_warps(Block& block) {
    Acc* memory = block.shared.memory;
    CONVGRAD_UNROLL
    for (int round = 0; round < kRounds; ++round) {
      block.each([&](int thread, Regs& r) {
        const int warp = thread / kStreamLanes, lane = thread % kStreamLanes;
        CONVGRAD_UNROLL
        for (int i = 0; i < kStreamWarps; ++i) {
          const int v = round * kStreamWarps + i;
          if (v < kSums) {
            memory[(warp * kStreamWarps + i) * kPitch + lane] =
                r.sum[v / (kR * kS)][v / kS % kR][v % kS];
          }
        }
      });
      block.each([&](int thread, Regs& r) {
        const int warp = thread / kStreamLanes, lane = thread % kStreamLanes;
        if (round * kStreamWarps + warp >= kSums) return;
        Acc sum = memory[warp * kPitch + lane];
        CONVGRAD_UNROLL
        for (int i = 1; i < kStreamWarps; ++i) {
          sum += memory[(i * kStreamWarps + warp) * kPitch + lane];
        }
        r.total[round].add(sum);
      });
    }
  }

  template <class Block>
  CONVGRAD_HD static void add_unit(Block& block, const Params& p, const Tile& tile, const Unit& u) {
    block.each([&](int thread, Regs&) {
      load_patch(p, tile, u, thread, block.shared.memory);
      load_dy(p, tile, u, thread, block.shared.memory + patch_pixels(p) * x_pitch(p));
    });
    block.each([&](int thread, Regs& r) { multiply(p, tile, u, thread, block.shared, r); });
  }

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const BlockParams& w = p.work;
    const std::int64_t slice = w.slice_of(task);
    std::int64_t begin, end;
    w.chunks_of(slice, begin, end);
    if (begin >= end) return;
    const Tile tile = tile_of(p, task);
    block.each_alone([&](int thread, Regs& r) {
      CONVGRAD_UNROLL
      for (int round = 0; round < kRounds; ++round) {
        const Sum<Acc>* at = element(w, tile, slice, round * kStreamWarps + thread / kStreamLanes,
                                     thread % kStreamLanes);
        r.total[round] = at != nullptr ? *at : Sum<Acc>{};
      }
    });
    for (std::int64_t chunk = begin; chunk < end; chunk += w.interleave) {
      const Box box = w.chunks.box(chunk);
      block.each_alone([&](int, Regs& r) {
        CONVGRAD_UNROLL
        for (int v = 0; v < kSums; ++v) r.sum[v / (kR * kS)][v / kS % kR][v % kS] = 0;
      });
      Unit u;
      u.strip = box.begin[1];
      for (int n = 0; n < box.size[0]; n += p.unit.images) {
        u.n = box.n + n;
        u.images = least(p.unit.images, box.size[0] - n);
        for (u.z = box.begin[0]; u.z < box.begin[0] + box.size[1]; ++u.z) {
          for (int column = 0; column < box.size[3]; column += p.unit.columns) {
            u.q = box.begin[2] + column;
            u.columns = least(p.unit.columns, box.size[3] - column);
            u.end = 0;
            for (int row = 0; row < box.size[2]; row += p.unit.rows) {
              move_down(p, row, least(p.unit.rows, box.size[2] - row), u);
              add_unit(block, p, tile, u);
            }
          }
        }
      }
      add_warps(block);
    }
    block.each_alone([&](int thread, Regs& r) {
      CONVGRAD_UNROLL
      for (int round = 0; round < kRounds; ++round) {
        Sum<Acc>* at = element(w, tile, slice, round * kStreamWarps + thread / kStreamLanes,
                               thread % kStreamLanes);
        if (at != nullptr) *at = r.total[round];
      }
    });
  }
};

}  // namespace convgrad::cuda
