// float16.hpp - the bits of the two 16-bit types. Sources that are built for one instruction set,
// or for a device, include this and must not see the functions of dtype.hpp.
#pragma once

#include <cstdint>

namespace convgrad {

struct Float16 {  // IEEE 754 binary16
  std::uint16_t bits;
};
struct BFloat16 {  // the upper half of a binary32
  std::uint16_t bits;
};

}  // namespace convgrad
