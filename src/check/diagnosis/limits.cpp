// limits.cpp - finds the limit at which x or dy is cut off, or below which it is dropped. An
// entry's error tells it: as the limit moves, the error is linear between two of the entry's
// numbers where they are cut off, else it has a step at each.
#include <algorithm>
#include <cmath>
#include <limits>

#include "check/diagnosis/search.hpp"

namespace convgrad::diagnosis {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
// So many entries are looked at, at least two, with so many terms in all; a limit may lie in so
// many intervals between values. These bound the time alone: what passes is confirmed.
constexpr std::size_t kEntries = 128, kMostTerms = std::size_t{1} << 20;
constexpr std::size_t kMostIntervals = 1000;
constexpr double kLimitBits = 24;  // of the value that is read off: those of a float32
constexpr int kRounds = 4;         // of least squares: the limit moves over some numbers

// A curve says how the error of an entry depends on the limit: it has the numbers by size, and sums
// of those that are cut off or dropped.
struct Curve {
  std::vector<double> sizes;   // ascending
  std::vector<double> slopes;  // of the terms from the i-th on: what a unit of the limit adds
  std::vector<double> sums;    // of the terms from the i-th on, or before it
  double error = 0, tolerance = 0;

  std::size_t place(double limit) const {
    return static_cast<std::size_t>(std::lower_bound(sizes.begin(), sizes.end(), limit) -
                                    sizes.begin());
  }
  double cut(double limit) const {
    const std::size_t i = place(limit);
    return limit * slopes[i] - sums[i];
  }
  double misfit(double value) const { return std::fabs(value - error) / tolerance; }
};

using Limit = std::pair<double, std::string>;

struct Form {
  Treatment treatment;
  bool of_x;
  const char* name;
  const char* text;
  const char* cause;
};

class Limits {
 public:
  Limits(const Evidence& evidence, const Sample& sample, const Form& form)
      : pb_(evidence.problem()), form_(form) {
    const std::size_t pixels = sample.terms[0].x.size();
    const std::size_t most = std::clamp<std::size_t>(kMostTerms / pixels, 2, kEntries);
    for (const Clue& clue : clues(evidence, sample, most)) {
      Curve curve = made(sample.terms[clue.entry]);
      curve.error = clue.error;
      curve.tolerance = clue.tolerance;
      curves_.push_back(std::move(curve));
    }
  }

  std::vector<Fault> take() const {
    std::vector<Fault> found;
    if (curves_.size() < 2) return found;
    if (form_.treatment == Treatment::small_dropped) {
      if (const auto limit = dropped()) found.push_back(fault(*limit));
      return found;
    }
    for (const double limit : crossings()) {
      if (const auto value = refined(limit)) found.push_back(fault(*value));
      if (found.size() > 1) break;
    }
    return found;
  }

 private:
  Curve made(const Terms& terms) const {
    struct Number {
      double size, sign, other;
    };
    std::vector<Number> numbers;
    for (std::size_t i = 0; i < terms.x.size(); ++i) {
      const double value = form_.of_x ? terms.x[i] : terms.dy[i];
      const double other = form_.of_x ? terms.dy[i] : terms.x[i];
      if (value == 0 || other == 0 || !std::isfinite(value * other)) continue;
      const bool signs = form_.treatment == Treatment::clamped_above;
      numbers.push_back(
          {signs ? value : std::fabs(value), !signs && value < 0 ? -1.0 : 1.0, other});
    }
    std::sort(numbers.begin(), numbers.end(),
              [](const Number& a, const Number& b) { return a.size < b.size; });
    Curve curve;
    const std::size_t count = numbers.size();
    curve.slopes.assign(count + 1, 0);
    curve.sums.assign(count + 1, 0);
    for (const Number& n : numbers) curve.sizes.push_back(n.size);
    if (form_.treatment == Treatment::small_dropped) {
      for (std::size_t i = 0; i < count; ++i) {
        const Number& n = numbers[i];
        curve.sums[i + 1] = curve.sums[i] - n.size * n.sign * n.other;
      }
    } else {
      for (std::size_t i = count; i-- > 0;) {
        const Number& n = numbers[i];
        curve.slopes[i] = curve.slopes[i + 1] + n.sign * n.other;
        curve.sums[i] = curve.sums[i + 1] + n.size * n.sign * n.other;
      }
    }
    return curve;
  }

