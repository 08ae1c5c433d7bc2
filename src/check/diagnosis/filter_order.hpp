// filter_order.hpp - orders of the gradient's axes in memory.
#pragma once

#include <string>
#include <vector>

#include "convgrad/problem.hpp"

namespace convgrad::diagnosis {

// The axes of [t][r][s][c][k], outermost first, by letters: D, H, W, I and O. Depthwise has C
// and M, k = c*M + m, in place of I and O.
struct FilterOrder {
  std::string name;                   // "HWIO"
  std::vector<std::int64_t> extents;  // of the axes as they are named
  std::vector<std::int64_t> steps;    // of the same axes in [t][r][s][c][k] order
  std::string exchanged;              // "C and K" if those two alone change places, else ""

  // From the place in memory to the index in [tap][c][k] order, and back.
  std::int64_t index(std::int64_t position) const;
  std::int64_t position(std::int64_t index) const;
};

// That of a file in the problem's filter format.
FilterOrder own_order(const WgradProblem& problem);
// All others that place an element elsewhere, the usual ones first.
std::vector<FilterOrder> other_orders(const WgradProblem& problem);

}  // namespace convgrad::diagnosis
