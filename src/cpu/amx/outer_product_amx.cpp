// outer_product_amx.cpp - bfloat16, float16 and float32 filter gradients in AMX tiles.
//
// One instruction adds the products of 16 channels of x and 16 of dy over 16 pairs of pixels to a
// tile of 16 x 16 sums. To fill it, the sum runs across rows (and images): x is packed by channel
// with the columns and lines between output rows in place (amx_shape.hpp), dy with zeros there, and
// every tap reads the same panels, x's from another position on. The sums of 16 channels of x, seen
// by three taps, and 32 of dy stay in six tiles over all pixels of a chunk and are then added to
// the float64 partial. A float16 is the sum of two bfloat16 exactly: its products are four of
// theirs. AMX-FP16 multiplies float16 as they are. A float32 is the sum of three, and six of their
// nine products make one of its (docs/numerics.md).
#include "cpu/amx/amx_kernel.hpp"

namespace convgrad {
namespace {

template <const AmxTiles& amx>
using Avx512AmxKernel = AmxKernel<amx, kAvx512AmxVectors, kOuterProductAvx512Kernel>;

std::string why_not(bool multiplies, const char* dtypes, const char* instructions,
                    const WgradProblem& problem, const Machine& machine) {
  if (!multiplies) return cat("it multiplies ", dtypes, ", not ", dtype_name(problem.dtype));
  return first_of(lacks(machine, {"amx_tile", instructions}), lacks_avx512(machine));
}

}  // namespace

constinit const Kernel kOuterProductAmxKernel = Avx512AmxKernel<kAmxTiles>::kernel(
    "outer_product_amx",
    "sums of outer products, 48 x 32 in tiles; bfloat16, float16 as two of them; AMX-BF16",
    [](const WgradProblem& problem, const Machine& machine) {
      const bool is_16_bits = problem.dtype == DType::bf16 || problem.dtype == DType::f16;
      return why_not(is_16_bits, "bfloat16 and float16", "amx_bf16", problem, machine);
    });

constinit const Kernel kOuterProductAmxFp16Kernel = Avx512AmxKernel<kAmxFp16Tiles>::kernel(
    "outer_product_amx_fp16", "the same for float16 as they are; AMX-FP16",
    [](const WgradProblem& problem, const Machine& machine) {
      return why_not(problem.dtype == DType::f16, "float16", "amx_fp16", problem, machine);
    });

constinit const Kernel kOuterProductAmxBf16x3Kernel = Avx512AmxKernel<kAmxTiles>::kernel(
    "outer_product_amx_bf16x3", "the same for float32 as three bfloat16, in six products; AMX-BF16",
    [](const WgradProblem& problem, const Machine& machine) {
      return why_not(problem.dtype == DType::f32, "float32", "amx_bf16", problem, machine);
    });

}  // namespace convgrad
