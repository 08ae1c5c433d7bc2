// generate.hpp - makes x and dy of a problem from a seed, with the same bits on every machine.
//
// Every element is a function of the seed, the tensor, its number in the file's order and the
// problem's sizes. Only additions, multiplications, divisions and square roots of IEEE arithmetic
// are used, each rounded on its own, and nothing of <random> or the mathematical library, whose
// results differ between systems. docs/generate.md describes the distributions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "convgrad/problem.hpp"
#include "engine/run.hpp"

namespace convgrad {

enum class Distribution : std::uint8_t { integers, normal, uniform, adversarial };
std::string_view distribution_name(Distribution distribution);  // int, normal, ...
Distribution parse_distribution(std::string_view name);         // one of these names

struct MadeData {
  Distribution distribution = Distribution::integers;
  std::uint64_t seed = 0;
  bool nonfinite = false;  // a NaN and an infinity in each tensor
};

enum class Operand : std::uint8_t { x, dy };

// Returns the largest integer of Distribution::integers: at most 4, and such that no sum of |x||dy|
// over any pixels exceeds 2^24. So every partial sum is exact in float32, in any order.
std::int64_t largest_integer(const WgradProblem& problem);

// Calls use(position) with the beginning of each run that a box has along its last axis.
template <typename Use>
void for_each_run(std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                  const Use& use) {
  if (!std::ranges::equal(begin, end, std::less())) return;
  std::vector<std::int64_t> at(begin.begin(), begin.end());
  for (std::size_t axis = at.size(); axis > 0;) {
    use(at);
    for (axis = at.size() - 1; axis > 0 && ++at[axis - 1] == end[axis - 1]; --axis) {
      at[axis - 1] = begin[axis - 1];
    }
  }
}

class TensorMaker {
 public:
  TensorMaker(const WgradProblem& problem, Operand operand, const MadeData& data);

  const std::vector<std::int64_t>& shape() const { return shape_; }
  // Makes elements first .. first + count - 1 of the file's order, rounded to the problem's dtype.
  void fill(std::int64_t first, std::int64_t count, void* out) const;
  // Makes the elements of a box, in C order.
  void fill_box(std::span<const std::int64_t> begin, std::span<const std::int64_t> end,
                void* out) const;
  // Returns the element before it is rounded.
  double value(std::int64_t index) const;

 private:
  struct Random;
  Random random(std::int64_t index, std::uint32_t more = 0) const;
  double integer(std::int64_t index) const;
  double adversarial(std::int64_t index) const;
  std::int64_t channel_of(std::int64_t index) const;
  std::int64_t pixel_of(std::int64_t index) const;  // n, z, p, q or n, d, h, w in one

  DType dtype_;
  Operand operand_;
  MadeData data_;
  std::vector<std::int64_t> shape_;
  std::int64_t count_ = 0, channels_ = 1, inner_ = 1;  // inner_: pixels of an image
  bool channels_last_ = true;
  std::int64_t largest_ = 1;  // integers: in [-largest_, largest_]
  std::int64_t every_ = 1;    // integers in dy: only every so many pixels are not 0
  double scale_ = 1;          // adversarial: of dy
  std::int64_t nan_at_ = -1, inf_at_ = -1;
};

// Loads blocks of made tensors, without files.
class MadeSource final : public BoxSource {
 public:
  MadeSource(const TensorMaker& x, const TensorMaker& dy)
      : BoxSource(std::bind_front(&TensorMaker::fill_box, &x),
                  std::bind_front(&TensorMaker::fill_box, &dy)) {}
};

}  // namespace convgrad
