// bf16_range.hpp - whether instructions that multiply bfloat16 and know no subnormal numbers give
// the sums of IEEE arithmetic.
#pragma once

#include <cstdint>

#include "engine/region.hpp"

namespace convgrad {

// Lowers *least to the least exponent, as it is stored, of values that are not 0, and raises *most
// to the greatest. Values as they are in the file, in pieces of `count` that begin `stride` bytes
// apart.
using SurveyFunction = void (*)(const void* values, long count, long pieces, long stride,
                                unsigned* least, unsigned* most);

struct Exponents {
  unsigned least = 254, most = 0;
};
inline Exponents exponents_of(Region region, SurveyFunction survey) {
  Exponents e;
  for (; !region.done(); region.advance_pieces()) {
    survey(region.piece(), region.piece_bytes() / 2, region.pieces(), region.piece_stride(),
           &e.least, &e.most);
  }
  return e;
}

// bfloat16 has 8 bits, so a sum of products of exponents that add up to -112 and more is 0 or at
// least 2^-126 in size.
inline bool bf16_products_in_range(const Exponents& x, const Exponents& dy) {
  return x.most < 255 && dy.most < 255 && x.least > 0 && dy.least > 0 &&
         x.least + dy.least >= 2 * 127 - 112;
}

}  // namespace convgrad
