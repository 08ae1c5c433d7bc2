// exponent_range.hpp - tells whether instructions that multiply bfloat16 and know no subnormal
// numbers give the sums of IEEE arithmetic.
#pragma once

#include "cpu/isa/isa.hpp"
#include "engine/region.hpp"

namespace convgrad {

inline ExponentRange exponent_range_of(Region region, ExponentRangeFunction extend,
                                       std::int64_t value_bytes = 2) {
  ExponentRange range;
  for (; !region.done(); region.advance_pieces()) {
    extend(region.piece(), region.piece_bytes() / value_bytes, region.pieces(),
           region.piece_stride(), range);
  }
  return range;
}

// The least bit of a bfloat16 is 7 places behind its first, that of a product 14: where exponents
// add up to -112 and more, every product, and so every sum of them, is a multiple of 2^-126: 0, or
// not subnormal. An exponent of 255 is an infinity or a NaN, which zeros of a panel must not meet.
inline bool bf16_products_in_range(const ExponentRange& x, const ExponentRange& dy) {
  return x.most < 255 && dy.most < 255 && x.least > 0 && dy.least > 0 &&
         x.least + dy.least >= 2 * 127 - 112;
}

// Judges float32 as three bfloat16, whose least bit is 23 places behind the first of their sum: no
// term is subnormal from an exponent of -103 on, no product from -80 on. Nor may a sum of 512
// products overflow, or a term that was rounded up.
inline bool f32_products_in_range(const ExponentRange& x, const ExponentRange& dy) {
  return x.most < 254 && dy.most < 254 && x.most + dy.most < 2 * 127 + 116 &&
         x.least >= 127 - 103 && dy.least >= 127 - 103 && x.least + dy.least >= 2 * 127 - 80;
}

}  // namespace convgrad
