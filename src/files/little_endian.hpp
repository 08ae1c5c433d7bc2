// little_endian.hpp - numbers in the headers of files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace convgrad {

// Of at most 8 bytes.
inline std::uint64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return value;
}

}  // namespace convgrad
