// peaks_test.cpp - figures that can be figures: there, finite, and of work that is counted right.
#include "cpu/peaks.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "cpu/isa/isa_set.hpp"
#include "engine/machine.hpp"

using namespace convgrad;

namespace {

bool sensible(const std::optional<double>& value) {
  return value && std::isfinite(*value) && *value > 0.01 && *value < 1e7;
}

bool has(std::initializer_list<const char*> sets) { return lacks(this_machine(), sets).empty(); }

// With a factor and a term of 1, each multiply-add of a round raises the sum by 1.
template <typename Element>
void check_counts(const OuterProductIsa<Element>& isa, int products = 1) {
  const double counted = isa.multiply_chains(101, 1, 1) - isa.multiply_chains(100, 1, 1);
  CHECK(counted == products * isa.max_rows * isa.max_columns);
}

void check_counts(const IsaSet& isa) {
  CAPTURE(isa.name);
  check_counts(isa.f32.outer_product);
  check_counts(isa.f64.outer_product);
}

}  // namespace

TEST_CASE("every peak of this machine is measured, and nothing that it lacks") {
  PeakRequest request;
  request.threads = 1;
  const Peaks peaks = measure_peaks(request);
  CHECK(peaks.threads == 1);
  CHECK(sensible(peaks.fma_f32));
  CHECK(sensible(peaks.fma_f64));
  const bool amx = has({"amx_tile", "amx_bf16"});
  CHECK(peaks.amx_bf16.has_value() == amx);
  CHECK(peaks.avx512_bf16.has_value() == (!amx && has({"avx512f", "avx512_bf16"})));
  for (const auto& bf16 : {peaks.amx_bf16, peaks.avx512_bf16}) {
    if (bf16) CHECK(sensible(bf16));
  }
  CHECK(peaks.read_gbytes_per_s.has_value() == (peaks.read_bytes > 0));
  if (peaks.read_bytes > 0) CHECK(sensible(peaks.read_gbytes_per_s));
}

TEST_CASE("chains do as many multiply-adds in a round as a register tile for a pixel") {
  check_counts(kPortableIsa);
#if defined(__aarch64__)
  check_counts(kNeonIsa);
#elif defined(__x86_64__)
  if (lacks_avx2(this_machine()).empty()) check_counts(kAvx2Isa);
  if (lacks_avx512(this_machine()).empty()) check_counts(kAvx512Isa);
  if (lacks_avx512_bf16(this_machine()).empty()) check_counts(kAvx512Bf16Isa, 2);
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
