// peak_amx_bf16.cpp - tdpbf16ps: a tile of 16 x 32 bfloat16 times one of 32 x 16, added to 16 x 16
// floats. Only for processes that Linux has given the tiles (this_machine() asks).
#include <immintrin.h>

#include "cpu/amx/amx_config.hpp"
#include "cpu/peaks/peak_isa.hpp"

namespace convgrad {
namespace {

// As the kernel does it: four tiles of sums, four of the next numbers with each round, from the
// first cache. Of numbers that change, since a processor that needs less power is faster:
// multiplied by the same ones again and again, tiles take a sixth less time.
float multiply_add(long rounds) {
  constexpr long kTiles = 16, kTile = 16L * 32;
  alignas(64) unsigned short numbers[kTiles * kTile];  // of both signs, near 1
  unsigned state = 1;
  for (unsigned short& value : numbers) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<unsigned short>(0x3f00u | (state >> 16 & 0x80ffu));
  }
  alignas(64) float sum[16 * 16] = {};
  configure_tiles();
  // GCC 12's intrinsics do not say that they read and write memory: the stores to numbers would
  // be dropped without these operands.
  asm volatile("" : : "r"(numbers), "r"(sum) : "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (long round = 0; round < rounds; ++round) {
    const unsigned short* const next = numbers + 4 * round % kTiles * kTile;
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
