// amx_isa.hpp - what outer_product_amx needs from the tile registers and from vectors.
//
// Included by sources that are compiled with the flags of their instruction set: plain structs only
// (isa_load.hpp says why). Panels hold 16-bit elements, all distances are in elements.
#pragma once

namespace convgrad {

typedef unsigned short AmxBits;  // a bfloat16, or a float16

// Neighbouring pixels in both panels, `steps` times kAmxPixels of them.
struct AmxRun {
  long a, b, steps;
};
inline constexpr long kAmxPixels = 32;    // of one instruction
inline constexpr long kAmxChannels = 16;  // rows of an A tile, columns of a B tile
inline constexpr long kAmxTile = kAmxPixels * kAmxChannels;

// dy (and turned round: x) in a[term*a_term + k/16*a_block + pixel/32*kAmxTile + k%16*32 +
// pixel%32], where runs begin with a tile, and x in b[term*b_term + c/16*b_block + pixel/2*32 +
// c%16*2 + pixel%2], where runs begin with a pair. Every tile is 1 KiB of neighbours, and whole
// cache lines.
struct AmxPanels {
  const AmxBits* a;
  const AmxBits* b;
  long a_block, b_block;
  long a_term, b_term;
  int terms;  // bfloat16 or float16 that one value is the sum of
};

// A product of term a of one panel and term b of the other, for all pixels of the runs.
struct AmxProduct {
  int a, b;
};
// In an order that needs one side anew for the next.
template <int Count>
struct AmxProducts {
  AmxProduct of[Count];
};
// float16 as two bfloat16.
inline constexpr AmxProducts<4> kAmxAllOfTwo = {{{0, 0}, {0, 1}, {1, 1}, {1, 0}}};
// float32 as three: the small products of all pixels are added before the first of the others, so
// that they are rounded by their own size. Three are left out, of at most 2^-25 of the whole.
inline constexpr AmxProducts<5> kAmxSmallOfThree = {{{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}}};
inline constexpr AmxProducts<1> kAmxFirst = {{{0, 0}}};

// Channels of dy, and of x, whose sums the tiles hold: 2 x 2 tiles of 16 x 16, half of all tiles.
inline constexpr long kAmxBlock = 32;

struct AmxTiles {
  int f16_terms;  // 1 if float16 is multiplied as it is, 2 if as two bfloat16
  // Around all multiplications of a thread.
  void (*begin)();
  void (*end)();
  // sums[k*kAmxBlock + c] = sum over runs, their pixels, terms of a and terms of b of a * b, for
  // 16*k_tiles channels k and 16*c_tiles channels c; both 1 or 2.
  void (*multiply)(int k_tiles, int c_tiles, const AmxPanels& panels, const AmxRun* runs,
                   long run_count, float* sums);
};
extern const AmxTiles kAmxTiles;      // the instructions of AMX-BF16
extern const AmxTiles kAmxFp16Tiles;  // of AMX-FP16: for float16 alone
// What they do, for tests on other processors.
extern const AmxTiles kEmulatedAmxTiles;
extern const AmxTiles kEmulatedAmxFp16Tiles;

// `count` neighbouring pixels of a panel, from element `source` on, or zeros if that is negative.
struct AmxPiece {
  long count, source;
};

// From values as a file has them to panels; term t of a panel is t * term behind the first. count
// is a multiple of kAmxPixels, distances of values are in values; channels of pixels are filled up
// with zeros to a multiple of kAmxChannels.
struct AmxPacking {
  long bytes;  // of a value
  // The form of AmxPanels::a, of pixel[i][k], and of rows[k%16*row + i] of 16 channels.
  void (*tiles_from_pixels)(const void* const* pixel, long count, long channels, AmxBits* tiles,
                            long block, long term);
  void (*tiles_from_rows)(const void* rows, long row, long count, AmxBits* tiles, long term);
  // The form of AmxPanels::b, of the same. The first also puts pairs that begin one pixel later,
  // the last ones with pixel[count], `odd` elements behind the others, unless that is 0.
  void (*pairs_from_pixels)(const void* const* pixel, long count, long channels, AmxBits* pairs,
                            long block, long term, long odd);
  void (*pairs_from_rows)(const void* rows, long row, long count, AmxBits* pairs, long term);
  // rows[c*row + i] = data[c*channel_stride + source + j*pixel_stride], j counting in a piece.
  void (*rows_from_channels)(const void* data, long channel_stride, long pixel_stride,
                             const AmxPiece* pieces, long piece_count, long channels, void* rows,
                             long row);
  // The least exponent of what is not 0, and the greatest, as they are stored (exponent_range.hpp).
  void (*exponent_range)(const void* values, long count, long pieces, long stride, unsigned* least,
                         unsigned* most);
};

struct AmxVectors {
  AmxPacking bf16, f16;   // as they are
  AmxPacking f16_as_two;  // bfloat16 that add up to the value, exactly, if it is finite
  AmxPacking f32_as_three;
  // Pairs that begin one pixel later, of count elements of pairs.
  void (*odd_pairs)(const AmxBits* even, long count, AmxBits* odd);
  // partial[c*partial_row + k] += sums[k*kAmxBlock + c], or sums[c*kAmxBlock + k] if `turned`.
  void (*add_sums)(const float* sums, bool turned, long c_count, long k_count, double* partial,
                   long partial_row);
};
extern const AmxVectors kPortableAmxVectors;
extern const AmxVectors kAvx512AmxVectors;

}  // namespace convgrad
