// amx_emulated.cpp - what amx_tiles.cpp does, in plain C++, so that everything around the tile
// instructions is tested on processors without them. In no table of kernels.
#include "cpu/amx_isa.hpp"

namespace convgrad {
namespace {

float as_float(unsigned bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

// The instruction reads subnormal numbers as zeros and flushes subnormal results.
float flushed(float value) { return value < 0x1p-126f && value > -0x1p-126f ? 0.0f : value; }

// tdpbf16ps: the sum of the even products and that of the odd ones begin with 0; together they are
// added to the tile. (Its multiply-adds round once; so do these, as products of bfloat16 are exact
// floats where they are not flushed.)
void multiply_tile(const AmxBits* a, const AmxBits* b, float* sums) {
  for (long k = 0; k < kAmxChannels; ++k) {
    float even[kAmxChannels] = {}, odd[kAmxChannels] = {};
    for (long pair = 0; pair < kAmxPixels / 2; ++pair) {
      const unsigned* row = reinterpret_cast<const unsigned*>(b) + pair * kAmxChannels;
      const unsigned first = a[k * kAmxPixels + 2 * pair],
                     second = a[k * kAmxPixels + 2 * pair + 1];
      const float dy0 = flushed(as_float(first << 16)), dy1 = flushed(as_float(second << 16));
      for (long c = 0; c < kAmxChannels; ++c) {
        const float x0 = flushed(as_float(row[c] << 16));
        const float x1 = flushed(as_float(row[c] & 0xffff0000u));
        even[c] = flushed(even[c] + flushed(dy0 * x0));
        odd[c] = flushed(odd[c] + flushed(dy1 * x1));
      }
    }
    for (long c = 0; c < kAmxChannels; ++c) {
      float& sum = sums[k * kAmxBlock + c];
      sum = flushed(sum + flushed(even[c] + odd[c]));
    }
  }
}

void multiply_step(int k_tiles, int c_tiles, const AmxBits* a, long a_block, const AmxBits* b,
                   long b_block, float* sums) {
  for (long i = 0; i < k_tiles; ++i) {
    for (long j = 0; j < c_tiles; ++j) {
      multiply_tile(a + i * a_block, b + j * b_block, sums + kAmxChannels * (i * kAmxBlock + j));
    }
  }
}

void multiply(int k_tiles, int c_tiles, const AmxPanels& panels, const AmxRun* runs, long run_count,
              float* sums) {
  // The terms of a and b in the order of the instructions.
  constexpr int kTermsA[] = {0, 0, 1, 1}, kTermsB[] = {0, 1, 1, 0};
  for (long i = 0; i < kAmxBlock * kAmxBlock; ++i) sums[i] = 0;
  for (long run = 0; run < run_count; ++run) {
    for (long step = 0; step < runs[run].steps; ++step) {
      const AmxBits* a = panels.a + runs[run].a + step * kAmxTile;
      const AmxBits* b = panels.b + runs[run].b + step * kAmxTile;
      for (int pair = 0; pair < panels.terms * panels.terms; ++pair) {
        multiply_step(k_tiles, c_tiles, a + kTermsA[pair] * panels.a_term, panels.a_block,
                      b + kTermsB[pair] * panels.b_term, panels.b_block, sums);
      }
    }
  }
}

void nothing() {}

}  // namespace

extern const AmxTiles kEmulatedAmxTiles = {nothing, nothing, multiply};

}  // namespace convgrad
