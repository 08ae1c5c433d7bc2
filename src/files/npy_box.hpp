// npy_box.hpp - the elements of a file that make up a box of an array, as nested strides, and their
// bytes in the other order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "convgrad/npy.hpp"

namespace convgrad::npy {

struct BoxAxis {
  std::int64_t count;
  std::int64_t file_stride;  // in elements
  std::int64_t out_stride;
};

// Element sum(i[a] * file_stride[a]) + first of the payload goes to sum(i[a] * out_stride[a]).
struct Box {
  std::vector<BoxAxis> axes;  // in the file's order, outermost first; counts > 1; folded
  std::int64_t first = 0;
  std::int64_t count = 1;
};

// Tells whether this is one run of elements, in the same order in the file and in the box.
inline bool is_run(std::span<const BoxAxis> axes) {
  return axes.empty() || (axes.size() == 1 && axes[0].file_stride == 1 && axes[0].out_stride == 1);
}

// The box has begin <= index < end on the logical axes, which must lie within the shape.
inline Box make_box(const NpyHeader& header, std::span<const std::int64_t> begin,
                    std::span<const std::int64_t> end) {
  const std::size_t rank = header.shape.size();
  Box box;
  for (std::size_t axis = 0; axis < rank; ++axis) box.count *= end[axis] - begin[axis];
  if (box.count == 0) return box;  // other extents may be huge
  std::vector<BoxAxis> logical(rank);
  std::int64_t out_stride = 1;
  for (std::size_t axis = rank; axis-- > 0;) {
    logical[axis] = {end[axis] - begin[axis], 0, out_stride};
    out_stride *= logical[axis].count;
  }
  std::int64_t file_stride = 1;
  for (std::size_t i = 0; i < rank; ++i) {  // from the axis that is innermost in the file
    const std::size_t axis = header.fortran_order ? i : rank - 1 - i;
    logical[axis].file_stride = file_stride;
    box.first += begin[axis] * file_stride;
    file_stride *= header.shape[axis];
  }
  if (header.fortran_order) std::ranges::reverse(logical);
  for (const BoxAxis& axis : logical) {
    if (axis.count == 1) continue;
    BoxAxis* outer = box.axes.empty() ? nullptr : &box.axes.back();
    if (outer != nullptr && outer->file_stride == axis.count * axis.file_stride &&
        outer->out_stride == axis.count * axis.out_stride) {
      *outer = {outer->count * axis.count, axis.file_stride, axis.out_stride};
    } else {
      box.axes.push_back(axis);
    }
  }
  return box;
}

// Copies elements of kItem bytes (0: of item bytes) from a copy of the file's part to the box.
template <std::size_t kItem>
void scatter(const std::byte* source, std::byte* out, std::span<const BoxAxis> axes,
             std::size_t item) {
  const auto bytes = static_cast<std::int64_t>(kItem == 0 ? item : kItem);
  if (axes.size() > 2) {
    const BoxAxis& outer = axes[0];
    for (std::int64_t i = 0; i < outer.count; ++i) {
      scatter<kItem>(source + i * outer.file_stride * bytes, out + i * outer.out_stride * bytes,
                     axes.subspan(1), item);
    }
    return;
  }
  const BoxAxis outer = axes.size() == 2 ? axes[0] : BoxAxis{1, 0, 0};
  const BoxAxis inner = axes.empty() ? BoxAxis{1, 1, 1} : axes.back();
  const bool run = inner.file_stride == 1 && inner.out_stride == 1;
  for (std::int64_t i = 0; i < outer.count; ++i) {
    const std::byte* const from = source + i * outer.file_stride * bytes;
    std::byte* const to = out + i * outer.out_stride * bytes;
    if (run) {
      std::memcpy(to, from, static_cast<std::size_t>(inner.count * bytes));
      continue;
    }
    for (std::int64_t j = 0; j < inner.count; ++j) {
      std::memcpy(to + j * inner.out_stride * bytes, from + j * inner.file_stride * bytes,
                  static_cast<std::size_t>(bytes));
    }
  }
}

// The axis that is innermost in the box becomes the inner loop: writes then fill whole cache lines,
// and the lines read stay in the cache for the next element.
inline void scatter(const std::byte* source, std::byte* out, std::vector<BoxAxis> axes,
                    std::size_t item) {
  std::erase_if(axes, [](const BoxAxis& axis) { return axis.count == 1; });
  const auto innermost = std::ranges::min_element(axes, {}, &BoxAxis::out_stride);
  if (innermost != axes.end()) std::rotate(innermost, innermost + 1, axes.end());
  switch (item) {
    case 2:
      return scatter<2>(source, out, axes, item);
    case 4:
      return scatter<4>(source, out, axes, item);
    case 8:
      return scatter<8>(source, out, axes, item);
    default:
      return scatter<0>(source, out, axes, item);
  }
}

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
