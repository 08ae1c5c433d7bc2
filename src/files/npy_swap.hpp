// npy_swap.hpp - elements in the other byte order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "convgrad/npy.hpp"

namespace convgrad::npy {

// The unit in which the bytes of an element are swapped, 1 where there is nothing to swap.
inline std::size_t swap_unit(const NpyHeader& header) {
  if (header.big_endian == (std::endian::native == std::endian::big)) return 1;
  const auto item = static_cast<std::size_t>(header.item_bytes);
  const char kind = header.kind;
  if (kind == 'c') return item / 2;
  if (kind == 'U') return 4;
  if (kind == 'V') return item == 2 ? 2 : 1;  // bfloat16; other raw bytes have no order
  return kind == 'S' ? 1 : item;  // structured types are native, Python objects are refused
}

template <typename Unsigned, typename Swap>
void swap_each(std::byte* bytes, std::size_t count, Swap swap) {
  for (std::size_t i = 0; i < count; i += sizeof(Unsigned)) {
    Unsigned value;
    std::memcpy(&value, bytes + i, sizeof value);
    value = swap(value);
    std::memcpy(bytes + i, &value, sizeof value);
  }
}

// unit is more than 1.
inline void swap_bytes(std::byte* bytes, std::size_t count, std::size_t unit) {
  switch (unit) {
    case 2:
      return swap_each<std::uint16_t>(bytes, count, [](auto v) { return __builtin_bswap16(v); });
    case 4:
      return swap_each<std::uint32_t>(bytes, count, [](auto v) { return __builtin_bswap32(v); });
    case 8:
      return swap_each<std::uint64_t>(bytes, count, [](auto v) { return __builtin_bswap64(v); });
    default:
      for (std::size_t i = 0; i < count; i += unit) std::reverse(bytes + i, bytes + i + unit);
  }
}

}  // namespace convgrad::npy
