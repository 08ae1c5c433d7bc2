// amx_vectors.hpp - packing for AMX, and adding its sums up: templates over an instruction set, as
// those of isa_load.hpp, with vectors of 64 bytes. Where the processor has smaller ones, GCC makes
// several of each.
//
// The work is done in squares of 16 pixel pairs x 16 channels of 32 bits: 16 vectors, which is a
// tile of AMX, and half of AVX-512's registers.
#pragma once

#include "cpu/amx/amx_isa.hpp"
#include "cpu/isa/isa_exponent_range.hpp"
#include "cpu/isa/isa_pack.hpp"

namespace convgrad {

typedef std::uint32_t PairVector __attribute__((vector_size(64)));
typedef AmxBits ChannelVector __attribute__((vector_size(32)));
constexpr long kPairs = kAmxPixels / 2;

// The first count of 16 channels, zeros behind them.
template <typename Set>
void load_channels(const AmxBits* from, long count, ChannelVector& value) {
  if (count == kAmxChannels) {
    __builtin_memcpy(&value, from, sizeof value);
    return;
  }
  if constexpr (Set::kHasMasks) {
    value = Set::first_bits16(from, count);
  } else {
    value = ChannelVector{};
    for (long j = 0; j < count; ++j) value[j] = from[j];
  }
}

// A pair of pixels: the first one in the low halves, as the instruction reads them. Channels stay
// in their order, so that conversion and a shift are enough, without a shuffle across the vector.
template <typename Set>
void load_pair(const AmxBits* first, const AmxBits* second, long count, PairVector& pair) {
  ChannelVector low, high;
  load_channels<Set>(first, count, low);
  load_channels<Set>(second, count, high);
  pair =
      __builtin_convertvector(low, PairVector) | (__builtin_convertvector(high, PairVector) << 16);
}

static inline long channels_left(long channels, long c) {
  return channels - c < kAmxChannels ? channels - c : kAmxChannels;
}

// The squares are of 32 pixels: a tile's rows. A row is a whole cache line, since the tile is
// loaded by rows, and one across two lines would take two reads of the cache.
static inline void store_tile(const PairVector (&square)[kPairs], AmxBits* tile) {
#pragma GCC unroll 16
  for (long j = 0; j < kAmxChannels; ++j) store(tile + j * kAmxPixels, square[j]);
}

template <typename Set>
void tiles_from_pixels(const AmxBits* const* pixel, long count, long channels, AmxBits* tiles,
                       long block) {
  for (long i = 0; i < count; i += kAmxPixels) {
    AmxBits* out = tiles + i * kAmxChannels;
    for (long k = 0; k < channels; k += kAmxChannels, out += block) {
      const long left = channels_left(channels, k);
      PairVector square[kPairs];
#pragma GCC unroll 16
      for (long p = 0; p < kPairs; ++p) {
        load_pair<Set>(pixel[i + 2 * p] + k, pixel[i + 2 * p + 1] + k, left, square[p]);
      }
      transpose_from<1>(square);
      store_tile(square, out);
    }
  }
}

static inline void load_rows(const AmxBits* rows, long row, PairVector (&square)[kPairs]) {
#pragma GCC unroll 16
  for (long j = 0; j < kAmxChannels; ++j) square[j] = load<PairVector>(rows + j * row);
}

// From rows it is the other way round: a row of 32 pixels is a row of an A tile already.
template <typename Set>
void tiles_from_rows(const AmxBits* rows, long row, long count, AmxBits* tiles) {
  for (long i = 0; i < count; i += kAmxPixels) {
    PairVector square[kPairs];
    load_rows(rows + i, row, square);
    store_tile(square, tiles + i * kAmxChannels);
  }
}

static inline void fill_zeros(AmxBits* out, long count) {
  for (long i = 0; i < count; ++i) out[i] = 0;
}

// Channel by channel and from front to back, as the file has them.
template <typename Set>
void rows_from_channels(const AmxBits* data, long channel_stride, long pixel_stride,
                        const AmxPiece* pieces, long piece_count, long channels, AmxBits* rows,
                        long row) {
  for (long c = 0; c < channels; ++c) {
    AmxBits* out = rows + c * row;
    for (const AmxPiece* piece = pieces; piece < pieces + piece_count; ++piece) {
      const long count = piece->count;
      const AmxBits* from = data + c * channel_stride + piece->source;
      if (piece->source < 0) {
        fill_zeros(out, count);
      } else if (pixel_stride == 1) {
        __builtin_memcpy(out, from, static_cast<unsigned long>(count) * sizeof *out);
      } else if (pixel_stride == 2) {  // known to the compiler: vectors
        for (long i = 0; i < count; ++i) out[i] = from[i * 2];
      } else {
        for (long i = 0; i < count; ++i) out[i] = from[i * pixel_stride];
      }
      out += count;
    }
  }
}

// A B tile has pairs of pixels in its rows, channel by channel: no transposition, which is what
// makes pairs cheaper to pack than tiles where channels are side by side.
template <typename Set>
void pairs_from_pixels(const AmxBits* const* pixel, long count, long channels, AmxBits* pairs,
                       long block) {
  for (long i = 0; i < count; i += 2) {
    AmxBits* out = pairs + i * kAmxChannels;
    for (long k = 0; k < channels; k += kAmxChannels, out += block) {
      PairVector pair;
      load_pair<Set>(pixel[i] + k, pixel[i + 1] + k, channels_left(channels, k), pair);
      __builtin_memcpy(out, &pair, sizeof pair);
    }
  }
}

template <typename Set>
void pairs_from_rows(const AmxBits* rows, long row, long count, AmxBits* pairs) {
  for (long i = 0; i < count; i += kAmxPixels) {
    PairVector square[kPairs];
    load_rows(rows + i, row, square);
    transpose_from<1>(square);
    store_tile(square, pairs + i * kAmxChannels);
  }
}

// The upper half of a float is a bfloat16, of 8 bits. A float16 has 11: the other 3 make another.
// Of whole panels, padding and all: zeros split into zeros.
template <typename Set>
void split(AmxBits* values, long count, AmxBits* low) {
  using Floats = typename VectorOf<Set, float>::Type;
  const Reader<Set, Float16, float> source({values, nullptr, 0, 1, 1});
  for (long i = 0; i < count; i += kAmxChannels) {
    const Floats value = source.full(i);
    const PairVector bits = (PairVector)value & 0xffff0000u;
    const PairVector rest = (PairVector)(value - (Floats)bits);
    store(values + i, __builtin_convertvector(bits >> 16, ChannelVector));
    store(low + i, __builtin_convertvector(rest >> 16, ChannelVector));
  }
}

// The sums of 16 x 16 channels: full squares in vectors, others one by one. Adding them up
// is 12 % of the time of 3x3 on 56x56x64 (docs/measurements/performance.md).
template <typename Set>
void add_square(const float* sums, bool turned, long rows, long columns, double* out,
                long out_row) {
  if constexpr (Set::kAddsSquares) {
    if (rows == kAmxChannels && columns == kAmxChannels) {
      return Set::add_full_square(sums, turned, out, out_row);
    }
  }
  for (long c = 0; c < rows; ++c) {
    for (long k = 0; k < columns; ++k) {
      const long at = turned ? c * kAmxBlock + k : k * kAmxBlock + c;
      out[c * out_row + k] += static_cast<double>(sums[at]);
    }
  }
}

template <typename Set>
void add_sums(const float* sums, bool turned, long c_count, long k_count, double* partial,
              long partial_row) {
  for (long c = 0; c < c_count; c += kAmxChannels) {
    for (long k = 0; k < k_count; k += kAmxChannels) {
      const float* square = turned ? sums + c * kAmxBlock + k : sums + k * kAmxBlock + c;
      add_square<Set>(square, turned, channels_left(c_count, c), channels_left(k_count, k),
                      partial + c * partial_row + k, partial_row);
    }
  }
}

template <typename Set>
constexpr AmxVectors amx_vectors() {
  return {tiles_from_pixels<Set>, tiles_from_rows<Set>,    rows_from_channels<Set>,
          pairs_from_pixels<Set>, pairs_from_rows<Set>,    split<Set>,
          exponent_range<Set, 7>, exponent_range<Set, 10>, add_sums<Set>};
}

}  // namespace convgrad
