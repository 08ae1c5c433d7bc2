#include "files/array.hpp"

#include <algorithm>

#include "convgrad/error.hpp"

namespace convgrad {

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += cat(i > 0 ? ", " : "", shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::vector<std::int64_t> position_of(std::span<const std::int64_t> shape, std::int64_t index) {
  std::vector<std::int64_t> position(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    position[axis] = index % shape[axis];
    index /= shape[axis];
  }
  return position;
}

void for_each_part(std::span<const std::int64_t> shape, std::int64_t most_elements,
                   const std::function<void(const ArrayPart&)>& use) {
  if (std::ranges::count(shape, 0) > 0) return;
  // Axes from `cut` + 1 on are whole in every part, `cut` is cut, those before have one index each.
  std::size_t cut = shape.size();
  std::int64_t inner = 1;
  while (cut > 0 && inner <= most_elements / shape[cut - 1]) inner *= shape[--cut];
  ArrayPart part{std::vector<std::int64_t>(shape.size()), {shape.begin(), shape.end()}};
  if (cut == 0) {
    part.count = inner;
    return use(part);
  }
  --cut;
  const std::int64_t step = std::max<std::int64_t>(most_elements / inner, 1);
  std::int64_t outer = 1;
  for (std::size_t axis = 0; axis < cut; ++axis) outer *= shape[axis];
  for (std::int64_t o = 0; o < outer; ++o) {
    const std::vector<std::int64_t> position = position_of(shape.first(cut), o);
    for (std::size_t axis = 0; axis < cut; ++axis) {
      part.begin[axis] = position[axis];
      part.end[axis] = position[axis] + 1;
    }
    for (std::int64_t at = 0; at < shape[cut]; at += step) {
      part.begin[cut] = at;
      part.end[cut] = std::min(at + step, shape[cut]);
      part.count = (part.end[cut] - at) * inner;
      use(part);
      part.first += part.count;
    }
  }
}

}  // namespace convgrad
