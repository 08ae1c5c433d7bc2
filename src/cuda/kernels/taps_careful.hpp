// taps_careful.hpp - forms sums of wgmma_taps.hpp again that are not finite.
//
// The same pixels are multiplied by the same instruction, step by step, but for those where the
// panel's tap sees nothing: their dy is zero. So what was finite has the same bits as before. A sum
// of float32 products that is still not finite, as with numbers that three bfloat16 are not, is
// formed by float32 multiply-adds instead. Each sum depends on its own pixels alone.
#pragma once

#include <cmath>

#include "cuda/kernels/taps_layout.hpp"

namespace convgrad::cuda {

// Of a warpgroup's chunks, behind what earlier blocks stored, panel by panel. Body is WgmmaTaps.
template <class Body>
struct TapsCareful {
  using Element = typename Body::Element;
  using Op = typename Body::PanelOp;
  static constexpr int kTerms = Body::kTerms, kRowX = Body::kRowX;
  static constexpr int kVectors = Body::kPanelVectors;

  const typename Body::Task& task;
  const TapsSum& part;
  int group, thread;

  template <class Block>
  CONVGRAD_HD void run(Block& block) const {
    CONVGRAD_NO_UNROLL
    for (int panel = 0; panel < Body::kPanelCount; ++panel) {
      typename Op::C sums;
      task.load(group, panel * kVectors, thread, part.before > 0, sums);
      for (int i = 0; i < part.count; ++i) {
        add(block, task.p.work.chunks.box(part.chunk + i * task.p.work.interleave), panel, sums);
      }
      task.store(group, panel * kVectors, thread, part.ended, part.first, sums);
    }
  }

  // Taps that were folded into channels see other pixels each: of each tap its channels' are kept.
  template <class Block>
  CONVGRAD_HD void add(Block& block, const Box& box, int panel, typename Op::C& sums) const {
    const TapsLayout& l = task.p.layout;
    typename Block::Shared::Step& step = block.shared.step[group];
    const int together = kTerms > 1 ? l.together : 1;
    CONVGRAD_NO_UNROLL
    for (int i = 0; i < l.steps / together * l.folded.taps; ++i) {
      const int first = i / l.folded.taps * together * kStepPixels, tap = i % l.folded.taps;
      // Adds some products of these steps.
      const auto multiply = [&](int product, int end, typename Op::C& to) {
        CONVGRAD_NO_UNROLL
        for (int j = product * together; j < end * together; ++j) {
          fill(step, box, first + j % together * kStepPixels, panel, tap, j / together);
          block.fence_async_proxy();
          block.sync_group();
          block.template begin_multiply<Op, 1>(block.operand(step.dy, kRowBytes, 0), 0,
                                               block.operand(step.x, kRowX, 0), 0, to);
          block.template wait_multiplies<Op, 0>(to);
          block.sync_group();
        }
      };
      typename Op::C products;
      CONVGRAD_UNROLL
      for (int e = 0; e < Op::kElementsC; ++e) products[e] = kTerms > 1 ? 0 : sums[e];
      multiply(kLastProduct, kProducts, products);
      if constexpr (kTerms > 1) {
        typename Op::C small{};
        multiply(0, kLastProduct, small);
        define(box, first, panel, tap, small, products);
        CONVGRAD_UNROLL
        for (int e = 0; e < Op::kElementsC; ++e) products[e] += sums[e] + small[e];
      }
      CONVGRAD_UNROLL
      for (int e = 0; e < Op::kElementsC; ++e) {
        if (is_own(e, tap)) sums[e] = products[e];
      }
    }
  }
  CONVGRAD_HD bool is_own(int e, int tap) const {
    const TapsLayout& l = task.p.layout;
    int row, column;
    Op::c_place(thread, e, row, column);
    return l.folded.taps == 1 || column / l.folded_c == tap;
  }

