// amx_config.hpp - the shape that this program gives to AMX's tile registers.
//
// Included by files that are compiled with AMX's flags: no standard headers, and everything local.
#pragma once

namespace convgrad {
namespace {

// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  unsigned char palette, start_row, reserved[14];
  unsigned short bytes_per_row[16];
  unsigned char rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// All eight tiles get 16 rows of 64 bytes, until _tile_release().
inline void configure_tiles() {
  TileConfig config = {};
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    config.bytes_per_row[tile] = 64;
    config.rows[tile] = 16;
  }
  // GCC 12's intrinsic does not say that it reads memory: the stores to config would be dropped.
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
}

}  // namespace
}  // namespace convgrad