  // Returns the limits at which the first entry has its error.
  std::vector<double> crossings() const {
    const Curve& c = curves_[0];
    std::vector<double> result;
    for (std::size_t i = c.sizes.size(); i-- > 0;) {
      if (c.slopes[i] == 0) continue;
      const double limit = (c.error + c.sums[i]) / c.slopes[i];
      const double least = i > 0 ? c.sizes[i - 1] : -kInfinite;
      const double slack = c.tolerance / std::fabs(c.slopes[i]);
      if (limit < least - slack || limit > c.sizes[i] + slack) continue;
      result.push_back(std::clamp(limit, least, c.sizes[i]));
    }
    return result;
  }

  // Returns the limit that all entries agree on, near one of the first's, in the fewest digits.
  std::optional<Limit> refined(double limit) const {
    double low = -kInfinite, high = kInfinite;
    for (int round = 0; round < kRounds; ++round) {
      double products = 0, squares = 0;
      low = -kInfinite;
      high = kInfinite;
      for (const Curve& c : curves_) {
        const std::size_t i = c.place(limit);
        const double off = std::fabs(c.cut(limit) - c.error);
        // Rounds only refine a limit: one that is far off for another entry is wrong.
        if (off > 0.1 * std::fabs(c.error) + 30 * c.tolerance) return {};
        if (c.slopes[i] == 0) continue;
        const double value = (c.error + c.sums[i]) / c.slopes[i];
        const double slack = std::fabs(c.tolerance / c.slopes[i]);
        low = std::max(low, value - slack);
        high = std::min(high, value + slack);
        products += value / (slack * slack);
        squares += 1 / (slack * slack);
      }
      if (!(squares > 0)) return {};
      limit = products / squares;
    }
    return roundest(low, high, limit, [&](double value) {
      return std::all_of(curves_.begin(), curves_.end(),
                         [&](const Curve& c) { return c.misfit(c.cut(value)) <= 1; });
    });
  }

  // Numbers below the limit are dropped. Each entry leaves some of the intervals of the others.
  std::optional<Limit> dropped() const {
    std::vector<std::pair<double, double>> intervals = {{0, kInfinite}};  // (first, second]
    for (const Curve& c : curves_) {
      std::vector<std::pair<double, double>> left;
      for (const auto& [low, high] : intervals) {
        for (std::size_t i = c.place(std::nextafter(low, kInfinite));
             i <= c.sizes.size() && (i == 0 || c.sizes[i - 1] < high); ++i) {
          if (c.misfit(c.sums[i]) > 1 || left.size() >= kMostIntervals) continue;
          const double from = std::max(low, i > 0 ? c.sizes[i - 1] : 0);
          const double to = std::min(high, i < c.sizes.size() ? c.sizes[i] : kInfinite);
          if (from < to) left.emplace_back(from, to);
        }
      }
      intervals = std::move(left);
    }
    for (const auto& [low, high] : intervals) {
      if (low <= 0 || high == kInfinite) continue;
      return roundest(std::nextafter(low, high), high, (low + high) / 2,
                      [](double) { return true; });
    }
    return std::nullopt;
  }

  Fault fault(const Limit& limit) const {
    Reading reading = plain_reading(pb_);
    TensorReading& tensor = reading.tensor(form_.of_x);
    tensor.treatment = form_.treatment;
    tensor.parameter = limit.first;
    Fault fault = {form_.name, cat(form_.of_x ? "x is " : "dy is ", form_.text, limit.second),
                   form_.cause, reading};
    fault.bits = kLimitBits;
    return fault;
  }

  const WgradProblem& pb_;
  const Form& form_;
  std::vector<Curve> curves_;
};

}  // namespace

std::vector<Fault> find_limits(const Evidence& evidence, const Sample& sample) {
  std::vector<Fault> result;
  for (const bool of_x : {true, false}) {
    for (const Form& form :
         {Form{Treatment::clamped, of_x, "clipped", "clipped to sizes of at most ",
               "a clamp, or a type that saturates"},
          Form{Treatment::clamped_above, of_x, "clipped", "cut off above ", "a clamp, as ReLU6's"},
          Form{Treatment::small_dropped, of_x, "small_dropped", "0 where its size is below ",
               "a threshold, or a type without small numbers"}}) {
      const std::vector<Fault> found = Limits(evidence, sample, form).take();
      result.insert(result.end(), found.begin(), found.end());
    }
  }
  return result;
}

}  // namespace convgrad::diagnosis
