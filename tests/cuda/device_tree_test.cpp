// device_tree_test.cpp - a device's last step, run by the processor (emulated_device.hpp): slices
// are added in the processor's tree, and rounded as it rounds.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "cuda/emulated_runtime.hpp"
#include "support/cases.hpp"

using namespace convgrad;
using namespace convgrad::testing;

namespace {

// Floats in another order than dw's, padded to whole vectors.
struct Padded {
  using Value = float;
  struct Params {
    std::int64_t dw_count;
  };
  static constexpr bool kWholeVectors = true;
  static Value nothing() { return -0.0f; }
  static double value(Value value) { return value; }
  static std::int64_t elements(const Params& p) { return (p.dw_count + 3) / 4 * 4; }
  struct Places {
    const Params& p;
    std::int64_t first;
    Places(const Params& params, std::int64_t element) : p(params), first(element) {}
    std::int64_t at(int i) const { return p.dw_count - 1 - (first + i); }
  };
};

void set(cuda::Sum<float>& sum, double value) {
  sum.high = static_cast<float>(value);
  sum.low = static_cast<float>(value - sum.high);
}
void set(cuda::Sum<double>& sum, double value) { sum.total = value; }
void set(float& sum, double value) { sum = static_cast<float>(value); }

template <class Form>
void check_tree(std::int64_t count, std::int64_t slots, DType dtype) {
  const typename Form::Params form = {count};
  const std::int64_t elements = Form::elements(form), item = dtype_bytes(dtype);
  const Buffer memory(slots * elements * std::int64_t{sizeof(typename Form::Value)});
  auto* const sums = memory.as<typename Form::Value>();
  std::vector<double> tree(static_cast<std::size_t>(slots * elements));
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const auto n = static_cast<double>(i);
    set(sums[i], std::sin(n) * std::exp(static_cast<double>(i * 7 % 40)));
    tree[i] = Form::value(sums[i]);
  }
  for (std::int64_t step = 1; step < slots; step *= 2) {
    for (std::int64_t slot = 0; slot + step < slots; slot += 2 * step) {
      for (std::int64_t i = 0; i < elements; ++i) {
        tree[static_cast<std::size_t>(slot * elements + i)] +=
            tree[static_cast<std::size_t>((slot + step) * elements + i)];
      }
    }
  }
  std::vector<double> placed(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < elements; ++i) {
    const std::int64_t at = typename Form::Places(form, i).at(0);
    if (at >= 0) placed[static_cast<std::size_t>(at)] = tree[static_cast<std::size_t>(i)];
  }
  std::vector<std::byte> want(static_cast<std::size_t>(count * item)), got = want;
  round_to(dtype, placed.data(), count, want.data());
  EmulatedDevice device;
  cuda::launch_tree<Form>(device, form, sums, slots, got.data(), dtype);
  CAPTURE(slots);
  CAPTURE(count);
  CHECK(got == want);
}

// Numbers at which rounding to some dtype decides, those of all exponents and kinds of NaN.
std::vector<double> special_values() {
  std::vector<double> values = {0.0, kInf, kNan, 1e300, 5e-324, 0x1p-1022, 0x1p1023};
  for (const DTypeLimits& of : kDTypeLimits) {
    const double u = of.unit_roundoff, s = of.smallest_subnormal, large = of.largest_finite;
    for (const double value :
         {large, large * (1 + u / 2), large * (1 + u), s, s / 4, s / 2, 1.25 * s, 1.5 * s, 2.5 * s,
          of.smallest_normal, of.smallest_normal - s / 2, 1 + u, 1 + 3 * u, 1 + 1.25 * u, 2 - u}) {
      for (const double next : {0.0, value, kInf}) values.push_back(std::nextafter(value, next));
    }
  }
  std::uint64_t bits = 1;
  for (int i = 0; i < 20000; ++i) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    const auto exponent = static_cast<int>(bits >> 20 & 511) - 256;
    values.push_back(std::bit_cast<double>(bits));
    values.push_back(std::bit_cast<double>(bits | 0x7ff0000000000000u));
    values.push_back(
        std::ldexp(std::bit_cast<double>((bits >> 12) | 0x3ff0000000000000u), exponent));
  }
  values.push_back(std::bit_cast<double>(0x7ff0000000000001u));
  for (std::size_t i = values.size(); i > 0; --i) values.push_back(-values[i - 1]);
  return values;
}

}  // namespace