  // Whether pixel number i of a chunk is one, and the panel's tap sees x there.
  CONVGRAD_HD bool sees(const Box& box, int i, int panel, int folded, int (&out)[3],
                        int (&in)[3]) const {
    const TapsLayout& l = task.p.layout;
    const Shape& shape = task.p.work.shape;
    const int row = i / l.pitch, column = i % l.pitch;
    if (row >= box.size[2] || column >= box.size[3]) return false;
    out[0] = box.begin[0];
    out[1] = box.begin[1] + row;
    out[2] = box.begin[2] + column;
    const TapsTile& tile = task.tile;
    const int at[3] = {tile.t, tile.r + group * l.group_r + panel * l.panel_r,
                       tile.s + panel * l.panel_s};
    for (int a = 0; a < 3; ++a) {
      in[a] = shape.axis[a].first_input(out[a]) + at[a] * shape.axis[a].dilation;
      if (in[a] < task.p.work.x.lo[a] || in[a] >= task.p.work.x.hi[a]) return false;
    }
    const int of_fold = l.folded.first_input(out[2]) + folded * l.folded.dilation;
    return l.folded.taps == 1 || (of_fold >= 0 && of_fold < l.folded.in);
  }

  // Channels of x or dy from the panel's first on, in device memory.
  struct Channels {
    const View& view;
    int first, count, images;

    CONVGRAD_HD Element element(std::int64_t n, const int (&at)[3], int i, int term) const {
      if (first + i >= count) return Element{};
      const std::int64_t pixel = view.pixel(n, at[0], at[1], at[2]) + term * images * view.n_stride;
      return static_cast<const Element*>(view.data)[pixel + first + i];
    }
    CONVGRAD_HD float number(std::int64_t n, const int (&at)[3], int i) const {
      const Element terms[3] = {element(n, at, i, 0), element(n, at, i, 1), element(n, at, i, 2)};
      return whole(terms);
    }
  };
  CONVGRAD_HD Channels of_x(int panel) const {
    const BlockParams& w = task.p.work;
    return {w.x, task.group_first_c + task.tile.c + panel * task.p.layout.panel_c,
            w.shape.groups * static_cast<int>(w.x.group_stride), task.p.images};
  }
  CONVGRAD_HD Channels of_dy() const {
    const BlockParams& w = task.p.work;
    return {w.dy, task.group_first_k + task.tile.k + group * task.p.layout.group_k,
            w.shape.groups * static_cast<int>(w.dy.group_stride), task.p.images};
  }

  // Fills a step with a product's terms, each thread half a pixel's channels or less.
  template <class Step>
  CONVGRAD_HD void fill(Step& step, const Box& box, int first, int panel, int folded,
                        int product) const {
    constexpr int kThreadsPixel = kWarpgroup / kStepPixels;
    const int pixel = thread / kThreadsPixel;
    int out[3] = {}, in[3] = {};
    const bool there = sees(box, first + pixel, panel, folded, out, in);
    const auto put = [&](unsigned char* to, const Channels& from, const int(&at)[3], int channels,
                         int term) {
      for (int i = thread % kThreadsPixel; i < channels; i += kThreadsPixel) {
        const auto offset = static_cast<std::uint32_t>((pixel * channels + i) * 2);
        *reinterpret_cast<Element*>(to + swizzled(offset, channels * 2)) =
            there ? from.element(box.n, at, i, term) : Element{};
      }
    };
    put(step.dy, of_dy(), out, kPanelChannels, static_cast<int>(dy_term(product)));
    put(step.x, of_x(panel), in, kRowX / 2, static_cast<int>(x_term(product)));
  }

  // Forms the sums of `together` steps that are not finite by the definition.
  CONVGRAD_HD void define(const Box& box, int first, int panel, int folded, typename Op::C& small,
                          typename Op::C& products) const {
    std::uint32_t left = 0;
    static_assert(Op::kElementsC <= 32);
    CONVGRAD_UNROLL
    for (int e = 0; e < Op::kElementsC; ++e) {
      const bool finite = is_finite(small[e]) && is_finite(products[e]);
      if (!finite && is_own(e, folded)) left |= 1u << e;
    }
    const Channels x = of_x(panel), dy = of_dy();
    CONVGRAD_NO_UNROLL
    for (int at = 0; at < Op::kElementsC; ++at) {
      if ((left >> at & 1u) == 0) continue;
      int row, column, out[3], in[3];
      Op::c_place(thread, at, row, column);
      float sum = 0;
      CONVGRAD_NO_UNROLL
      for (int i = first; i < first + task.p.layout.together * kStepPixels; ++i) {
        if (!sees(box, i, panel, folded, out, in)) continue;
        sum = std::fma(x.number(box.n, in, column), dy.number(box.n, out, row), sum);
      }
      CONVGRAD_UNROLL
      for (int e = 0; e < Op::kElementsC; ++e) {
        if (e != at) continue;
        small[e] = 0;
        products[e] = sum;
      }
    }
  }
};

}  // namespace convgrad::cuda
