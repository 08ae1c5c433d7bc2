// ways.hpp - the orders and precisions in which programs sum a gradient: right and faulty ones.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convgrad/dtype.hpp"
#include "convgrad/problem.hpp"

namespace convgrad::simulated {

using Count = std::int64_t;

enum class Mode { rounded, fma, cut, compensated, flushed };
using Narrow = std::optional<DType>;  // what is rounded to

struct Pixel {
  Count n, z, p, q;
  Count number, row;  // in the order n, z, p, q, among all
  Count inside;       // its number in its image
  Count position;     // in the way's walk
};

// How one gradient is summed: pixels fall into parts, and each part is summed in the order of the
// walk, whose last letter is innermost. `tile` parts are added pairwise (0: all), and tiles one
// after the other.
struct Way {
  std::string name;
  std::string walk = "nzpq";
  std::function<Count(const Pixel&)> part = {};  // empty: one part
  Mode mode = Mode::rounded;
  Count tile = 1;
  Narrow step = {};     // each product and each sum
  Narrow partial = {};  // a part's sum

  bool right() const { return !step && !partial && mode != Mode::flushed; }
};

// Returns the ways that the problem's shape and dtype allow; each has a name of its own.
std::vector<Way> ways_of(const WgradProblem& problem);

// Numbers of pixels, part by part, and where each part ends.
struct Order {
  std::vector<Count> pixels, ends;
};
Order order_of(const WgradProblem& problem, const Way& way);

}  // namespace convgrad::simulated
