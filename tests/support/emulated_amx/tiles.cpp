// tiles.cpp - does what amx_tiles.cpp does, in plain C++.
#include <cmath>

#include "support/emulated_amx/emulated_amx.hpp"

namespace convgrad::testing {
namespace {

float as_float(unsigned bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

// The instructions do this to results that are not 0 and smaller than any normal number.
float flushed(float value) { return std::abs(value) < 0x1p-126f ? 0.0f : value; }

// Every x86-64 has these vectors: loops over single floats would stay what they are.
constexpr long kLanes = 4;
typedef float Lanes __attribute__((vector_size(4 * kLanes)));
typedef int LaneBits __attribute__((vector_size(4 * kLanes)));

Lanes flushed(Lanes values) {
  const LaneBits bits = (LaneBits)values;
  return (Lanes)(bits & ((bits & 0x7fffffff) >= 0x00800000));
}

// tdpbf16ps reads subnormal numbers as zeros and flushes subnormal results.
struct BFloat16s {
  static float value(unsigned bits) { return flushed(as_float(bits << 16)); }
};
// tdpfp16ps reads subnormal numbers; its products are 0 or at least 2^-48.
struct Halves {
  static float value(unsigned bits) {
    const unsigned exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    if (exponent == 31) {
      magnitude = as_float(0x7f800000u | fraction << 13);
    } else if (exponent > 0) {
      magnitude = as_float((exponent + 112) << 23 | fraction << 13);
    }
    return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
  }
};

// In both instructions the sum of the even products and that of the odd ones begin with 0; together
// they are added to the tile. (Their multiply-adds round once; so do these, as products are exact
// floats where they are not flushed.) b's values are converted once for all rows of a: this is what
// the tests' time goes to.
template <typename Values>
void multiply_tile(const AmxBits* a, const AmxBits* b, float* sums) {
  Lanes x[kAmxRow][kAmxChannels / kLanes];
  for (long pixel = 0; pixel < kAmxRow; ++pixel) {
    const AmxBits* row = b + pixel / 2 * kAmxRow + pixel % 2;
    for (long c = 0; c < kAmxChannels; ++c) {
      x[pixel][c / kLanes][c % kLanes] = Values::value(row[2 * c]);
    }
  }
  for (long k = 0; k < kAmxChannels; ++k) {
    float dy[kAmxRow];
    for (long pixel = 0; pixel < kAmxRow; ++pixel) {
      dy[pixel] = Values::value(a[k * kAmxRow + pixel]);
    }
    for (long v = 0; v < kAmxChannels / kLanes; ++v) {
      Lanes even = {}, odd = {}, sum;
      for (long pixel = 0; pixel < kAmxRow; pixel += 2) {
        even = flushed(even + flushed(dy[pixel] * x[pixel][v]));
        odd = flushed(odd + flushed(dy[pixel + 1] * x[pixel + 1][v]));
      }
      float* at = sums + k * kAmxChannels + v * kLanes;
      __builtin_memcpy(&sum, at, sizeof sum);
      sum = flushed(sum + flushed(even + odd));
      __builtin_memcpy(at, &sum, sizeof sum);
    }
  }
}

// Multiplies tile by tile, as the sums do not depend on each other.
template <typename Values, int Count>
void multiply_runs(const AmxProducts<Count>& products, int a_tiles, int b_tiles,
                   const AmxPanels& panels, const AmxRun* runs, long run_count, float* sums) {
  for (const AmxRun* run = runs; run < runs + run_count; ++run) {
    for (long at = 0; at < run->steps * kAmxTile; at += kAmxTile) {
      for (const AmxProduct& product : products.of) {
        for (int i = 0; i < a_tiles; ++i) {
          const AmxBits* a = panels.a + product.a * panels.a_term + i * panels.a_block + run->a;
          for (int j = 0; j < b_tiles; ++j) {
            const AmxBits* b = panels.b + product.b * panels.b_term + run->b[j];
            multiply_tile<Values>(a + at, b + at, sums + (i * kAmxMostB + j) * kAmxSums);
          }
        }
      }
    }
  }
}

template <typename Values>
void multiply(int a_tiles, int b_tiles, const AmxPanels& panels, const AmxRun* runs, long run_count,
              float* sums) {
  const auto add = [&](const auto& products) {
    multiply_runs<Values>(products, a_tiles, b_tiles, panels, runs, run_count, sums);
  };
  for (long i = 0; i < kAmxMostA * kAmxMostB * kAmxSums; ++i) sums[i] = 0;
  if (panels.terms == 2) return add(kAmxAllOfTwo);
  if (panels.terms == 3) add(kAmxSmallOfThree);
  add(kAmxFirst);
}

void nothing() {}

}  // namespace

extern const AmxTiles kEmulatedAmxTiles = {2, nothing, nothing, multiply<BFloat16s>};
extern const AmxTiles kEmulatedAmxFp16Tiles = {1, nothing, nothing, multiply<Halves>};

}  // namespace convgrad::testing
