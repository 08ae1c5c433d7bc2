// peak_amx_bf16.cpp - tdpbf16ps: a tile of 16 x 32 bfloat16 times one of 32 x 16, added to 16 x 16
// floats. Only for processes that Linux has given the tiles (this_machine() asks).
#include <immintrin.h>

#include "cpu/amx/amx_config.hpp"
#include "cpu/peaks/peak_isa.hpp"

namespace convgrad {
namespace {

constexpr long kTiles = 16, kTile = 16L * 32;

// bfloat16 of both signs, between 0.5 and 2: numbers that change, since a processor that needs less
// power is faster. Multiplied by the same ones again and again, tiles take a sixth less time. Both
// factors of a product have the same sign, so that a test can tell from a sum how many it is of.
struct Numbers {
  alignas(64) unsigned short at[kTiles * kTile];

  constexpr Numbers() : at() {
    unsigned state = 1;
    for (unsigned i = 0; i < kTiles * kTile; ++i) {
      state = state * 1664525u + 1013904223u;
      // Which product of a sum: along a row of the left tile, down pairs of rows of the right one.
      const bool right = i / kTile % 4 >= 2;
      const unsigned row = i % kTile / 32, column = i % 32;
      const unsigned product = right ? 2 * row + column % 2 : column;
      const unsigned sign = 0xb5ad4eceu >> product << 15 & 0x8000u;
      at[i] = static_cast<unsigned short>(0x3f00u | sign | (state >> 16 & 0xffu));
    }
  }
};
constexpr Numbers kNumbers;

// As the kernel does it: four tiles of sums, four of the next numbers with each round, from the
// first cache.
float multiply_add(long rounds) {
  alignas(64) float sum[16 * 16] = {};
  configure_tiles();
  // GCC 12's intrinsics do not say that they write memory.
  asm volatile("" : : "r"(sum) : "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (long round = 0; round < rounds; ++round) {
    const unsigned short* const next = kNumbers.at + 4 * round % kTiles * kTile;
    _tile_loadd(4, next, 64);
    _tile_loadd(5, next + kTile, 64);
    _tile_loadd(6, next + 2 * kTile, 64);
    _tile_loadd(7, next + 3 * kTile, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sum, 64);
  asm volatile("" : : "r"(sum) : "memory");
  _tile_release();  // the tiles' 8 KiB are saved at every switch of threads until then
  return sum[0];
}

}  // namespace

const PeakBf16 kPeakAmxBf16 = {4 * 2.0 * 16 * 16 * 32, multiply_add};

}  // namespace convgrad
