// peaks_test.cpp - figures that can be figures: there, finite, and in the order that hardware has.
#include "cpu/peaks.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "convgrad/machine.hpp"

using namespace convgrad;

namespace {

bool sensible(const std::optional<double>& value) {
  return value && std::isfinite(*value) && *value > 0.01 && *value < 1e7;
}

bool has(std::initializer_list<const char*> sets) { return lacks(this_machine(), sets).empty(); }

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
  // GEMM is made of multiply-adds; loose, because another process may have had the core.
  CHECK(*peaks.gemm_f32 < 4 * *peaks.fma_f32);
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
