// isa_avx512_bf16.cpp - packers and the register tile for AVX512-BF16, whose vdpbf16ps adds the
// products of a pair of bfloat16 to a float. It reads subnormal numbers as zeros and flushes
// subnormal results, so its callers look at the range of the data first.
#include "cpu/isa/avx512.hpp"
#include "cpu/isa/isa_exponent_range.hpp"
#include "cpu/isa/isa_multiply.hpp"
#include "cpu/isa/isa_pack.hpp"
#include "cpu/isa/isa_peak.hpp"

namespace convgrad {
namespace {

struct Avx512Bf16 : Avx512 {
  template <typename Sum, typename V>
  static Sum add_products_of_pairs(Sum sum, V x, V dy) {
    if constexpr (sizeof(Sum) == kVectorBytes) {
      return (Sum)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)dy);
    } else {
      return (Sum)_mm256_dpbf16_ps((__m256)sum, (__m256bh)x, (__m256bh)dy);
    }
  }
};

}  // namespace

constinit const OuterProductIsa<BFloat16Pair> kAvx512Bf16Isa = {
    Avx512Bf16::kMaxRows,
    2 * VectorOf<Avx512Bf16, BFloat16Pair>::kLanes,
    Avx512Bf16::kWideRows,
    pack<Avx512Bf16, BFloat16Pair>,
    nullptr,
    exponent_range<Avx512Bf16, std::uint16_t, 7>,
    multiply_rows<Avx512Bf16, Avx512Bf16::kMaxRows, BFloat16Pair>,
    multiply_chains<Avx512Bf16, BFloat16Pair>};

}  // namespace convgrad
