// random_numbers.hpp - random numbers with the same bits on every machine. Include only where
// nothing is contracted into fused multiply-adds.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace convgrad {

// Philox4x32-10 makes numbers that are a function of a counter, for any number of threads. Salmon,
// Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011); the known answers in
// its distribution are a test here.
using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

inline PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xd2511f53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xcd9e8d57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9e3779b9;
    key[1] += 0xbb67ae85;
  }
  return counter;
}

// Returns the numbers at `index` of a stream: what they are for.
inline PhiloxCounter numbers_at(std::int64_t index, std::uint32_t stream, std::uint64_t seed) {
  const auto low = [](std::uint64_t n) { return static_cast<std::uint32_t>(n); };
  const auto i = static_cast<std::uint64_t>(index);
  return philox4x32({low(i), low(i >> 32), stream, 0}, {low(seed), low(seed >> 32)});
}

// The inverse of the normal distribution function is that of Wichura, The percentage points of the
// normal distribution, Applied Statistics 37 (1988), AS 241, PPND16 (relative error about 1e-16),
// by a logarithm of our own, because those of mathematical libraries differ in the last bit.

// Returns a normal number's logarithm within 2 ULP: atanh's series after ln 2 is taken off.
inline double portable_log(double x) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  auto exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);  // [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1), s2 = s * s;  // |s| <= 0.1716
  double series = 0;
  for (int i = 23; i >= 3; i -= 2) series = (series + 1.0 / i) * s2;
  // ln 2 is in two parts, the first with trailing zeros, so that its product is exact.
  const double e = exponent;
  return e * 0x1.62e42fefa38p-1 + (2 * s + (2 * s * series + e * 0x1.ef35793c7673p-45));
}

inline double horner(const std::array<double, 8>& coefficients, double r) {
  double result = coefficients[0];
  for (std::size_t i = 1; i < coefficients.size(); ++i) result = result * r + coefficients[i];
  return result;
}

// p is strictly between 0 and 1.
inline double normal_quantile(double p) {
  static constexpr std::array<double, 8> kA = {2.5090809287301226727e+3, 3.3430575583588128105e+4,
                                               6.7265770927008700853e+4, 4.5921953931549871457e+4,
                                               1.3731693765509461125e+4, 1.9715909503065514427e+3,
                                               1.3314166789178437745e+2, 3.3871328727963666080e+0};
  static constexpr std::array<double, 8> kB = {5.2264952788528545610e+3, 2.8729085735721942674e+4,
                                               3.9307895800092710610e+4, 2.1213794301586595867e+4,
                                               5.3941960214247511077e+3, 6.8718700749205790830e+2,
                                               4.2313330701600911252e+1, 1.0};
  static constexpr std::array<double, 8> kC = {
      7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
      1.27045825245236838258e+0, 3.64784832476320460504e+0, 5.76949722146069140550e+0,
      4.63033784615654529590e+0, 1.42343711074968357734e+0};
  static constexpr std::array<double, 8> kD = {1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                               1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                               6.89767334985100004550e-1, 1.67638483018380384940e+0,
                                               2.05319162663775882187e+0, 1.0};
  static constexpr std::array<double, 8> kE = {
      2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
      2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e+0,
      5.46378491116411436990e+0, 6.65790464350110377720e+0};
  static constexpr std::array<double, 8> kF = {
      2.04426310338993978564e-15, 1.42151175831644588870e-7,
      1.84631831751005468180e-5,  7.86869131145613259100e-4,
      1.48753612908506148525e-2,  1.36929880922735805310e-1,
      5.99832206555887937690e-1,  1.0};
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * horner(kA, r) / horner(kB, r);
  }
  const double r = std::sqrt(-portable_log(q < 0 ? p : 1 - p));
  const double x =
      r <= 5 ? horner(kC, r - 1.6) / horner(kD, r - 1.6) : horner(kE, r - 5) / horner(kF, r - 5);
  return q < 0 ? -x : x;
}

}  // namespace convgrad
