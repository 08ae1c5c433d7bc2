// untested.hpp - finds what tensors cannot show, however wrong a kernel is: x or dy that are
// constant, slices that are the same.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/block_sum.hpp"

namespace convgrad {

// Looks at x and dy in blocks. Slices are told apart by hashes.
class Untested final : public BlockSum {
 public:
  explicit Untested(const WgradProblem& problem);
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t = 0) override { return nullptr; }

  bool x_is_zero() const { return x_.is_zero(); }
  bool dy_is_zero() const { return dy_.is_zero(); }
  // Returns "dy is constant, so no order of its elements", "8 of 9 taps, which see padding alone".
  std::vector<std::string> texts() const;

 private:
  // The key is that of the place; the sum, of elements times their other places' keys.
  struct Slice {
    std::uint64_t key = 0, sum = 0;
  };
  struct Pattern {
    // The axes are n, three of space, c.
    explicit Pattern(const std::array<std::int64_t, 5>& extents);
    bool is_zero() const { return !first || (constant && *first == 0); }
    template <typename Scalar>
    void add(const Scalar* elements, const std::array<std::int64_t, 5>& strides,
             const std::array<Range, 5>& box);
    void say(const std::string& name, std::vector<std::string>& texts) const;

    bool constant = true;
    std::optional<double> first;
    std::array<std::vector<Slice>, 5> axes;
  };

  const WgradProblem problem_;
  Pattern x_, dy_;
};

}  // namespace convgrad
