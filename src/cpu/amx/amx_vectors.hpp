// amx_vectors.hpp - packs for AMX and adds its sums up, in templates over an instruction set, as
// those of isa_load.hpp, with vectors of 64 bytes, of which GCC makes several where need be.
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

// These are a file's values, in vectors of magnitudes, and the terms of a panel that each is the
// sum of. Whole takes a value as it is.
template <int FractionBits>
struct Whole {
  using Bits = AmxBits;
  typedef AmxBits Magnitudes __attribute__((vector_size(64)));
  static constexpr int kTerms = 1, kFractionBits = FractionBits;
};
// The upper half of a float is a bfloat16, of 8 bits. A float16 has 11: the other 3 make another.
struct HalfAsTwo {
  using Bits = AmxBits;
  using Magnitudes = ChannelVector;
  using Scalar = Float16;
  static constexpr int kTerms = 2, kFractionBits = 10;
  static constexpr std::uint32_t kRound = 0;
};
// A float32 has 24 bits. Terms are rounded to the nearest, so that what follows is half as large
// and of either sign, which the products that are left out then are, too. Halfway cases may go up:
// the next term takes back what was added.
struct FloatAsThree {
  using Bits = std::uint32_t;
  using Magnitudes = PairVector;
  using Scalar = float;
  static constexpr int kTerms = 3, kFractionBits = 23;
  static constexpr std::uint32_t kRound = 0x8000;
};

template <typename Set, typename Source>
using AmxRange = MagnitudeRange<Set, typename Source::Bits, typename Source::Magnitudes>;

// Loads the first count of 16 channels, zeros behind them.
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

// Loads the first count of 16 values, zeros behind them, as bfloat16 in the upper halves of lanes.
template <typename Set, typename Source>
void load_terms(const void* from, long count, PairVector (&terms)[Source::kTerms],
                AmxRange<Set, Source>& range) {
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
  if constexpr (Source::kTerms == 2) {
    ChannelVector bits;
    load_channels<Set>(static_cast<const AmxBits*>(from), count, bits);
    range.add(bits);
  } else {
    range.add((PairVector)value);
  }
#pragma GCC unroll 3
  for (int t = 0; t + 1 < Source::kTerms; ++t) {
    terms[t] = ((PairVector)value + Source::kRound) & 0xffff0000u;
    value -= (typename Values::V)terms[t];
  }
  terms[Source::kTerms - 1] = (PairVector)value;
}

// Loads a pair of pixels, the first one in the low halves of lanes, as the instruction reads them.
// Channels stay in their order, so that conversion and a shift are enough.
template <typename Set, typename Source>
void load_pair(const void* first, const void* second, long count,
               PairVector (&pair)[Source::kTerms], AmxRange<Set, Source>& range) {
  if constexpr (Source::kTerms == 1) {
    ChannelVector low, high;
    load_channels<Set>(static_cast<const AmxBits*>(first), count, low);
    load_channels<Set>(static_cast<const AmxBits*>(second), count, high);
    pair[0] = (PairVector)__builtin_shufflevector(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                                  21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27,
                                                  12, 28, 13, 29, 14, 30, 15, 31);
    range.add((typename Source::Magnitudes)pair[0]);
  } else {
    PairVector low[Source::kTerms], high[Source::kTerms];
    load_terms<Set, Source>(first, count, low, range);
    load_terms<Set, Source>(second, count, high, range);
#pragma GCC unroll 3
    for (int t = 0; t < Source::kTerms; ++t) pair[t] = (low[t] >> 16) | high[t];
  }
}

static inline long channels_left(long channels, long c) {
  return channels - c < kAmxChannels ? channels - c : kAmxChannels;
}

// The squares are of 16 pairs: a tile's rows. A row is a whole cache line, since the tile is
// loaded by rows, and one across two lines would take two reads of the cache.
static inline void store_tile(const PairVector (&square)[kAmxPairs], AmxBits* tile) {
#pragma GCC unroll 16
  for (long j = 0; j < kAmxChannels; ++j) store(tile + j * kAmxRow, square[j]);
}

