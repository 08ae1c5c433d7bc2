// streaming_wgrad.hpp - depthwise and small groups: neighbouring taps and many lanes in registers.
#pragma once

#include "convgrad/kernel.hpp"

namespace convgrad {

extern const Kernel kStreamingAvx512Kernel;
extern const Kernel kStreamingAvx2Kernel;
extern const Kernel kStreamingKernel;

}  // namespace convgrad
