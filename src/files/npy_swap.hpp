// npy_swap.hpp - elements in the other byte order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "convgrad/npy.hpp"

namespace convgrad::npy {

// Returns the unit in which the bytes of an element are swapped, 1 where there is nothing to swap.
inline std::size_t swap_unit(const NpyHeader& header) {
  if (header.big_endian == (std::endian::native == std::endian::big)) return 1;
  const auto item = static_cast<std::size_t>(header.item_bytes);
  if (header.kind == 'V') return item == 2 ? 2 : 1;  // bfloat16; other raw bytes have no order
  return header.kind == 'S' ? 1 : item;
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

// unit is 2, 4 or 8.
inline void swap_bytes(std::byte* bytes, std::size_t count, std::size_t unit) {
  switch (unit) {
    case 2:
      return swap_each<std::uint16_t>(bytes, count, [](auto v) { return __builtin_bswap16(v); });
    case 4:
      return swap_each<std::uint32_t>(bytes, count, [](auto v) { return __builtin_bswap32(v); });
    default:
      return swap_each<std::uint64_t>(bytes, count, [](auto v) { return __builtin_bswap64(v); });
  }
}

}  // namespace convgrad::npy
