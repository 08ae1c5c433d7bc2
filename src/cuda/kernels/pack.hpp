// pack.hpp - copies a block with the channels last, each group's padded with zeros to whole vectors
// of 16 bytes, where a tensor is not like that; or its numbers' terms, a tensor behind another.
//
// cp.async and bulk copies move 16 bytes between addresses that are multiples of 16. To gather
// single elements in the kernel would be done for every tile and tap; this is done once.
#pragma once

#include "cuda/kernels/geometry.hpp"
#include "cuda/kernels/terms.hpp"

namespace convgrad::cuda {

// A vector of each term of some numbers. Element is an integer as wide as the dtype, since only
// bits are moved; what is cut to terms is 16 bits wide.
template <typename Element, int kTerms>
struct PackedVectors {
  using To = std::conditional_t<kTerms == 1, Element, std::uint16_t>;
  static constexpr int kVector = 16 / static_cast<int>(sizeof(To));

  struct alignas(16) Vector {
    To element[kVector];
  } term[kTerms];

  CONVGRAD_HD void set(int i, Element bits) {
    To terms[kTerms];
    cut(bits, terms);
    CONVGRAD_UNROLL
    for (int t = 0; t < kTerms; ++t) term[t].element[i] = terms[t];
  }
  // Terms are so many vectors apart.
  CONVGRAD_HD void store(void* to, std::int64_t at, std::int64_t apart) const {
    CONVGRAD_UNROLL
    for (int t = 0; t < kTerms; ++t) static_cast<Vector*>(to)[at + t * apart] = term[t];
  }
};

template <typename Element, int kTerms = 1>
struct Pack {
  using Packed = PackedVectors<Element, kTerms>;
  static constexpr int kThreads = 256, kLeastBlocks = 0, kVector = Packed::kVector;

  struct Params {
    View from;                    // a whole block: images from n, positions lo to hi
    void* to;                     // [image][d][h][w][group][pitch]
    std::int64_t n, pixels;       // all images'
    int groups, channels, pitch;  // of a group in `from` and in `to`
    bool channels_last;
  };
  struct Regs {};
  struct Shared {};

  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const int vectors = p.groups * (p.pitch / kVector);
    const std::int64_t i = task * kThreads + block.thread();
    if (i >= p.pixels * vectors) return;
    // Neighbouring threads read neighbouring elements: with channels first, pixels. They write
    // whole vectors, so that scattered writes still fill half a sector of 32 bytes each.
    const std::int64_t pixel = p.channels_last ? i / vectors : i % p.pixels;
    const int vector = static_cast<int>(p.channels_last ? i % vectors : i / p.pixels);
    int size[3];
    for (int a = 0; a < 3; ++a) size[a] = p.from.hi[a] - p.from.lo[a];
    const std::int64_t row = pixel / size[2], plane = row / size[1];
    const std::int64_t at =
        p.from.pixel(p.n + plane / size[0], p.from.lo[0] + static_cast<int>(plane % size[0]),
                     p.from.lo[1] + static_cast<int>(row % size[1]),
                     p.from.lo[2] + static_cast<int>(pixel % size[2]));
    const int group = vector / (p.pitch / kVector), first = vector % (p.pitch / kVector) * kVector;
    Packed result;
    const auto* from = static_cast<const Element*>(p.from.data);
    CONVGRAD_UNROLL
    for (int c = 0; c < kVector; ++c) {
      const std::int64_t channel = static_cast<std::int64_t>(group) * p.channels + first + c;
      result.set(c, first + c < p.channels ? from[at + channel * p.from.c_stride] : Element{0});
    }
    result.store(p.to, pixel * vectors + vector, p.pixels * vectors);
  }
};

// Copies a block of x with the taps of filter rows as channels (taps_choice.hpp): those that an
// output column sees are [s][c], zeros outside x, so that what is left has one tap along w.
template <typename Element, int kTerms = 1>
struct FoldColumns {
  using Packed = PackedVectors<Element, kTerms>;
  static constexpr int kThreads = 256, kLeastBlocks = 0, kVector = Packed::kVector;

  struct Params {
    View from;  // the block: images from n, positions lo to hi
    void* to;   // [image][d][h][column][pitch]
    std::int64_t n, rows;
    Axis w;  // the columns' stride, dilation and pad
    int first_column, columns, channels, pitch;
  };
  struct Regs {};
  struct Shared {};

  // A task is a row.
  template <class Block>
  CONVGRAD_HD static void run(Block& block, const Params& p, std::int64_t task) {
    const int height = p.from.hi[1] - p.from.lo[1], depth = p.from.hi[0] - p.from.lo[0];
    const std::int64_t plane = task / height;
    const std::int64_t row =
        p.from.pixel(p.n + plane / depth, p.from.lo[0] + static_cast<int>(plane % depth),
                     p.from.lo[1] + static_cast<int>(task % height), 0);
    const auto* from = static_cast<const Element*>(p.from.data);
    const auto many = static_cast<std::uint32_t>(p.pitch / kVector),
               channels = static_cast<std::uint32_t>(p.channels),
               vectors = many * static_cast<std::uint32_t>(p.columns);
    for (auto i = static_cast<std::uint32_t>(block.thread()); i < vectors; i += kThreads) {
      const std::uint32_t first = i % many * kVector;
      int s = static_cast<int>(first / channels), c = static_cast<int>(first % channels);
      int in = p.w.first_input(p.first_column + static_cast<int>(i / many)) + s * p.w.dilation;
      Packed result;
      CONVGRAD_UNROLL
      for (int e = 0; e < kVector; ++e) {
        const bool there = s < p.w.taps && in >= p.from.lo[2] && in < p.from.hi[2];
        result.set(e,
                   there ? from[row + in * p.from.spatial[2] + c * p.from.c_stride] : Element{0});
        const bool last = ++c == p.channels;
        s += last ? 1 : 0;
        in += last ? p.w.dilation : 0;
        c = last ? 0 : c;
      }
      result.store(p.to, task * vectors + i, p.rows * vectors);
    }
  }
};

}  // namespace convgrad::cuda
