// amx_tiles.cpp - AMX-BF16 and AMX-FP16: tdpbf16ps adds the product of a tile of 16 x 32 bfloat16
// and one of 32 x 16 to a tile of 16 x 16 floats, tdpfp16ps does it for float16. Only for processes
// that Linux has given the tiles (this_machine() asks).
#include <immintrin.h>

#include "cpu/amx/amx_config.hpp"
#include "cpu/amx/amx_isa.hpp"

namespace convgrad {
namespace {

// Until then the tiles' 8 KiB are saved at every switch of threads.
void end() { _tile_release(); }

// Tiles 0 to 3 hold the sums, [k / 16][c / 16]; 4 and 5 dy; 6 and 7 x: all eight. So each tile that
// is loaded takes part in two products, and there are as many loads as products. With fewer sums
// there would be more loads, up to two for each product.
constexpr long kTileRow = 64;

template <int KTiles>
void load_a(const AmxBits* a, long a_block) {
  _tile_loadd(4, a, kTileRow);
  if constexpr (KTiles > 1) _tile_loadd(5, a + a_block, kTileRow);
}

template <int CTiles>
void load_b(const AmxBits* b, long b_block) {
  _tile_loadd(6, b, kTileRow);
  if constexpr (CTiles > 1) _tile_loadd(7, b + b_block, kTileRow);
}

// The two instructions differ in nothing else than the prefix in their encoding.
enum class Multiply { bf16 = 2, fp16 = 3 };

// Tile `to` += tile a * tile b. Encoded by hand, since GCC 12 has no tdpfp16ps.
template <Multiply kind, int to, int a, int b>
void add_product() {
  asm volatile(".byte 0xc4, 0xe2, %c0, 0x5c, %c1"
               :
               : "i"((15 - b) << 3 | static_cast<int>(kind)), "i"(0xc0 | to << 3 | a));
}

template <Multiply kind, int KTiles, int CTiles>
void add_products() {
  add_product<kind, 0, 4, 6>();
  if constexpr (CTiles > 1) add_product<kind, 1, 4, 7>();
  if constexpr (KTiles > 1) add_product<kind, 2, 5, 6>();
  if constexpr (KTiles > 1 && CTiles > 1) add_product<kind, 3, 5, 7>();
}

// The products of 32 pixels, from the I-th in the list on. Four sums follow each other that do not
// wait for one another.
template <Multiply kind, int KTiles, int CTiles, const auto& products, int I = 0>
void multiply_step(const AmxPanels& panels, const AmxBits* a, const AmxBits* b) {
  constexpr AmxProduct now = products.of[I], before = products.of[I > 0 ? I - 1 : 0];
  if constexpr (I == 0 || now.a != before.a)
    load_a<KTiles>(a + now.a * panels.a_term, panels.a_block);
  if constexpr (I == 0 || now.b != before.b)
    load_b<CTiles>(b + now.b * panels.b_term, panels.b_block);
  add_products<kind, KTiles, CTiles>();
  if constexpr (I + 1 < static_cast<int>(sizeof products / sizeof now)) {
    multiply_step<kind, KTiles, CTiles, products, I + 1>(panels, a, b);
  }
}

template <Multiply kind, int KTiles, int CTiles, const auto& products>
void multiply_runs(const AmxPanels& panels, const AmxRun* runs, long run_count) {
  for (long run = 0; run < run_count; ++run) {
    const AmxBits* a = panels.a + runs[run].a;
    const AmxBits* b = panels.b + runs[run].b;
    for (long step = runs[run].steps; step > 0; --step) {
      multiply_step<kind, KTiles, CTiles, products>(panels, a, b);
      a += kAmxTile;
      b += kAmxTile;
    }
  }
}

template <int KTiles, int CTiles>
void store_sums(float* sums) {
  constexpr long kRow = kAmxBlock * 4;
  _tile_stored(0, sums, kRow);
  if constexpr (CTiles > 1) _tile_stored(1, sums + kAmxChannels, kRow);
  if constexpr (KTiles > 1) {
    _tile_stored(2, sums + kAmxChannels * kAmxBlock, kRow);
    if constexpr (CTiles > 1) _tile_stored(3, sums + kAmxChannels * (kAmxBlock + 1), kRow);
  }
}

// A function for each number of tiles, as their names are in the instructions. The sums of a block
// stay in the tiles over all runs: storing them and adding them to the partial takes as long as ten
// multiplications (amx_chunk_seconds()).
template <Multiply kind, int KTiles, int CTiles>
void multiply_block(const AmxPanels& panels, const AmxRun* runs, long run_count, float* sums) {
  asm volatile("" : : : "memory");  // the panels are written, as far as GCC knows unread
  _tile_zero(0);
  if constexpr (CTiles > 1) _tile_zero(1);
  if constexpr (KTiles > 1) _tile_zero(2);
  if constexpr (KTiles > 1 && CTiles > 1) _tile_zero(3);
  if constexpr (kind == Multiply::bf16) {
    if (panels.terms == 2)
      multiply_runs<kind, KTiles, CTiles, kAmxAllOfTwo>(panels, runs, run_count);
    if (panels.terms == 3)
      multiply_runs<kind, KTiles, CTiles, kAmxSmallOfThree>(panels, runs, run_count);
  }
  if (panels.terms != 2) multiply_runs<kind, KTiles, CTiles, kAmxFirst>(panels, runs, run_count);
  // Sums can only go to memory, from where vectors add them to the partial.
  store_sums<KTiles, CTiles>(sums);
  asm volatile("" : : : "memory");
}

template <Multiply kind>
void multiply(int k_tiles, int c_tiles, const AmxPanels& panels, const AmxRun* runs, long run_count,
              float* sums) {
  if (k_tiles > 1) {
    if (c_tiles > 1) return multiply_block<kind, 2, 2>(panels, runs, run_count, sums);
    return multiply_block<kind, 2, 1>(panels, runs, run_count, sums);
  }
  if (c_tiles > 1) return multiply_block<kind, 1, 2>(panels, runs, run_count, sums);
  return multiply_block<kind, 1, 1>(panels, runs, run_count, sums);
}

}  // namespace

extern const AmxTiles kAmxTiles = {2, configure_tiles, end, multiply<Multiply::bf16>};
extern const AmxTiles kAmxFp16Tiles = {1, configure_tiles, end, multiply<Multiply::fp16>};

}  // namespace convgrad
