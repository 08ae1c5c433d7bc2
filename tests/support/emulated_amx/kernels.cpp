// kernels.cpp - makes the kernels of emulated_amx.hpp from tiles and vectors.
#include "cpu/amx/amx_kernel.hpp"
#include "cpu/isa/isa_set.hpp"
#include "support/emulated_amx/emulated_amx.hpp"

namespace convgrad::testing {
namespace {

std::string why_not_f64(const WgradProblem& problem, const Machine&) {
  return problem.dtype == DType::f64 ? "it does not multiply float64" : "";
}

}  // namespace

constinit const Kernel kEmulatedAmxKernel =
    AmxKernel<kEmulatedAmxTiles, kAvx512AmxVectors, kOuterProductAvx512Kernel>::kernel(
        "outer_product_amx_emulated", "outer_product_amx without AMX",
        [](const WgradProblem& problem, const Machine& machine) {
          return first_of(why_not_f64(problem, machine), lacks_avx512(machine));
        });

constinit const Kernel kPortableEmulatedAmxKernel =
    AmxKernel<kEmulatedAmxTiles, kPortableAmxVectors, kOuterProductKernel>::kernel(
        "outer_product_amx_emulated_portable", "outer_product_amx without AMX and AVX-512",
        why_not_f64);

constinit const Kernel kEmulatedAmxFp16Kernel =
    AmxKernel<kEmulatedAmxFp16Tiles, kPortableAmxVectors, kOuterProductKernel>::kernel(
        "outer_product_amx_fp16_emulated", "outer_product_amx_fp16 without AMX and AVX-512",
        [](const WgradProblem& problem, const Machine&) {
          return problem.dtype == DType::f16 ? "" : cat("it multiplies float16 alone");
        });

std::span<const Kernel* const> emulated_amx_kernels() {
  static constexpr const Kernel* kAll[] = {&kEmulatedAmxKernel, &kPortableEmulatedAmxKernel,
                                           &kEmulatedAmxFp16Kernel};
  return kAll;
}

}  // namespace convgrad::testing
