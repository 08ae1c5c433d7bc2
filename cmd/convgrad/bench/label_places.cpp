// label_places.cpp - see label_places.hpp.
#include "bench/label_places.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace convgrad::cli {

std::vector<Box> boxes_along(std::int64_t x1, std::int64_t y1, std::int64_t x2, std::int64_t y2,
                             std::int64_t radius) {
  const std::int64_t steps = std::max(std::abs(x2 - x1), std::abs(y2 - y1)) / (2 * radius) + 1;
  std::vector<Box> boxes;
  for (std::int64_t i = 0; i <= steps; ++i) {
    const Box point = {x1 + (x2 - x1) * i / steps, y1 + (y2 - y1) * i / steps, 0, 0};
    boxes.push_back(point.grown(radius));
  }
  return boxes;
}

void Places::take(const std::vector<Box>& boxes, Taker taker) {
  for (const Box& box : boxes) taken_.emplace_back(box, taker);
}

bool Places::free(const std::vector<Box>& boxes, int takers) const {
  return std::ranges::all_of(boxes, [&](const Box& box) {
    const std::int64_t right = box.x + box.width, bottom = box.y + box.height;
    return box.x >= area_.x && box.y >= area_.y && right <= area_.x + area_.width &&
           bottom <= area_.y + area_.height && std::ranges::none_of(taken_, [&](const auto& taken) {
             const auto& [other, taker] = taken;
             return (taker & takers) != 0 && box.x < other.x + other.width && other.x < right &&
                    box.y < other.y + other.height && other.y < bottom;
           });
  });
}

std::vector<LabelPlace> label_places(std::int64_t away) {
  constexpr std::int64_t kStep = 6, kSteps = kFarthestLabel / kStep;
  std::vector<LabelPlace> places;
  for (std::int64_t down = -kSteps * kStep; down <= kSteps * kStep; down += kStep) {
    for (std::int64_t right = 0; right <= kFarthestLabel; right += kStep) {
      const double distance = std::hypot(right, down);
      places.push_back({1, away + right, down, distance});
      places.push_back({-1, -away - right, down, distance + 1});
    }
    const std::int64_t apart = std::abs(down) - away - kLabelHeight / 2;
    if (apart >= 0) places.push_back({0, 0, down, static_cast<double>(apart)});
  }
  std::ranges::stable_sort(places, {}, &LabelPlace::distance);
  return places;
}

}  // namespace convgrad::cli
