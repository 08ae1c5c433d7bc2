// amx_tiles.cpp - AMX-BF16 and AMX-FP16: tdpbf16ps adds the product of a tile of 16 x 32 bfloat16
// and one of 32 x 16 to a tile of 16 x 16 floats, tdpfp16ps does it for float16. A process needs
// the tiles from Linux first (this_machine() asks).
#include <immintrin.h>

#include "cpu/amx/amx_isa.hpp"

namespace convgrad {
namespace {

// This is the operand of ldtilecfg.
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

// Until then the tiles' 8 KiB are saved at every switch of threads.
void end() { _tile_release(); }

// The two instructions differ in nothing else than the prefix in their encoding.
enum class Multiply { bf16 = 2, fp16 = 3 };

// Tile `to` += tile a * tile b. It is encoded by hand, since GCC 12 has no tdpfp16ps.
template <Multiply kind, int to, int a, int b>
void add_product() {
  asm volatile(".byte 0xc4, 0xe2, %c0, 0x5c, %c1"
               :
               : "i"((15 - b) << 3 | static_cast<int>(kind)), "i"(0xc0 | to << 3 | a));
}

// Six sums leave one tile for each side: a product takes at most one new load, and with B going
// back and forth 7 loads make 6 products. Fewer sums keep all tiles of a step: 4 loads, 4 products.
// Three B that are what three rows of a filter see are the same cache lines, some steps later.
constexpr long kTileRow = 64;
constexpr int sum_tile(int b_tiles, int i, int j) { return i * b_tiles + j; }

template <Multiply kind, int A, int B, int i, int j = 0>
void add_row(const AmxBits* a, const AmxBits* const (&b)[kAmxMostB]) {
  // The second A goes back through B: it begins with the one that is there.
  constexpr int column = i == 0 ? j : B - 1 - j;
  if constexpr (j == 0) _tile_loadd(6, a, kTileRow);
  if constexpr (i == 0 || j > 0) _tile_loadd(7, b[column], kTileRow);
  add_product<kind, sum_tile(B, i, column), 6, 7>();
  if constexpr (j + 1 < B) add_row<kind, A, B, i, j + 1>(a, b);
}

// Adds the products of 32 pixels, from the I-th in the list on.
template <Multiply kind, int A, int B, const auto& products, int I = 0>
void multiply_step(const AmxPanels& panels, const AmxBits* a,
                   const AmxBits* const (&b)[kAmxMostB]) {
  constexpr AmxProduct now = products.of[I], before = products.of[I > 0 ? I - 1 : 0];
  const AmxBits* const a_now = a + now.a * panels.a_term;
  const AmxBits* b_now[kAmxMostB];
  for (int j = 0; j < B; ++j) b_now[j] = b[j] + now.b * panels.b_term;
  if constexpr (B > 2) {
    add_row<kind, A, B, 0>(a_now, b_now);
    if constexpr (A > 1) add_row<kind, A, B, 1>(a_now + panels.a_block, b_now);
  } else {
    constexpr bool new_a = I == 0 || now.a != before.a, new_b = I == 0 || now.b != before.b;
    if constexpr (new_a) _tile_loadd(4, a_now, kTileRow);
    if constexpr (new_a && A > 1) _tile_loadd(5, a_now + panels.a_block, kTileRow);
    if constexpr (new_b) _tile_loadd(6, b_now[0], kTileRow);
    if constexpr (new_b && B > 1) _tile_loadd(7, b_now[1], kTileRow);
    add_product<kind, 0, 4, 6>();
    if constexpr (B > 1) add_product<kind, 1, 4, 7>();
    if constexpr (A > 1) add_product<kind, sum_tile(B, 1, 0), 5, 6>();
    if constexpr (A > 1 && B > 1) add_product<kind, sum_tile(B, 1, 1), 5, 7>();
  }
  if constexpr (I + 1 < static_cast<int>(sizeof products / sizeof now)) {
    multiply_step<kind, A, B, products, I + 1>(panels, a, b);
  }
}

template <Multiply kind, int A, int B, const auto& products>
void multiply_runs(const AmxPanels& panels, const AmxRun* runs, long run_count) {
  for (const AmxRun* run = runs; run < runs + run_count; ++run) {
    const AmxBits* a = panels.a + run->a;
    const AmxBits* b[kAmxMostB];
    for (int j = 0; j < B; ++j) b[j] = panels.b + run->b[j];
    for (long step = run->steps; step > 0; --step) {
      multiply_step<kind, A, B, products>(panels, a, b);
      a += kAmxTile;
      for (int j = 0; j < B; ++j) b[j] += kAmxTile;
    }
  }
}

template <int Count>
void zero_sums() {
  _tile_zero(0);
  if constexpr (Count > 1) _tile_zero(1);
  if constexpr (Count > 2) _tile_zero(2);
  if constexpr (Count > 3) _tile_zero(3);
  if constexpr (Count > 4) _tile_zero(4);
  if constexpr (Count > 5) _tile_zero(5);
}
template <int A, int B>
void store_sums(float* sums) {
  const auto place = [&](int tile) { return sums + (tile / B * kAmxMostB + tile % B) * kAmxSums; };
  _tile_stored(0, place(0), kTileRow);
  if constexpr (A * B > 1) _tile_stored(1, place(1), kTileRow);
  if constexpr (A * B > 2) _tile_stored(2, place(2), kTileRow);
  if constexpr (A * B > 3) _tile_stored(3, place(3), kTileRow);
  if constexpr (A * B > 4) _tile_stored(4, place(4), kTileRow);
  if constexpr (A * B > 5) _tile_stored(5, place(5), kTileRow);
}

// Each number of tiles has a function, as their names are in the instructions. Sums stay in the
// tiles over all runs: to store and add them takes as long as ten multiplications.
template <Multiply kind, int A, int B>
void multiply_block(const AmxPanels& panels, const AmxRun* runs, long run_count, float* sums) {
  asm volatile("" : : : "memory");  // the panels are written, as far as GCC knows unread
  zero_sums<A * B>();
  if constexpr (kind == Multiply::bf16) {
    if (panels.terms == 2) multiply_runs<kind, A, B, kAmxAllOfTwo>(panels, runs, run_count);
    if (panels.terms == 3) multiply_runs<kind, A, B, kAmxSmallOfThree>(panels, runs, run_count);
  }
  if (panels.terms != 2) multiply_runs<kind, A, B, kAmxFirst>(panels, runs, run_count);
  // Sums can only go to memory, from where vectors add them to the partial.
  store_sums<A, B>(sums);
  asm volatile("" : : : "memory");
}

template <Multiply kind>
void multiply(int a_tiles, int b_tiles, const AmxPanels& panels, const AmxRun* runs, long run_count,
              float* sums) {
  constexpr decltype(&multiply_block<kind, 1, 1>) kBlocks[kAmxMostA][kAmxMostB] = {
      {multiply_block<kind, 1, 1>, multiply_block<kind, 1, 2>, multiply_block<kind, 1, 3>},
      {multiply_block<kind, 2, 1>, multiply_block<kind, 2, 2>, multiply_block<kind, 2, 3>}};
  kBlocks[a_tiles - 1][b_tiles - 1](panels, runs, run_count, sums);
}

}  // namespace

extern const AmxTiles kAmxTiles = {2, configure_tiles, end, multiply<Multiply::bf16>};
extern const AmxTiles kAmxFp16Tiles = {1, configure_tiles, end, multiply<Multiply::fp16>};

}  // namespace convgrad
