// array.hpp - arrays of any shape: how a shape is written, a walk over one in parts, and the types
// of integers.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "convgrad/npy.hpp"

namespace convgrad {

// Writes a shape as numpy does: "(2, 3)", "(5,)", "()".
std::string shape_text(std::span<const std::int64_t> shape);

// Returns the position, such as {1, 0, 2}, of the element that is number `index` in C order.
std::vector<std::int64_t> position_of(std::span<const std::int64_t> shape, std::int64_t index);

// A part is a run of elements in C order that is also a box.
struct ArrayPart {
  std::vector<std::int64_t> begin, end;  // begin[i] <= index[i] < end[i]
  std::int64_t first = 0;                // number of its first element in C order
  std::int64_t count = 0;
};

// Calls use(part) for parts of at most most_elements (at least 1) that follow each other in C order
// and cover the array. An empty array has none, a 0-d array has one. The product of the extents
// must fit in 63 bits.
void for_each_part(std::span<const std::int64_t> shape, std::int64_t most_elements,
                   const std::function<void(const ArrayPart&)>& use);

// Calls f with a value of the C++ type that stores the integers.
template <typename Function>
void with_integer(const NpyHeader& header, const Function& f) {
  const auto call = [&]<typename Signed>(Signed value) {
    if (header.kind == 'i') return f(value);
    f(std::make_unsigned_t<Signed>{});
  };
  switch (header.item_bytes) {
    case 1:
      return call(std::int8_t{});
    case 2:
      return call(std::int16_t{});
    case 4:
      return call(std::int32_t{});
    default:
      return call(std::int64_t{});
  }
}

}  // namespace convgrad
