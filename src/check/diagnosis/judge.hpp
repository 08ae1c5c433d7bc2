// judge.hpp - whether predicted values explain the suspect, and what may stand in their place.
#pragma once

#include <optional>

#include "check/diagnosis/evidence.hpp"

namespace convgrad::diagnosis {

// A fault must be so many bits more likely than chance, besides what it took to find it: one of
// 4096 that are tried. scripts/measure_diagnosis names 99.8 % with 4 bits, 98.8 % with 24.
inline constexpr double kLeastBits = 12;

// Predicted values explain the suspect as they are, with another fault on top that is read off the
// gradient (a factor, a narrow type, a part that is 0), or only in one place.
struct Fit {
  struct Part {
    std::string name, text, cause;
    bool rounds = false;  // it only rounds more than it should
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
  bool own = false;  // of the suspect's dtype itself
};

// A filling may stand in the place of what a fault predicts, as it is read off the gradient:
// numbers of a narrow type, a part that is something else, a multiple. What a fault itself changes
// is its reading; where it does is a place.
struct Filling {
  // finite: of NaN and Inf; plain: outside of where().
  enum class Instead : std::uint8_t { nothing, zero, nan, finite, plain };
  bool multiplied = false;  // by a number that is found from what is predicted
  Instead instead = Instead::nothing;
  std::optional<Grid> grid = {};      // all numbers are of it
  double bits = 0;                    // of what was read off the gradient to name it
  std::vector<Fit::Part> parts = {};  // but for the number
  std::string only = "";              // the place that is changed
  bool alone = false;                 // with no other fault
};
// Returns those of the suspect, the simplest and likeliest first.
std::vector<Filling> fillings_of(const Evidence& evidence);

class Judge {
 public:
  explicit Judge(const Evidence& evidence) : e_(evidence), fillings_(fillings_of(evidence)) {}

  const Evidence& evidence() const { return e_; }
  // Returns the first of the fillings with which the predicted values, and scales of the errors
  // that rounding leaves, explain these entries. bits is what it cost to find the fault. plain: the
  // values are those that are expected. lenient: a first look at a few entries may not tell enough.
  std::optional<Fit> judge(const Positions& at, const Expected& predicted, double bits, bool plain,
                           bool lenient = false) const;

 private:
  const Evidence& e_;
  const std::vector<Filling> fillings_;
};

Finding finding(const Fit::Part& fault, const Fit& fit, Certainty certainty, std::size_t checked);

}  // namespace convgrad::diagnosis
