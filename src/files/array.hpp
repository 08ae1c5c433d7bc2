// array.hpp - arrays of any shape: how a shape is written, and a walk over one in parts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

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

}  // namespace convgrad
