// search.hpp - what the parts of the diagnosis share: the suspect's entries, and whether predicted
// values explain them.
#pragma once

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

#include "check/diagnosis.hpp"
#include "check/diagnosis/faults.hpp"
#include "convgrad/compare.hpp"

namespace convgrad::diagnosis {

inline constexpr double kSlack = Tolerance{}.slack;

// These are errors in units of the scale. Beyond kWrong, which is what the criterion allows one
// entry, slack * group_factor(1), an entry is wrong for certain; within kRight it may be right.
// Scales are standard deviations: 8 of them are chance in one of 10^15.
inline constexpr double kWrong = 25.4, kRight = 8;

// One element tells at most the bits of a float32.
inline constexpr double kMostBits = 24;

// Entries of the suspect are named by their positions in its arrays.
using Positions = std::vector<std::size_t>;

// A fault makes these values of some entries, and rounding leaves errors of these scales.
struct Predicted {
  std::vector<double> values, scales;
};

// Predicted values explain the suspect as they are, with another fault on top that is read off the
// gradient (a factor, a narrow type, a part that is 0), or only in one place.
struct Fit {
  struct Part {
    std::string name, text, cause;
  };
  double rms = 0;           // of error/scale
  std::vector<Part> parts;  // besides the fault itself
  std::string only;         // where; empty: everywhere
};

// A grid is a type's numbers, which values become by a rounding.
struct Grid {
  DType like;
  double part = 1;   // of a step of that type
  bool cut = false;  // off, not to the nearest number
  Fit::Part text = {};
  bool own = false;       // of the suspect's dtype itself
  bool in_place = false;  // in where() alone
};

// A filling may stand in the place of what a fault predicts, as it is read off the gradient:
// numbers of a narrow type, a part that is something else, a multiple. What a fault itself changes
// is its reading; where it does is a place.
struct Filling {
  enum class Number : std::uint8_t { none, factor, offset };
  enum class Instead : std::uint8_t { nothing, zero, nan, finite, plain };
  Number number = Number::none;        // is found from what is predicted
  Instead instead = Instead::nothing;  // finite: of NaN and Inf; plain: outside of where()
  const Grid* grid = nullptr;          // all numbers are of it
  double most = HUGE_VAL;              // none is larger in size
  bool known_most = false;             // by the type, or the terms: no number that was read off
  double bits = 0;                     // of what was read off the gradient to name it
  std::vector<Fit::Part> parts = {};   // but for the number
  std::string only = "";               // the place that is changed
  bool alone = false;                  // with no other fault
};

// The search has no time left: ends a finder wherever it is.
struct Late {};

class Evidence {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Evidence(const Suspect& suspect, Clock::time_point end = Clock::time_point::max());

  const Suspect& suspect() const { return suspect_; }
  const WgradProblem& problem() const { return suspect_.problem; }
  bool whole() const { return suspect_.indices.empty(); }
  std::size_t size() const { return suspect_.got.size(); }
  std::int64_t index(std::size_t at) const { return suspect_.index(at); }
  double got(std::size_t at) const { return suspect_.got[at]; }
  double want(std::size_t at) const { return suspect_.expected.values[at]; }
  double scale(std::size_t at) const;
  // Returns |got - want| beyond the last rounding, in units of the scale.
  double error(std::size_t at) const { return errors_[at]; }
  const Positions& all() const { return all_; }
  // These entries are wrong by themselves. where() is their place, or that of groups.
  const Positions& wrong() const { return wrong_; }
  const Place& where() const { return where_; }
  // Tells whether the place has some of the taps alone.
  bool in_some_taps() const;
  // The suspect's values need so many bits of significands.
  int needed_digits() const { return digits_; }

  // Returns up to count entries, the more likely the larger their errors. The seed is fixed.
  Positions choose(std::size_t count) const;
  // Returns count entries, whatever their errors.
  Positions choose_any(std::size_t count) const;

  // Throws Late after the end: before a pass over x and dy, and in loops that are long without one.
  void stop_if_late() const {
    if (Clock::now() > end_) throw Late();
  }
  bool fits(std::size_t at, double value, double scale) const;
  // Returns the first of the fillings with which the predicted values explain these entries. bits
  // is what it cost to find the fault. plain: the values are those that are expected. lenient: this
  // is a first look at a few entries, which may not tell enough.
  std::optional<Fit> judge(const Positions& at, const Predicted& predicted, double bits, bool plain,
                           bool lenient = false) const;

