// label_places.hpp - where there is room for the labels of a picture.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "report/svg.hpp"

namespace convgrad::cli {

// Squares along a line that together cover it.
std::vector<Box> boxes_along(std::int64_t x1, std::int64_t y1, std::int64_t x2, std::int64_t y2,
                             std::int64_t radius);

enum Taker { kByLine = 1, kByMark = 2, kByLabel = 4, kByAny = 7 };

// What is taken of an area, and by what.
class Places {
 public:
  explicit Places(const Box& area) : area_(area) {}
  void take(const std::vector<Box>& boxes, Taker taker);
  // Whether all of it is inside and not taken by any of these.
  bool free(const std::vector<Box>& boxes, int takers) const;

 private:
  Box area_;
  std::vector<std::pair<Box, Taker>> taken_;
};

// Where a label may be: its left end (side 1), right end (-1) or middle (0), from its mark on.
struct LabelPlace {
  std::int64_t side = 0, right = 0, down = 0;
  double distance = 0;  // from where it would touch the mark
};
inline constexpr std::int64_t kFarthestLabel = 220;

// The nearest first; they touch a mark with `away` pixels between them.
std::vector<LabelPlace> label_places(std::int64_t away);

}  // namespace convgrad::cli
