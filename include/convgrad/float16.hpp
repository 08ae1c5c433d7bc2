// float16.hpp - the element types, and the bits of the two 16-bit ones. Sources that are built for
// one instruction set, or for a device, include this and must not see the functions of dtype.hpp.
#pragma once

#include <cstdint>

namespace convgrad {

enum class DType : std::uint8_t { f16, bf16, f32, f64, e4m3fn, e5m2, e4m3fnuz, e5m2fnuz };

struct Float16 {  // IEEE 754 binary16
  std::uint16_t bits;
};
struct BFloat16 {  // the upper half of a binary32
  std::uint16_t bits;
};

}  // namespace convgrad
