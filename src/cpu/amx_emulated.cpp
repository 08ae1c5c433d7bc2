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
void multiply_tile(const AmxBits* a, long a_channel, const AmxBits* b, float* sums) {
  for (long c = 0; c < kAmxChannels; ++c) {
    float even[kAmxChannels] = {}, odd[kAmxChannels] = {};
    for (long pair = 0; pair < kAmxPixels / 2; ++pair) {
      const unsigned* row = reinterpret_cast<const unsigned*>(b) + pair * kAmxChannels;
      const unsigned first = a[c * a_channel + 2 * pair], second = a[c * a_channel + 2 * pair + 1];
      const float x0 = flushed(as_float(first << 16)), x1 = flushed(as_float(second << 16));
      for (long k = 0; k < kAmxChannels; ++k) {
        const float dy0 = flushed(as_float(row[k] << 16));
        const float dy1 = flushed(as_float(row[k] & 0xffff0000u));
        even[k] = flushed(even[k] + flushed(x0 * dy0));
        odd[k] = flushed(odd[k] + flushed(x1 * dy1));
      }
    }
    for (long k = 0; k < kAmxChannels; ++k) {
      float& sum = sums[c * kAmxBlock + k];
      sum = flushed(sum + flushed(even[k] + odd[k]));
    }
  }
}

void multiply_step(int c_tiles, int k_tiles, const AmxBits* a, long a_channel, const AmxBits* b,
                   long b_block, float* sums) {
  for (long i = 0; i < c_tiles; ++i) {
    for (long j = 0; j < k_tiles; ++j) {
      multiply_tile(a + i * kAmxChannels * a_channel, a_channel, b + j * b_block,
                    sums + kAmxChannels * (i * kAmxBlock + j));
    }
  }
}

void multiply(int c_tiles, int k_tiles, const AmxPanels& panels, const AmxRun* runs, long run_count,
              float* sums) {
  for (long i = 0; i < kAmxBlock * kAmxBlock; ++i) sums[i] = 0;
  for (int ta = 0; ta < panels.terms; ++ta) {
    for (int tb = 0; tb < panels.terms; ++tb) {
      for (long run = 0; run < run_count; ++run) {
        const AmxBits* a = panels.a + ta * panels.a_term + runs[run].a;
        const AmxBits* b = panels.b + tb * panels.b_term + runs[run].b;
        for (long step = 0; step < runs[run].steps; ++step) {
          multiply_step(c_tiles, k_tiles, a + step * kAmxPixels, panels.a_channel,
                        b + step * kAmxPixels * kAmxChannels, panels.b_block, sums);
        }
      }
    }
  }
}

void nothing() {}

}  // namespace

extern const AmxTiles kEmulatedAmxTiles = {nothing, nothing, multiply};

}  // namespace convgrad
