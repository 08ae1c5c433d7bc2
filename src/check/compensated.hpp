// compensated.hpp - adds in float64 and keeps the rounding errors (Ogita, Rump, Oishi: Accurate sum
// and dot product, 2005, Dot2). Files that include it are compiled with -ffp-contract=off.
#pragma once

#include <cmath>

namespace convgrad {

// Forms sum + compensation += x*y and keeps the rounding errors of the product and of the sum.
inline void add_compensated(double x, double y, double& sum, double& compensation) {
  const double product = x * y;
  const double total = sum + product;
  if (std::isfinite(total)) {
    const double product_error = std::fma(x, y, -product);
    const double part = total - sum;
    const double sum_error = (sum - (total - part)) + (product - part);
    compensation += product_error + sum_error;
  }
  sum = total;
}

// Forms sum + compensation += value in the same way.
inline void add_exactly(double value, double& sum, double& compensation) {
  const double total = sum + value;
  if (std::isfinite(total)) {
    const double part = total - sum;
    compensation += (sum - (total - part)) + (value - part);
  }
  sum = total;
}

// Makes sum the float64 number nearest to sum + compensation, and compensation the rest.
inline void compensate(double& sum, double& compensation) {
  if (!std::isfinite(sum)) compensation = 0;
  const double total = sum + compensation;
  compensation -= total - sum;
  sum = total;
}

}  // namespace convgrad
