// treatments.cpp - changes the numbers of x and dy before they are multiplied.
#include <algorithm>
#include <cmath>

#include "check/diagnosis/reading.hpp"

namespace convgrad::diagnosis {
namespace {

// TensorFloat-32 is PTX's, the 8-bit floats are OCP's (8-bit Floating Point Specification).
constexpr TreatmentKind kTreatments[] = {
    {Treatment::f32, "rounded to float32", "a kernel for float32", false, 24, -126},
    {Treatment::tf32, "rounded to TF32",
     "cvt.rna.tf32, torch.backends.cuda.matmul.allow_tf32 or cudnn.allow_tf32", false, 11, -126,
     Ties::away},
    {Treatment::tf32_even, "rounded to TF32 (half to even)",
     "cvt.rn.tf32, XF32, or a tf32 type of a library", true, 11, -126},
    {Treatment::tf32_cut, "cut off to TF32",
     "float32 that goes to a tensor core without cvt.rna.tf32", false, 11, -126, Ties::cut},
    {Treatment::f16, "rounded to float16", "autocast to float16", false, 11, -14},
    {Treatment::bf16, "rounded to bfloat16", "autocast, or set_float32_matmul_precision('medium')",
     false, 8, -126},
    {Treatment::bf16_cut, "cut off to bfloat16",
     "the upper halves of float32 numbers, without rounding", false, 8, -126, Ties::cut},
    {Treatment::f16_cut, "cut off to float16", "a conversion that rounds towards 0", true, 11, -14,
     Ties::cut, 65504},
    {.treatment = Treatment::flushed,
     .text = "flushed to 0 where they are subnormal",
     .cause = "-ftz=true, -ffast-math, or torch.set_flush_denormal",
     .fault = "subnormals_flushed"},
    {.treatment = Treatment::relu,
     .text = "cut off at 0 (ReLU)",
     .cause = "an activation that is fused in",
     .fault = "activation"},
    {Treatment::bf16_twice, "rounded to the sum of two bfloat16 numbers",
     "a split of float32 in two terms, where three are needed", true},
    {Treatment::e4m3, "rounded to float8 e4m3", "8-bit training", true, 4, -6, Ties::even, 448},
    {Treatment::e5m2, "rounded to float8 e5m2", "8-bit training", true, 3, -14, Ties::even, 57344},
    {Treatment::e3m2, "rounded to float6 e3m2", "6-bit training", true, 3, -2, Ties::even, 28},
    {Treatment::e2m3, "rounded to float6 e2m3", "6-bit training", true, 4, 0, Ties::even, 7.5},
    {Treatment::e2m1, "rounded to float4 e2m1", "4-bit training", true, 2, 0, Ties::even, 6},
    {Treatment::whole, "rounded to int8", "quantization", true, 1, 0, Ties::even, 127},
    {Treatment::whole, "rounded to int4", "quantization", true, 1, 0, Ties::even, 7},
    {Treatment::whole, "rounded to int12", "quantization", true, 1, 0, Ties::even, 2047},
    {Treatment::whole, "rounded to int16", "quantization", true, 1, 0, Ties::even, 32767}};

// Returns the nearest number of so many bits that the type has, by its rule for ties.
double narrowed(const TreatmentKind& kind, double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int unit = std::max(std::ilogb(value), kind.exponent) + 1 - kind.bits;
  const double steps = std::ldexp(value, -unit);
  const double kept = kind.ties == Ties::even   ? std::nearbyint(steps)
                      : kind.ties == Ties::away ? std::round(steps)
                                                : std::trunc(steps);
  const double result = std::ldexp(kept, unit);
  // Libraries saturate where they convert to types of 8 bits, and where they cut off.
  return kind.most == 0 ? result : std::clamp(result, -kind.most, kind.most);
}

// Kernels and numpy divide numbers of 16 and 32 bits in float32.
double scaled(DType dtype, double value, double scale) {
  if (dtype == DType::f64) return value / scale;
  return static_cast<double>(static_cast<float>(value) / static_cast<float>(scale));
}

}  // namespace

std::span<const TreatmentKind> treatments() { return kTreatments; }

bool changes(const TreatmentKind& kind, DType dtype) {
  if (kind.treatment == Treatment::bf16_twice) return unit_roundoff(dtype) < 0x1p-17;
  if (kind.bits == 0) return true;
  // A type of as many bits changes numbers beyond its range alone.
  const bool less_range = std::ldexp(1.0, kind.exponent) > smallest_normal(dtype);
  return std::ldexp(1.0, -kind.bits) > unit_roundoff(dtype) || less_range;
}

double treated(Treatment treatment, DType dtype, double value, double parameter) {
  switch (treatment) {
    case Treatment::none:
      return value;
    case Treatment::f32:
      return rounded(DType::f32, value);
    case Treatment::f16:
      return rounded(DType::f16, value);
    case Treatment::bf16:
      return rounded(DType::bf16, value);
    case Treatment::bf16_twice: {
      const double high = rounded(DType::bf16, value);
      return std::isfinite(high) ? high + rounded(DType::bf16, value - high) : high;
    }
    case Treatment::flushed:
      return std::fabs(value) < smallest_normal(dtype) ? 0 : value;
    case Treatment::relu:
      return value < 0 ? 0 : value;
    case Treatment::whole:
      return std::nearbyint(scaled(dtype, value, parameter)) * parameter;
    case Treatment::whole_cut:
      return std::trunc(value / parameter) * parameter;
    default:
      break;
  }
  // Nothing is computed in the other types. Wider numbers reach them as float32.
  const TreatmentKind& kind = *std::ranges::find(kTreatments, treatment, &TreatmentKind::treatment);
  return parameter != 0 ? narrowed(kind, scaled(dtype, value, parameter)) * parameter
                        : narrowed(kind, static_cast<double>(static_cast<float>(value)));
}

}  // namespace convgrad::diagnosis