// Puts a vector of each term in that row of its square. Functions that do not depend on Set are
// static: isa_load.hpp says why.
template <int Terms>
static inline void put_row(const PairVector (&vectors)[Terms], long row,
                           PairVector (&squares)[Terms][kAmxPairs]) {
#pragma GCC unroll 3
  for (int t = 0; t < Terms; ++t) squares[t][row] = vectors[t];
}
template <bool Transposed, int Terms>
static inline void store_tiles(PairVector (&squares)[Terms][kAmxPairs], AmxBits* tile, long term) {
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

// Fetches all channels of a pixel line by line: in this order the processor fetches further itself.
static inline void fetch(const void* pixel, long bytes) {
  for (long at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(pixel) + at);
}

// Takes 16 pairs of 16 channels at a time: a column of pairs would fill few sets of the first
// cache. put(pairs, channel, channels left, place in the panel). Meanwhile the next are fetched.
template <typename Source, typename Put>
static inline void for_squares(const void* const* first, const void* const* second, long count,
                               long channels, AmxBits* panel, long block, const Put& put) {
  const long bytes = channels * static_cast<long>(sizeof(typename Source::Bits));
  const long blocks = (channels + kAmxChannels - 1) / kAmxChannels;
  for (long i = 0; i < count; i += kAmxPairs) {
    const long ahead = i + 2 * kAmxPairs <= count ? i + kAmxPairs : i;
    long fetched = ahead == i ? kAmxPairs : 0;
    for (long b = 0; b < blocks; ++b) {
      for (; fetched * blocks < (b + 1) * kAmxPairs && fetched < kAmxPairs; ++fetched) {
        fetch(first[ahead + fetched], bytes);
        fetch(second[ahead + fetched], bytes);
      }
      const long k = b * kAmxChannels;
      put(i, k, channels_left(channels, k), panel + b * block + i * kAmxRow);
    }
  }
}

// A B tile has pairs of pixels in its rows, channel by channel. It needs no transposition, so pairs
// are cheaper to pack than tiles where channels are side by side.
template <typename Set, typename Source, bool Transposed>
void from_pixels(const void* const* first, const void* const* second, long count, long channels,
                 AmxBits* panel, long block, long term, ExponentRange& range) {
  AmxRange<Set, Source> found;
  for_squares<Source>(
      first, second, count, channels, panel, block, [&](long i, long k, long left, AmxBits* out) {
        PairVector squares[Source::kTerms][kAmxPairs];
#pragma GCC unroll 16
        for (long p = 0; p < kAmxPairs; ++p) {
          PairVector pair[Source::kTerms];
          load_pair<Set, Source>(channel_of<Source>(first[i + p], k),
                                 channel_of<Source>(second[i + p], k), left, pair, found);
          put_row(pair, p, squares);
        }
        store_tiles<Transposed>(squares, out, term);
      });
  found.template extend<Source::kFractionBits>(range);
}

// From rows it is the other way round: 16 pairs of a channel are a row of an A tile already.
template <typename Set, typename Source, bool Transposed>
void from_rows(const void* rows, long row, long count, AmxBits* tiles, long term,
               ExponentRange& range) {
  AmxRange<Set, Source> found;
  const auto* from = static_cast<const typename Source::Bits*>(rows);
  for (long i = 0; i < count; i += kAmxPairs) {
    PairVector squares[Source::kTerms][kAmxPairs];
#pragma GCC unroll 16
    for (long j = 0; j < kAmxChannels; ++j) {
      PairVector pairs[Source::kTerms];
      const auto* first = from + j * row + i;
      load_pair<Set, Source>(first, first + count, kAmxPairs, pairs, found);
      put_row(pairs, j, squares);
    }
    store_tiles<Transposed>(squares, tiles + i * kAmxRow, term);
  }
  found.template extend<Source::kFractionBits>(range);
}

// out[i] = from[2*i] for i < N, and nothing behind from[2*N - 2] is read.
template <int N, typename Bits>
static inline void copy_second_ones(const Bits* from, Bits* out) {
  typedef Bits Part __attribute__((vector_size(N * sizeof(Bits))));
  Part low, high, both;
  __builtin_memcpy(&low, from, sizeof low);
  __builtin_memcpy(&high, from + N - 1, sizeof high);
  if constexpr (N == 16) {
    both = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29,
                                   31);
  } else {
    both = __builtin_shufflevector(low, high, 0, 2, 4, 6, 9, 11, 13, 15);
  }
  __builtin_memcpy(out, &both, sizeof both);
}
// Takes any count. Lines of a small image fill few vectors: the last one overlaps.
template <typename Bits>
static inline void copy_second_ones(const Bits* from, long count, Bits* out) {
  if (count >= 16) {
    for (long i = 0; i < count; i += 16) {
      const long at = i + 16 <= count ? i : count - 16;
      copy_second_ones<16>(from + 2 * at, out + at);
    }
  } else if (count >= 8) {
    copy_second_ones<8>(from, out);
    copy_second_ones<8>(from + 2 * (count - 8), out + count - 8);
  } else {
    for (long i = 0; i < count; ++i) out[i] = from[2 * i];
  }
}

// Copies channel by channel and from front to back, as the file has them.
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
      } else if (pixel_stride == 2) {
        copy_second_ones(from, count, out);
      } else {
        for (long i = 0; i < count; ++i) out[i] = from[i * pixel_stride];
      }
      out += count;
    }
  }
}

template <typename Set>
void add_sums(const float* sums, bool turned, long c_count, long k_count, double* partial,
              long partial_row, bool store) {
  if constexpr (Set::kAddsSquares) {
    Set::add_square(sums, turned, c_count, k_count, partial, partial_row, store);
  } else {
    for (long c = 0; c < c_count; ++c) {
      for (long k = 0; k < k_count; ++k) {
        const long at = turned ? c * kAmxChannels + k : k * kAmxChannels + c;
        double& cell = partial[c * partial_row + k];
        cell = (store ? 0.0 : cell) + static_cast<double>(sums[at]);
      }
    }
  }
}

template <typename Set, typename Source>
constexpr AmxPacking amx_packing() {
  using Bits = typename Source::Bits;
  return {sizeof(Bits),
          from_pixels<Set, Source, true>,
          from_rows<Set, Source, false>,
          from_pixels<Set, Source, false>,
          from_rows<Set, Source, true>,
          rows_from_channels<Set, Bits>,
          exponent_range<Set, Bits, Source::kFractionBits>};
}

template <typename Set>
constexpr AmxVectors amx_vectors() {
  return {amx_packing<Set, Whole<7>>(), amx_packing<Set, Whole<10>>(),
          amx_packing<Set, HalfAsTwo>(), amx_packing<Set, FloatAsThree>(), add_sums<Set>};
}

}  // namespace convgrad
