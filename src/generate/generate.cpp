// generate.cpp - see generate.hpp. It is compiled without contraction into fused multiply-adds.
#include "generate/generate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/integers.hpp"
#include "base/messages.hpp"
#include "generate/random_numbers.hpp"

namespace convgrad {
namespace {

constexpr std::string_view kDistributions[] = {"int", "normal", "uniform", "adversarial"};

// The second half of the counter says what the numbers are for: 0 for x, 1 for dy, and this more.
constexpr std::uint32_t kNonfinite = 2;

constexpr std::int64_t kMostExact = std::int64_t{1} << 24;  // float32 counts up to here

// Adversarial data in a dtype has an offset that cancels and mixes these powers of two.
struct Extremes {
  double offset;
  int powers;  // exponents from -powers to powers
  int fraction_bits;
};
constexpr Extremes kExtremes[] = {
    {0x1p2, 2, 10}, {0x1p12, 20, 7}, {0x1p12, 20, 23}, {0x1p24, 60, 52}};

}  // namespace

// Holds 128 random bits as two numbers of 64.
struct TensorMaker::Random {
  std::uint64_t a, b;

  // Returns a multiple of 2^-52 in [-1, 1).
  static double signed_unit(std::uint64_t bits) {
    return static_cast<double>(bits >> 11) * 0x1p-52 - 1;
  }
  // Returns an odd multiple of 2^-53 in (0, 1).
  static double open_unit(std::uint64_t bits) {
    return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  }
  // Returns 0 .. n - 1, n at most 2^32, from the upper half.
  static std::int64_t below(std::uint64_t bits, std::uint64_t n) {
    return static_cast<std::int64_t>((bits >> 32) * n >> 32);
  }
};

std::string_view distribution_name(Distribution distribution) {
  return kDistributions[static_cast<std::size_t>(distribution)];
}

Distribution parse_distribution(std::string_view name) {
  return static_cast<Distribution>(std::ranges::find(kDistributions, name) - kDistributions);
}

std::int64_t largest_integer(const WgradProblem& problem) {
  const std::int64_t terms = std::max<std::int64_t>(term_count(problem), 1);
  std::int64_t largest = 4;
  while (largest > 1 && largest * largest > kMostExact / terms) --largest;
  return largest;
}

TensorMaker::TensorMaker(const WgradProblem& problem, Operand operand, const MadeData& data)
    : dtype_(problem.dtype),
      operand_(operand),
      data_(data),
      shape_(operand == Operand::x ? x_shape(problem) : dy_shape(problem)),
      count_(operand == Operand::x ? problem.x_count() : problem.dy_count()),
      channels_(operand == Operand::x ? problem.C : problem.K),
      channels_last_(problem.channels_last),
      largest_(largest_integer(problem)) {
  for (const SpatialAxis& axis : problem.axis) inner_ *= operand == Operand::x ? axis.in : axis.out;
  const std::int64_t terms = term_count(problem);
  if (operand == Operand::dy) every_ = std::max<std::int64_t>(ceil_div(terms, kMostExact), 1);
  // float16 has little room: sums of so many terms would leave it.
  for (std::int64_t rest = terms >> 19; dtype_ == DType::f16 && rest > 0; rest >>= 2) scale_ /= 2;
  if (data.nonfinite && count_ > 0) {
    const Random r = random(0, kNonfinite);
    nan_at_ = static_cast<std::int64_t>(r.a % static_cast<std::uint64_t>(count_));
    inf_at_ = static_cast<std::int64_t>(r.b % static_cast<std::uint64_t>(count_));
    if (inf_at_ == nan_at_) inf_at_ = (nan_at_ + 1) % count_;
  }
}

TensorMaker::Random TensorMaker::random(std::int64_t index, std::uint32_t more) const {
  const std::uint32_t stream = (operand_ == Operand::x ? 0u : 1u) + more;
  const PhiloxCounter words = numbers_at(index, stream, data_.seed);
  return {words[0] | std::uint64_t{words[1]} << 32, words[2] | std::uint64_t{words[3]} << 32};
}

std::int64_t TensorMaker::channel_of(std::int64_t index) const {
  return channels_last_ ? index % channels_ : index / inner_ % channels_;
}

std::int64_t TensorMaker::pixel_of(std::int64_t index) const {
  if (channels_last_) return index / channels_;
  return index / (inner_ * channels_) * inner_ + index % inner_;
}

double TensorMaker::integer(std::int64_t index) const {
  if (every_ > 1 && pixel_of(index) % every_ != 0) return 0;
  const Random r = random(index);
  const auto choices = static_cast<std::uint64_t>(2 * largest_ + 1);
  return static_cast<double>(Random::below(r.a, choices) - largest_);
}

// x has by channel an offset with a little noise, numbers of very different size, or subnormal
// numbers. dy alternates from pixel to pixel, so that the offset cancels, or has numbers of very
// different size.
double TensorMaker::adversarial(std::int64_t index) const {
  const Random r = random(index);
  const Extremes& e = kExtremes[static_cast<std::size_t>(dtype_)];
  const bool negative = (r.b & 1) != 0;
  const auto mixed = [&] {
    const std::uint64_t choices = 2 * static_cast<std::uint64_t>(e.powers) + 1;
    const int power = static_cast<int>(Random::below(r.b, choices)) - e.powers;
    const double size = std::ldexp(1 + static_cast<double>(r.a >> 12) * 0x1p-52, power);
    return negative ? -size : size;
  };
  const double near_one = 1 + Random::signed_unit(r.a) / 8;
  if (operand_ == Operand::dy) {
    if (channel_of(index) % 2 == 1) return scale_ * mixed();
    return scale_ * (pixel_of(index) % 2 == 0 ? near_one : -near_one);
  }
  switch (channel_of(index) % 3) {
    case 0:
      return e.offset * near_one;
    case 1:
      return mixed();
    default: {
      const std::uint64_t steps = r.a >> (64 - e.fraction_bits);
      const double size = static_cast<double>(std::max<std::uint64_t>(steps, 1));
      return (negative ? -size : size) * smallest_subnormal(dtype_);
    }
  }
}

double TensorMaker::value(std::int64_t index) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (index == nan_at_) return std::numeric_limits<double>::quiet_NaN();
  if (index == inf_at_) return operand_ == Operand::x ? -kInfinity : kInfinity;
  switch (data_.distribution) {
    case Distribution::integers:
      return integer(index);
    case Distribution::normal:
      return normal_quantile(Random::open_unit(random(index).a));
    case Distribution::uniform:
      return Random::signed_unit(random(index).a);
    default:
      return adversarial(index);
  }
}

void TensorMaker::fill(std::int64_t first, std::int64_t count, void* out) const {
  with_scalar(dtype_, [&](auto scalar) {
    using Scalar = decltype(scalar);
    auto* values = static_cast<Scalar*>(out);
    for (std::int64_t i = 0; i < count; ++i) values[i] = from_double<Scalar>(value(first + i));
  });
}

void TensorMaker::fill_box(std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                           void* out) const {
  const std::int64_t run = end.back() - begin.back();
  auto* bytes = static_cast<std::byte*>(out);
  for_each_run(begin, end, [&](std::span<const std::int64_t> at) {
    std::int64_t first = 0;
    for (std::size_t axis = 0; axis < at.size(); ++axis) first = first * shape_[axis] + at[axis];
    fill(first, run, bytes);
    bytes += run * dtype_bytes(dtype_);
  });
}

}  // namespace convgrad
