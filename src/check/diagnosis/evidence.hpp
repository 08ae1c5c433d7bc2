// evidence.hpp - the suspect's entries: how far each is off, and where those lie that are wrong.
#pragma once

#include <algorithm>
#include <vector>

#include "base/clock.hpp"
#include "check/diagnosis.hpp"
#include "check/diagnosis/faults.hpp"
#include "check/groups.hpp"
#include "convgrad/compare.hpp"

namespace convgrad::diagnosis {

inline constexpr double kSlack = Tolerance{}.slack;

// These are errors in units of the scale. Beyond kWrong, which is what the criterion allows one
// entry, slack * group_factor(1), an entry is wrong for certain; within kRight it may be right.
// Scales are standard deviations: 8 of them are chance in one of 10^15.
inline constexpr double kWrong = 25.4, kRight = 8;

// Returns the number in the middle, or 0 of none.
double median(std::vector<double> numbers);

// Entries of the suspect are named by their positions in its arrays.
using Positions = std::vector<std::size_t>;

// The search has no time left: ends a finder wherever it is.
struct Late {};

class Evidence {
 public:
  // The search ends after so many seconds.
  Evidence(const Suspect& suspect, double seconds);

  const WgradProblem& problem() const { return suspect_.problem; }
  bool whole() const { return suspect_.indices.empty(); }
  std::size_t size() const { return suspect_.got.size(); }
  std::int64_t index(std::size_t at) const { return index_at(suspect_.indices, at); }
  double got(std::size_t at) const { return suspect_.got[at]; }
  double want(std::size_t at) const { return suspect_.expected.values[at]; }
  double scale(std::size_t at) const;
  // Returns |got - want| beyond the last rounding, in units of the scale.
  double error(std::size_t at) const { return errors_[at]; }
  // All expected numbers are multiples of it, as whole numbers are: by chance, errors are equal the
  // likelier the larger it is.
  double grain() const { return grain_; }
  // Returns |got - value| beyond the last rounding, and its step for a value.
  double unexplained(std::size_t at, double value) const {
    if (suspect_.halves.empty()) return unexplained_error(problem().out_dtype, got(at), value);
    return std::max(unexplained_error(DType::f64, got(at), value) - suspect_.halves[at], 0.0);
  }
  double step(std::size_t at, double value) const {
    const DType out = problem().out_dtype;
    return suspect_.halves.empty() ? rounding_step(out, value) : 2 * suspect_.halves[at];
  }
  // Tells whether a right sum that should be this value, with this scale, may be what was got.
  bool fits(std::size_t at, double value, double scale) const {
    return unexplained(at, value) <= kWrong * scale;
  }
  const Positions& all() const { return all_; }
  // These entries are wrong by themselves. where() is their place, or that of groups.
  const Positions& wrong() const { return wrong_; }
  const Place& where() const { return where_; }
  bool is_inside(std::size_t at) const { return inside_[at]; }  // of where()
  // Adds up the squares of numbers of the entries; NaN is left out.
  GroupSums<Squares> groups_of(const std::vector<double>& errors) const;
  // Tells whether errors are about as large everywhere, as those of one rounding are.
  bool is_even() const;
  // Tells whether the place has some of the taps alone.
  bool in_some_taps() const;
  // Elements that hold the same numbers, as of equal channels, are one piece of evidence: returns
  // the first that does. are_different: no two do.
  std::size_t first_alike(std::size_t at) const { return alike_[at]; }
  bool are_different() const { return are_different_; }

  // Returns up to count entries, the more likely the larger their errors. The seed is fixed.
  Positions choose(std::size_t count) const;

  // Throws Late after the end: before a pass over x and dy, and in loops that are long without one.
  void stop_if_late() const {
    if (seconds_since(begin_) > seconds_) throw Late();
  }

 private:
  void find_where();
  double mark_planes(std::vector<Marked>& marks) const;
  void draw();

  const Suspect& suspect_;
  const Clock::time_point begin_ = Clock::now();
  const double seconds_;
  std::vector<double> errors_;
  Positions all_, wrong_, drawn_, alike_;
  bool are_different_ = true;
  double grain_ = 0;  // where all are 0, too
  Place where_;
  std::vector<bool> inside_;
};

}  // namespace convgrad::diagnosis
