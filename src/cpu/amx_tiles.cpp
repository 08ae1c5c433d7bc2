// amx_tiles.cpp - AMX-BF16: tdpbf16ps adds the product of a tile of 16 x 32 bfloat16 and one of
// 32 x 16 to a tile of 16 x 16 floats. Only for processes that Linux has given the tiles
// (this_machine() asks).
#include <immintrin.h>

#include "cpu/amx_isa.hpp"

namespace convgrad {
namespace {

struct alignas(64) TileConfig {
  unsigned char palette, start_row, reserved[14];
  unsigned short bytes_per_row[16];
  unsigned char rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// GCC 12's intrinsics do not say that they read memory: its stores to config would be dropped.
void begin() {
  TileConfig config = {};
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    config.bytes_per_row[tile] = 64;
    config.rows[tile] = 16;
  }
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
}

// Until then the tiles' 8 KiB are saved at every switch of threads.
void end() { _tile_release(); }

// Tiles 0 to 3 hold the sums, [c / 16][k / 16]; 4 and 5 x; 6 and 7 dy.
template <int CTiles, int KTiles>
void multiply_step(const AmxBits* a, long a_channel, const AmxBits* b, long b_block) {
  _tile_loadd(4, a, a_channel * 2);
  _tile_loadd(6, b, 64);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (KTiles > 1) {
    _tile_loadd(7, b + b_block, 64);
    _tile_dpbf16ps(1, 4, 7);
  }
  if constexpr (CTiles > 1) {
    _tile_loadd(5, a + kAmxChannels * a_channel, a_channel * 2);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (KTiles > 1) _tile_dpbf16ps(3, 5, 7);
  }
}

template <int CTiles, int KTiles>
void store_sums(float* sums) {
  constexpr long kRow = kAmxBlock * 4;
  _tile_stored(0, sums, kRow);
  if constexpr (KTiles > 1) _tile_stored(1, sums + kAmxChannels, kRow);
  if constexpr (CTiles > 1) {
    _tile_stored(2, sums + kAmxChannels * kAmxBlock, kRow);
    if constexpr (KTiles > 1) _tile_stored(3, sums + kAmxChannels * (kAmxBlock + 1), kRow);
  }
}

template <int CTiles, int KTiles>
void multiply_block(const AmxPanels& panels, const AmxRun* runs, long run_count, float* sums) {
  asm volatile("" : : : "memory");  // the panels are written, as far as GCC knows unread
  _tile_zero(0);
  if constexpr (KTiles > 1) _tile_zero(1);
  if constexpr (CTiles > 1) _tile_zero(2);
  if constexpr (CTiles > 1 && KTiles > 1) _tile_zero(3);
  for (int ta = 0; ta < panels.terms; ++ta) {
    for (int tb = 0; tb < panels.terms; ++tb) {
      for (long run = 0; run < run_count; ++run) {
        const AmxBits* a = panels.a + ta * panels.a_term + runs[run].a;
        const AmxBits* b = panels.b + tb * panels.b_term + runs[run].b;
        for (long step = runs[run].steps; step > 0; --step) {
          multiply_step<CTiles, KTiles>(a, panels.a_channel, b, panels.b_block);
          a += kAmxPixels;
          b += kAmxPixels * kAmxChannels;
        }
      }
    }
  }
  store_sums<CTiles, KTiles>(sums);
  asm volatile("" : : : "memory");
}

void multiply(int c_tiles, int k_tiles, const AmxPanels& panels, const AmxRun* runs, long run_count,
              float* sums) {
  if (c_tiles > 1) {
    if (k_tiles > 1) return multiply_block<2, 2>(panels, runs, run_count, sums);
    return multiply_block<2, 1>(panels, runs, run_count, sums);
  }
  if (k_tiles > 1) return multiply_block<1, 2>(panels, runs, run_count, sums);
  return multiply_block<1, 1>(panels, runs, run_count, sums);
}

}  // namespace

extern const AmxTiles kAmxTiles = {begin, end, multiply};

}  // namespace convgrad
