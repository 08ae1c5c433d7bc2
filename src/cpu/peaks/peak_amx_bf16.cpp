// peak_amx_bf16.cpp - tdpbf16ps: a tile of 16 x 32 bfloat16 times one of 32 x 16, added to 16 x 16
// floats. Only for processes that Linux has given the tiles (this_machine() asks).
#include <immintrin.h>

#include "cpu/amx/amx_config.hpp"
#include "cpu/peaks/peak_isa.hpp"

namespace convgrad {
namespace {

float multiply_add(long rounds) {
  alignas(64) unsigned short ones[16 * 32];
  for (unsigned short& value : ones) value = 0x3f80;
  alignas(64) float sum[16 * 16] = {};
  configure_tiles();
  // GCC 12's intrinsics do not say that they read and write memory: the stores to ones would be
  // dropped without these operands.
  asm volatile("" : : "r"(ones), "r"(sum) : "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  // The four tiles of sums that the kernel has, without its loads: these are what is left to gain.
  for (long round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    _tile_dpbf16ps(2, 4, 7);
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
