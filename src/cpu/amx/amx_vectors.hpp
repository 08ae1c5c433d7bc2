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

// A file's values, and the terms of a panel that each is the sum of. As it is:
struct Whole {
  using Bits = AmxBits;
  static constexpr int kTerms = 1;
};
// The upper half of a float is a bfloat16, of 8 bits. A float16 has 11: the other 3 make another.
struct HalfAsTwo {
  using Bits = AmxBits;
  using Scalar = Float16;
  static constexpr int kTerms = 2;
  static constexpr std::uint32_t kRound = 0;
};
// A float32 has 24 bits. Terms are rounded to the nearest, so that what follows is half as large
// and of either sign, which the products that are left out then are, too. Halfway cases may go up:
// the next term takes back what was added.
struct FloatAsThree {
  using Bits = std::uint32_t;
  using Scalar = float;
  static constexpr int kTerms = 3;
  static constexpr std::uint32_t kRound = 0x8000;
};

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

// The first count of 16 values, zeros behind them, as bfloat16 in the upper halves of lanes.
template <typename Set, typename Source>
void load_terms(const void* from, long count, PairVector (&terms)[Source::kTerms]) {
  using Values = Reader<Set, typename Source::Scalar, float>;
  typename Source::Bits padded[kAmxChannels];
  typename Values::V value;
  if (count == kAmxChannels) {
    value = Values({from, nullptr, 0, 1, 1}).full(0);
  } else if constexpr (Set::kHasMasks) {
    value = Values({from, nullptr, 0, 1, 1}).first(0, count);
  } else {
    const auto* values = static_cast<const typename Source::Bits*>(from);
    for (long j = 0; j < kAmxChannels; ++j) padded[j] = j < count ? values[j] : 0;
    value = Values({padded, nullptr, 0, 1, 1}).full(0);
  }
#pragma GCC unroll 3
  for (int t = 0; t + 1 < Source::kTerms; ++t) {
    terms[t] = ((PairVector)value + Source::kRound) & 0xffff0000u;
    value -= (typename Values::V)terms[t];
  }
  terms[Source::kTerms - 1] = (PairVector)value;
}

// A pair of pixels: the first one in the low halves, as the instruction reads them. Channels stay
// in their order, so that conversion and a shift are enough, without a shuffle across the vector.
template <typename Set, typename Source>
void load_pair(const void* first, const void* second, long count,
               PairVector (&pair)[Source::kTerms]) {
  if constexpr (Source::kTerms == 1) {
    ChannelVector low, high;
    load_channels<Set>(static_cast<const AmxBits*>(first), count, low);
    load_channels<Set>(static_cast<const AmxBits*>(second), count, high);
    pair[0] = __builtin_convertvector(low, PairVector) |
              (__builtin_convertvector(high, PairVector) << 16);
  } else {
    PairVector low[Source::kTerms], high[Source::kTerms];
    load_terms<Set, Source>(first, count, low);
    load_terms<Set, Source>(second, count, high);
#pragma GCC unroll 3
    for (int t = 0; t < Source::kTerms; ++t) pair[t] = (low[t] >> 16) | high[t];
  }
}

// Of the lanes of both, one after the other.
template <long... Lane>
static inline PairVector upper_halves(PairVector first, PairVector second, Indices<Lane...>) {
  typedef AmxBits Halves __attribute__((vector_size(64)));
  return (PairVector)__builtin_shufflevector((Halves)first, (Halves)second, (2 * Lane + 1)...);
}

