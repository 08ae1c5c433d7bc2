// untested.hpp - finds what tensors cannot show, however wrong a kernel is: x or dy that are
// constant, slices that are the same.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "engine/block_sum.hpp"

namespace convgrad {

// Looks at x and dy in blocks, and no longer than it takes to see that elements differ, which a few
// show in most tensors. Slices along an axis that a block does not hold whole are not compared, but
// for images that are all alike.
class Untested final : public BlockSum {
 public:
  explicit Untested(const WgradProblem& problem) : problem_(problem) {
    x_.images = dy_.images = problem.N;
  }
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t = 0) override { return nullptr; }

  bool x_is_zero() const { return x_.is_zero(); }
  bool dy_is_zero() const { return dy_.is_zero(); }
  // Returns "dy is constant, so no order of its elements", "8 of 9 taps, which see padding alone".
  std::vector<std::string> texts() const;

 private:
  // Views a tensor's elements in memory; axes are n, three of space, c.
  struct Elements {
    const void* data;
    std::array<std::int64_t, 5> strides;
    std::array<Range, 5> box;
  };
  // Knows along an axis the first slice that each is like, and those that are like an earlier one.
  struct Slices {
    template <typename Scalar>
    void split(const Elements& elements, std::size_t axis);
    bool all_alike() const {  // and there are some
      return like.size() > 1 && std::ranges::all_of(like, [](std::int64_t i) { return i == 0; });
    }

    std::optional<Range> range;
    bool known = true;
    std::vector<std::int64_t> like, open;
  };
  struct Pattern {
    bool is_zero() const { return !first || (constant && *first == 0); }
    template <typename Scalar>
    void add(const Elements& elements);
    template <typename Scalar>
    void add_images(const Elements& elements, bool first_box);
    void say(const std::string& name, std::vector<std::string>& texts) const;

    std::int64_t images = 0;
    bool constant = true, in_pieces = false;  // blocks hold parts of images
    std::optional<double> first;
    std::array<Slices, 5> axes;
    std::vector<std::uint64_t> first_image;  // if those of the first block are alike
  };

  const WgradProblem problem_;
  Pattern x_, dy_;
};

}  // namespace convgrad
