// structure.hpp - errors of a form which rounding does not give them, however small they are.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "convgrad/compare.hpp"
#include "engine/block_sum.hpp"

namespace convgrad {

// What the reference may be off by, in units of Expected::scales: float64 sums of float32 data have
// 2^-29 of a float32 sum's rounding, compensated ones of float64 data less.
inline constexpr double kReferenceNoise = 0x1p-28;

// Products of errors and a pattern, added up.
struct Products {
  double count = 0, product = 0, errors = 0, pattern = 0;
  void add(double error, double like) {
    ++count;
    product += error * like;
    errors += error * error;
    pattern += like * like;
  }
  double size() const { return product / pattern; }  // errors are so many times the pattern
  double share() const { return product * product / (errors * pattern); }  // of their squares
  // Errors that know nothing of the pattern have at least that share with a probability of about
  // (1 - share)^((n-1)/2) (that of a correlation of normal numbers), n of them being independent.
  double bits(double dependent) const {
    const double left = std::max(1 - share(), 1e-15);  // what float64 can tell
    return -std::log2(left) * (count / dependent - 1) / 2;
  }
};

// An entry's error, got - want to the last bit that is known of want, and what is usual for it: the
// error of a right sum, and that of the last rounding. The unit is 0 or infinite where squares
// leave float64's range, and infinite where the error is no larger than the reference's own: such
// an entry is not looked at.
struct EntryError {
  double error, unit, value;  // value: want
};

// Errors of entries, which are computed when they are asked for: of large gradients a list of them
// would take as long as all that is done with it.
struct EntryErrors {
  std::span<const std::int64_t> indices;  // empty: the whole gradient
  std::size_t count = 0;
  std::function<EntryError(std::size_t)> at;
};
// Refers to what it is given. out: the dtype of got.
EntryErrors errors_of(std::span<const std::int64_t> indices, const Expected& expected,
                      std::span<const double> got, DType out);

// Errors that are looked for, and what they must have at least: their part of the squares of all
// errors, their size in units of the pattern, and independent elements in a group.
struct Sought {
  double share = 0, size = 0, elements = 0;
};

// Whether errors resemble a pattern (what would be the errors of a fault) in the gradient, a tap or
// a channel: they are `size` times it. No model of rounding: how many elements there are tells by
// how much errors that know nothing of the pattern resemble it, and the errors themselves how many
// of them are independent. bias is that of right sums.
std::optional<Structure> resemblance(const WgradProblem& problem, const EntryErrors& entries,
                                     std::span<const double> pattern, const Sought& sought,
                                     Expected::Bias bias);

// Whether errors are the gradient, times a factor, or the steps of out, as digits that are cut off
// are. wide: they are as large as those of the widest order, of which more is asked.
std::optional<Structure> factor_or_digits(const WgradProblem& problem, const EntryErrors& entries,
                                          DType out, Expected::Bias bias, bool wide);

// Whether the errors of an element, a tap or a channel are, in their units, so much larger than the
// others' that no order of summing makes both.
bool is_uneven(const WgradProblem& problem, const EntryErrors& entries);

// Names the pixel whose terms the errors resemble most.
struct PixelError {
  std::int64_t pixel = -1;  // counted over n, z, p, q
  double times = 0;         // the errors are so many times its terms: -1 if it is left out
  double spreads = 0;       // of that number in right sums
};

// Projects e = got - want on the terms of each pixel, both in units: the forward convolution of x
// with e, times dy, summed over k, divided by its spread if errors are independent.
class PixelSum final : public BlockSum {
 public:
  // The errors are the whole gradient's; what is not finite counts as 0.
  PixelSum(const WgradProblem& problem, TaskPool& pool, const EntryErrors& entries);
  void add(const Block& block, std::int64_t index = 0, const Progress& progress = {}) override;
  double* finish(std::size_t) override { return nullptr; }

  // Returns, after the last block, the pixel with the most spreads among those that would be left
  // out, or there twice, within what rounding makes of their number.
  const PixelError& worst() const { return worst_; }

 private:
  template <typename Scalar>
  PixelError line(const Block& block, std::int64_t n, std::int64_t z, std::int64_t p) const;

  const WgradProblem problem_;
  TaskPool& pool_;
  double unit_ = 0, rms_ = 0;            // the least unit; of errors in units
  std::vector<float> errors_, weights_;  // by it: of e/u^2, 1/u^2
  PixelError worst_;
};

}  // namespace convgrad