// 32 neighbouring pixels of a channel.
template <typename Set, typename Source>
void load_row(const typename Source::Bits* from, PairVector (&row)[Source::kTerms]) {
  if constexpr (Source::kTerms == 1) {
    row[0] = load<PairVector>(from);
  } else {
    PairVector half[2][Source::kTerms];
    load_terms<Set, Source>(from, kAmxChannels, half[0]);
    load_terms<Set, Source>(from + kAmxChannels, kAmxChannels, half[1]);
#pragma GCC unroll 3
    for (int t = 0; t < Source::kTerms; ++t) {
      row[t] = upper_halves(half[0][t], half[1][t], UpTo<kAmxPixels>::Type{});
    }
  }
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

// A vector of each term to that row of its square. Functions that do not depend on Set are static:
// isa_load.hpp says why.
template <int Terms>
static inline void put_row(const PairVector (&vectors)[Terms], long row,
                           PairVector (&squares)[Terms][kPairs]) {
#pragma GCC unroll 3
  for (int t = 0; t < Terms; ++t) squares[t][row] = vectors[t];
}
template <bool Transposed, int Terms>
static inline void store_tiles(PairVector (&squares)[Terms][kPairs], AmxBits* tile, long term) {
#pragma GCC unroll 3
  for (int t = 0; t < Terms; ++t) {
    if constexpr (Transposed) transpose_from<1>(squares[t]);
    store_tile(squares[t], tile + t * term);
  }
}

template <typename Source>
static inline const void* channel_of(const void* pixel, long channel) {
  return static_cast<const typename Source::Bits*>(pixel) + channel;
}

template <typename Set, typename Source>
void tiles_from_pixels(const void* const* pixel, long count, long channels, AmxBits* tiles,
                       long block, long term) {
  for (long i = 0; i < count; i += kAmxPixels) {
    AmxBits* out = tiles + i * kAmxChannels;
    for (long k = 0; k < channels; k += kAmxChannels, out += block) {
      const long left = channels_left(channels, k);
      PairVector squares[Source::kTerms][kPairs];
#pragma GCC unroll 16
      for (long p = 0; p < kPairs; ++p) {
        PairVector pair[Source::kTerms];
        load_pair<Set, Source>(channel_of<Source>(pixel[i + 2 * p], k),
                               channel_of<Source>(pixel[i + 2 * p + 1], k), left, pair);
        put_row(pair, p, squares);
      }
      store_tiles<true>(squares, out, term);
    }
  }
}

// From rows it is the other way round: a row of 32 pixels is a row of an A tile already.
template <typename Set, typename Source, bool Transposed>
void from_rows(const void* rows, long row, long count, AmxBits* tiles, long term) {
  const auto* from = static_cast<const typename Source::Bits*>(rows);
  for (long i = 0; i < count; i += kAmxPixels) {
    PairVector squares[Source::kTerms][kPairs];
#pragma GCC unroll 16
    for (long j = 0; j < kAmxChannels; ++j) {
      PairVector pixels[Source::kTerms];
      load_row<Set, Source>(from + j * row + i, pixels);
      put_row(pixels, j, squares);
    }
    store_tiles<Transposed>(squares, tiles + i * kAmxChannels, term);
  }
}

// Channel by channel and from front to back, as the file has them.
template <typename Set, typename Bits>
void rows_from_channels(const void* data, long channel_stride, long pixel_stride,
                        const AmxPiece* pieces, long piece_count, long channels, void* rows,
                        long row) {
  for (long c = 0; c < channels; ++c) {
    Bits* out = static_cast<Bits*>(rows) + c * row;
    for (const AmxPiece* piece = pieces; piece < pieces + piece_count; ++piece) {
      const long count = piece->count;
      const Bits* from = static_cast<const Bits*>(data) + c * channel_stride + piece->source;
      if (piece->source < 0) {
        for (long i = 0; i < count; ++i) out[i] = 0;
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

// The pairs that begin with the second pixels of `pair`.
static inline PairVector odd_pair(PairVector pair, PairVector next) {
  return (pair >> 16) | (next << 16);
}

// A B tile has pairs of pixels in its rows, channel by channel: no transposition, which is what
// makes pairs cheaper to pack than tiles where channels are side by side.
template <typename Set, typename Source, bool Odd>
void put_pairs(const void* const* pixel, long channel, long left, AmxBits* pairs, long term,
               long odd) {
  PairVector last[Source::kTerms] = {};
  for (long p = 0; p < kAmxPixels + (Odd ? 2 : 0); p += 2) {
    PairVector pair[Source::kTerms];
    load_pair<Set, Source>(channel_of<Source>(pixel[p], channel),
                           channel_of<Source>(pixel[p + 1], channel), left, pair);
#pragma GCC unroll 3
    for (int t = 0; t < Source::kTerms; ++t) {
      AmxBits* out = pairs + p * kAmxChannels + t * term;
      if (p < kAmxPixels) store(out, pair[t]);
      if (Odd && p > 0) store(out + odd - kAmxPixels, odd_pair(last[t], pair[t]));
      last[t] = pair[t];
    }
  }
}

// 32 pixels of 16 channels at a time: a column of pairs would fill few sets of the first cache.
template <typename Set, typename Source>
void pairs_from_pixels(const void* const* pixel, long count, long channels, AmxBits* pairs,
                       long block, long term, long odd) {
  const auto put = odd != 0 ? put_pairs<Set, Source, true> : put_pairs<Set, Source, false>;
  for (long i = 0; i < count; i += kAmxPixels) {
    AmxBits* out = pairs + i * kAmxChannels;
    for (long k = 0; k < channels; k += kAmxChannels, out += block) {
      put(pixel + i, k, channels_left(channels, k), out, term, odd);
    }
  }
}

// Across the ends of blocks of channels, too: no run reads the last pair of an odd beginning.
template <typename Set>
void odd_pairs(const AmxBits* even, long count, AmxBits* odd) {
  PairVector pair = load<PairVector>(even);
  for (long i = kAmxPixels; i < count; i += kAmxPixels) {
    const PairVector next = load<PairVector>(even + i);
    store(odd + i - kAmxPixels, odd_pair(pair, next));
    pair = next;
  }
  store(odd + count - kAmxPixels, odd_pair(pair, PairVector{}));
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

template <typename Set, typename Source, int FractionBits>
constexpr AmxPacking amx_packing() {
  using Bits = typename Source::Bits;
  return {sizeof(Bits),
          tiles_from_pixels<Set, Source>,
          from_rows<Set, Source, false>,
          pairs_from_pixels<Set, Source>,
          from_rows<Set, Source, true>,
          rows_from_channels<Set, Bits>,
          exponent_range<Set, Bits, FractionBits>};
}

template <typename Set>
constexpr AmxVectors amx_vectors() {
  return {amx_packing<Set, Whole, 7>(),
          amx_packing<Set, Whole, 10>(),
          amx_packing<Set, HalfAsTwo, 10>(),
          amx_packing<Set, FloatAsThree, 23>(),
          odd_pairs<Set>,
          add_sums<Set>};
}

}  // namespace convgrad
