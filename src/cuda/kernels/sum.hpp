// sum.hpp - the running sum of one element of a partial gradient.
//
// float32 sums end after a chunk (at most 512 pixels). They are added to a pair of floats without
// error: TwoSum (Knuth 1969) gives the rounding error of each addition, and `low` collects them
// (Ogita, Rump, Oishi: Accurate sum and dot product, 2005, Sum2). A pair has 48 bits where a
// float64 has 53, at 1/10 of the time on devices with few float64 units. float64 is summed as it
// is.
#pragma once

#include "cuda/kernels/host_device.hpp"

namespace convgrad::cuda {

template <typename Acc>
struct Sum;

template <>
struct alignas(8) Sum<float> {
  float high, low;

  CONVGRAD_HD void add(float value) {
    const float sum = high + value;
    const float part = sum - high;
    low += (high - (sum - part)) + (value - part);
    high = sum;
  }
  // An infinity or NaN in high leaves NaN in low.
  CONVGRAD_HD double value() const {
    return is_finite(high) ? static_cast<double>(high) + static_cast<double>(low)
                           : static_cast<double>(high);
  }
};

template <>
struct Sum<double> {
  double total;

  CONVGRAD_HD void add(double value) { total += value; }
  CONVGRAD_HD double value() const { return total; }
};
static_assert(sizeof(Sum<float>) == 8 && sizeof(Sum<double>) == 8);

}  // namespace convgrad::cuda
