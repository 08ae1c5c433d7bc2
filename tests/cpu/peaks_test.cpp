// peaks_test.cpp - figures that can be figures: there, finite, and of work that is counted right.
#include "cpu/peaks.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "cpu/peaks/peak_isa.hpp"
#include "engine/machine.hpp"

using namespace convgrad;

namespace {

bool sensible(const std::optional<double>& value) {
  return value && std::isfinite(*value) && *value > 0.01 && *value < 1e7;
}

bool has(std::initializer_list<const char*> sets) { return lacks(this_machine(), sets).empty(); }

// With a factor and a term of 1, each multiply-add of a round raises the sum by 1.
void check_counts(const PeakIsa& isa) {
  CAPTURE(isa.name);
  const auto f32 = [&](long rounds) { return isa.multiply_add_f32(rounds, 1, 1); };
  const auto f64 = [&](long rounds) { return isa.multiply_add_f64(rounds, 1, 1); };
  CHECK(isa.flops_f32 == 2 * (f32(101) - f32(100)));
  CHECK(isa.flops_f64 == 2 * (f64(101) - f64(100)));
}

#ifdef __x86_64__
// The result is one of the `entries` alike sums of products, which are 1, or that in the mean.
void check_counts(const PeakBf16& set, double entries, double mean = 1, double tolerance = 1e-9) {
  const double products = (set.multiply_add(500) - set.multiply_add(100)) / mean / 400;
  CHECK(set.flops == doctest::Approx(2 * entries * products).epsilon(tolerance));
}
#endif

}  // namespace

TEST_CASE("every peak of this machine is measured, and nothing that it lacks") {
  PeakRequest request;
  request.threads = 1;
  const Peaks peaks = measure_peaks(request);
  CHECK(peaks.threads == 1);
  CHECK(sensible(peaks.fma_f32));
  CHECK(sensible(peaks.fma_f64));
  CHECK(sensible(peaks.gemm_f32));
  CHECK(sensible(peaks.gemm_f64));
  CHECK(peaks.avx512_bf16.has_value() == has({"avx512f", "avx512_bf16"}));
  CHECK(peaks.amx_bf16.has_value() == has({"amx_tile", "amx_bf16"}));
  if (peaks.avx512_bf16) CHECK(sensible(peaks.avx512_bf16));
  if (peaks.amx_bf16) CHECK(sensible(peaks.amx_bf16));
  CHECK(peaks.read_gbytes_per_s.has_value() == (peaks.read_bytes > 0));
  if (peaks.read_bytes > 0) CHECK(sensible(peaks.read_gbytes_per_s));
}

TEST_CASE("a round does as many multiply-adds as it is counted for") {
  check_counts(kPeakPortable);
#if defined(__aarch64__)
  check_counts(kPeakNeon);
#elif defined(__x86_64__)
  if (has({"avx2", "fma"})) check_counts(kPeakAvx2);
  if (has({"avx512f"})) check_counts(kPeakAvx512);
  // One of the 16 sums of a vector; one entry of the first of 4 tiles, of factors that are
  // 0.5 to 1 as often as 1 to 2.
  if (has({"avx512f", "avx512_bf16"})) check_counts(kPeakAvx512Bf16, 16);
  if (has({"amx_tile", "amx_bf16"})) check_counts(kPeakAmxBf16, 4 * 16 * 16, 1.125 * 1.125, 0.15);
#endif
}

TEST_CASE("only what is asked for is measured") {
  PeakRequest request;
  request.threads = 2;
  request.f32 = request.bf16 = request.read = false;
  const Peaks peaks = measure_peaks(request);
  CHECK(peaks.threads == 2);
  CHECK(sensible(peaks.fma_f64));
  CHECK_FALSE(peaks.fma_f32);
  CHECK_FALSE(peaks.gemm_f32);
  CHECK_FALSE(peaks.avx512_bf16);
  CHECK_FALSE(peaks.amx_bf16);
  CHECK_FALSE(peaks.read_gbytes_per_s);
}

TEST_CASE("memory that is too small to tell memory from caches is not measured") {
  PeakRequest request;
  request.f32 = request.f64 = request.bf16 = false;
  request.memory_limit_bytes = 64 << 20;
  const Peaks peaks = measure_peaks(request);
  CHECK_FALSE(peaks.read_gbytes_per_s);
  CHECK(peaks.read_bytes == 0);
}