 private:
  // A trial puts a filling with its number on top of what is predicted.
  struct Trial {
    const Positions& at;
    const Predicted& predicted;
    const Filling& filling;
    bool plain, lenient;
    double bits;
    double factor = 1, offset = 0;
    Fit::Part number = {};
    double value(std::size_t i) const {
      return std::clamp(factor * predicted.values[i] + offset, -filling.most, filling.most);
    }
  };
  double unexplained(std::size_t at, double value, const Grid* grid) const;
  bool replaced(const Filling& filling, std::size_t at, double value) const;
  double told(const Trial& trial, std::size_t i, double larger, bool spared) const;
  struct Rest {
    double left = 0, unit = 0;                 // in units; the unit itself
    double larger = 0;                         // of the unit and the entry's scale
    bool is_replaced = false, spared = false;  // by the filling
  };
  Rest rest(const Trial& trial, std::size_t i) const;
  std::optional<double> misfit(const Trial& trial) const;
  double fitted_factor(const Trial& trial) const;
  bool find_factor(Trial& trial) const;
  bool find_offset(Trial& trial) const;
  Place find_where();
  bool mark_planes(std::vector<Marked>& marks) const;
  void find_alike();
  void find_grids(const Positions& at, bool in_place);
  void add_grids(Grid grid, const std::string& name);
  std::vector<Filling> clamped() const;
  void make_fillings();

  const Suspect& suspect_;
  const Clock::time_point end_;
  std::vector<double> errors_;
  Positions all_, wrong_, drawn_;
  // These hold every value of the suspect, or of its place, but not the right ones.
  std::vector<Grid> grids_;
  Place where_, zeros_, nans_, finite_;
  int digits_ = 0;
  std::vector<bool> inside_;        // of where()
  std::vector<std::size_t> alike_;  // the first entry of the same want; empty: all are different
  std::vector<Filling> fillings_;   // the simplest and likeliest first
};

std::string digits(double value, int count);

// Finds parts of the gradient that stand in another's place: taps, channels, groups, tiles.
std::vector<Fault> find_slices(const Evidence& evidence);

// Multiples of it, modulo count, visit everything, each far from the last: the golden section.
inline std::size_t golden_stride(std::size_t count) {
  auto stride = static_cast<std::size_t>(0.618 * static_cast<double>(count)) | 1;
  while (std::gcd(stride, count) > 1) ++stride;
  return stride;
}

// A sample is some entries of the suspect, term by term.
struct Sample {
  Positions at;
  std::vector<Terms> terms;
};
// Clues are entries of the sample that are wrong for certain, those that rule out the most first:
// large errors with small tolerances.
struct Clue {
  std::size_t entry;
  double error, step, scale;  // step: half of the result's
};
std::vector<Clue> clues(const Evidence& evidence, const Sample& sample);
// Names elements of x and dy that should make entries NaN or infinite, and says what these are.
std::string nonfinite_text(const Evidence& evidence, const Sample& sample);
// Finds pixels that are left out or counted twice, still to be confirmed.
std::vector<Fault> find_lost_pixels(const Evidence& evidence, const Sample& sample);
// Returns the terms of some entries by another reading.
using TermsBy = std::function<std::vector<Terms>(std::span<const EntryTerms>, const Reading&)>;
// Finds roundings and stale stages of some pixels alone, weights of images and constants in the
// padding.
std::vector<Fault> find_alternatives(const Evidence& evidence, const Sample& sample,
                                     const TermsBy& terms_by);
// A sum that is rounded to a type after each addition.
struct NarrowSum {
  DType type;
  bool inputs = false, fused = false;  // x and dy are rounded to it too; the product is not
  bool flushed = false;                // what is subnormal becomes 0
};
// Returns such a sum of the terms from begin to end.
double simulated(const Terms& terms, const NarrowSum& how, std::size_t begin = 0,
                 std::size_t end = SIZE_MAX);
// Finds sums that were rounded to a narrower type on the way; bits_only: only those that are the
// same bit by bit.
std::optional<Finding> find_partials(const Evidence& evidence, const Sample& sample,
                                     bool bits_only);
// Returns the types that sums may have been rounded to by mistake.
std::vector<DType> narrow_types(const WgradProblem& problem);
std::optional<Finding> find_size(const Evidence& evidence, const Sample& sample);

Finding finding(const Fit::Part& fault, const Fit& fit, Certainty certainty, std::size_t checked);

}  // namespace convgrad::diagnosis
