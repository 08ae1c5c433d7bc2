// outer_product_wgrad.hpp - sums of outer products from packed panels, for dense layers and groups.
#pragma once

#include "convgrad/kernel.hpp"

namespace convgrad {

extern const Kernel kOuterProductBf16Kernel;
extern const Kernel kOuterProductAvx512Kernel;
extern const Kernel kOuterProductAvx2Kernel;
extern const Kernel kOuterProductKernel;

}  // namespace convgrad
