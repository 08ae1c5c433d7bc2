// im2col_wgrad.hpp - im2col and OpenBLAS.
#pragma once

#include "convgrad/kernel.hpp"

namespace convgrad {

extern const Kernel kIm2colGemmKernel;

}  // namespace convgrad