TEST_CASE("the tree on a device is the processor's") {
  for (const std::int64_t count : {90, 5}) {  // whole vectors, of several blocks, and not
    for (std::int64_t slots = 1; slots < 300; slots += slots < 70 ? 1 : 7) {
      check_tree<cuda::DenseSums<float>>(count, slots, DType::f64);
      check_tree<cuda::DenseSums<double>>(count, slots, DType::f64);
      check_tree<Padded>(count + 50, slots, DType::bf16);
    }
  }
  for (const std::int64_t slots : {1024, 2049, 4097, 8192}) {
    check_tree<cuda::DenseSums<float>>(4, slots, DType::f64);
    check_tree<Padded>(4, slots, DType::f32);
  }
  for (const std::int64_t slots : {5, 31, 32}) {  // so many vectors that threads have their own
    check_tree<cuda::DenseSums<double>>(1 << 18, slots, DType::f16);
  }
  for (std::int64_t slots = 1; slots < 12; ++slots) {  // what is not there does not make it +0
    const std::vector<cuda::Sum<float>> sums(static_cast<std::size_t>(slots), {-0.0f, -0.0f});
    double got = 1;
    EmulatedDevice device;
    cuda::launch_tree<cuda::DenseSums<float>>(device, {1}, sums.data(), slots, &got, DType::f64);
    CHECK((got == 0 && std::signbit(got)));
  }
  EmulatedDevice device;
  CHECK_THROWS_AS(cuda::launch_tree<Padded>(device, {4}, nullptr, 8193, nullptr, DType::f64),
                  Error);
}

TEST_CASE("sums are rounded on a device as on the processor") {
  const std::vector<double> values = special_values();
  for (const DType dtype : kDTypes) {
    std::vector<std::byte> want(values.size() * static_cast<std::size_t>(dtype_bytes(dtype)));
    std::vector<std::byte> got = want;
    round_to(dtype, values.data(), std::ssize(values), want.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      cuda::write_as(dtype, values[i], got.data(), static_cast<std::int64_t>(i));
    }
    CAPTURE(dtype_name(dtype));
    CHECK(got == want);
  }
}

TEST_CASE("a device rounds the whole gradient, and gives float64 of parts") {
  for (std::size_t n = 0; n < 2 * std::size(kDTypes); ++n) {
    const DType out = kDTypes[n / 2];
    WgradProblem problem =
        make({"rounded", "conv2d", 9, 6, 10, 1, {{16, 3}, {17, 2}}}, DType::f32, true);
    problem.out_dtype = out;
    const Tensors tensors(problem, Fill::normal, 1);
    Plan plan = plan_with(problem, n % 2 == 0 ? "cuda_simt_gemm" : "cuda_wgmma_bf16x3");
    const std::vector<double> sums = emulated_sums(plan, tensors);
    std::vector<std::byte> want(sums.size() * static_cast<std::size_t>(dtype_bytes(out)));
    std::vector<std::byte> got = want;
    round_to(out, sums.data(), std::ssize(sums), want.data());
    MemorySource source(tensors.x.data(), tensors.dy.data());
    const auto adder = emulated_adder(plan);
    CHECK(adder->round_to_result(got.data()));
    sum_blocks(plan, source, *adder);
    adder->finish();
    CHECK(got == want);
    const auto slices = static_cast<std::uint64_t>(plan.schedule.slices.count());
    CHECK(slices > 2);
    const auto half = static_cast<std::int64_t>(std::bit_floor(slices - 1));
    plan.schedule.nodes = {{0, half}, {half, plan.schedule.slices.count()}};
    std::get<CudaPlan>(plan.backend).memory.result *= 2;
    const auto parts = emulated_adder(plan);
    CHECK_FALSE(parts->round_to_result(got.data()));
    sum_blocks(plan, source, *parts);
    const double *const left = parts->finish(0), *const right = parts->finish(1);
    bool same = true;
    for (std::size_t i = 0; i < sums.size(); ++i) same = same && left[i] + right[i] == sums[i];
    CHECK(same);
  }
}
