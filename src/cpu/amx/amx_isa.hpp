// amx_isa.hpp - the functions that outer_product_amx needs of the tile registers and of vectors.
//
// Sources that are compiled with the flags of their instruction set include it, so it has plain
// structs only (isa_load.hpp says why). Panels hold 16-bit elements, all distances are in elements.
#pragma once

#include "cpu/isa/isa.hpp"

namespace convgrad {

typedef unsigned short AmxBits;  // a bfloat16, or a float16

// An instruction multiplies pairs of pixels. A pair has a pixel of the first half of a chunk and
// the one that is in its place in the second half: then what a tap sees from neighbouring pairs are
// neighbouring pairs, too, wherever they begin.
inline constexpr long kAmxPairs = 16;     // of one instruction
inline constexpr long kAmxChannels = 16;  // rows of an A tile, columns of a B tile
inline constexpr long kAmxRow = 32;       // elements: a tile's row, or a pair of 16 channels
inline constexpr long kAmxTile = kAmxPairs * kAmxRow;

// A run is neighbouring pairs in both panels, `steps` times kAmxPairs of them: those of A meet
// those of each B in use, which may be of other channels or of what another tap sees.
inline constexpr long kAmxMostA = 2, kAmxMostB = 3;  // tiles whose products are added together
struct AmxRun {
  long a, b[kAmxMostB], steps;
};

// dy (and turned round: x) is in a[term*a_term + k/16*a_block + pair/16*kAmxTile + k%16*32 +
// pair%16*2 + half], where runs begin with a tile, and x in b[term*b_term + c/16*b_block + pair*32
// + c%16*2 + half], where they begin with any pair. Every tile is 1 KiB of neighbours.
struct AmxPanels {
  const AmxBits* a;
  const AmxBits* b;
  long a_block;
  long a_term, b_term;
  int terms;  // bfloat16 or float16 that one value is the sum of
};

// A product is of term a of one panel and term b of the other, for all pixels of the runs.
struct AmxProduct {
  int a, b;
};
// Products are in an order in which the next one keeps a side.
template <int Count>
struct AmxProducts {
  AmxProduct of[Count];
};
// float16 is two bfloat16.
inline constexpr AmxProducts<4> kAmxAllOfTwo = {{{0, 0}, {0, 1}, {1, 1}, {1, 0}}};
// float32 is three: the small products of all pixels are added before the first of the others, so
// that they are rounded by their own size. Three are left out, of at most 2^-25 of the whole.
inline constexpr AmxProducts<5> kAmxSmallOfThree = {{{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}}};
inline constexpr AmxProducts<1> kAmxFirst = {{{0, 0}}};

// One tile has so many sums; tiles are stored one behind the other.
inline constexpr long kAmxSums = kAmxChannels * kAmxChannels;

struct AmxTiles {
  int f16_terms;  // 1 if float16 is multiplied as it is, 2 if as two bfloat16
  // These are called around all multiplications of a thread.
  void (*begin)();
  void (*end)();
  // sums[(i*kAmxMostB + j)*kAmxSums + row*16 + column] = sum over runs, their pixels and products
  // of terms, for i < a_tiles and j < b_tiles: row counts channels of A's block i, column those of
  // the runs' b[j].
  void (*multiply)(int a_tiles, int b_tiles, const AmxPanels& panels, const AmxRun* runs,
                   long run_count, float* sums);
};
extern const AmxTiles kAmxTiles;      // the instructions of AMX-BF16
extern const AmxTiles kAmxFp16Tiles;  // of AMX-FP16: for float16 alone

// A piece is `count` neighbouring pixels of a panel, from element `source` on; if negative, zeros.
struct AmxPiece {
  long count, source;
};

// Packs values as a file has them to panels of `count` pairs, a multiple of kAmxPairs; term t of a
// panel is t * term behind the first. Distances of values are in values; channels of pixels are
// filled up with zeros to a multiple of kAmxChannels. The exponents of what is packed extend
// `range`.
struct AmxPacking {
  long bytes;  // of a value
  // These make the form of AmxPanels::a from first[i][k] and second[i][k], and from rows[k%16*row +
  // i] and rows[k%16*row + count + i] of 16 channels.
  void (*tiles_from_pixels)(const void* const* first, const void* const* second, long count,
                            long channels, AmxBits* tiles, long block, long term,
                            ExponentRange& range);
  void (*tiles_from_rows)(const void* rows, long row, long count, AmxBits* tiles, long term,
                          ExponentRange& range);
  // These make the form of AmxPanels::b from the same.
  void (*pairs_from_pixels)(const void* const* first, const void* const* second, long count,
                            long channels, AmxBits* pairs, long block, long term,
                            ExponentRange& range);
  void (*pairs_from_rows)(const void* rows, long row, long count, AmxBits* pairs, long term,
                          ExponentRange& range);
  // rows[c*row + i] = data[c*channel_stride + source + j*pixel_stride], j counting in a piece.
  void (*rows_from_channels)(const void* data, long channel_stride, long pixel_stride,
                             const AmxPiece* pieces, long piece_count, long channels, void* rows,
                             long row);
  ExponentRangeFunction exponent_range;
};

struct AmxVectors {
  AmxPacking bf16, f16;   // as they are
  AmxPacking f16_as_two;  // bfloat16 that add up to the value, exactly, if it is finite
  AmxPacking f32_as_three;
  // partial[c*partial_row + k] += sums[k*16 + c], or sums[c*16 + k] if `turned`, of one tile; or
  // 0 + sums, if they are to be stored.
  void (*add_sums)(const float* sums, bool turned, long c_count, long k_count, double* partial,
                   long partial_row, bool store);
};
extern const AmxVectors kAvx512AmxVectors;

}  // namespace convgrad
