// search.hpp - what the parts of the diagnosis share: the suspect's entries, and whether predicted
// values explain them.
#pragma once

#include <optional>

#include "check/diagnosis.hpp"
#include "check/diagnosis/faults.hpp"
#include "convgrad/compare.hpp"

namespace convgrad::diagnosis {

// Errors in units of the scale: of an entry that is wrong for certain, and of one that may be
// right.
inline constexpr double kWrong = 25.4, kRight = 8;

// Entries of the suspect, by their positions in its arrays.
using Positions = std::vector<std::size_t>;

// What a fault makes of some entries, and the error that rounding leaves.
struct Predicted {
  std::vector<double> values, scales;
};

// How predicted values explain the suspect: as they are, or with another fault on top that is read
// off the gradient (a factor, a narrow type, a part that is 0), or only in one place.
struct Fit {
  struct Part {
    std::string name, text, cause;
  };
  double rms = 0;           // of error/scale
  std::vector<Part> parts;  // besides the fault itself
  std::string only;         // where; empty: everywhere
};

// A type's numbers, which values become by a rounding.
enum class Rounding : std::uint8_t { nearest, cut };
struct Grid {
  std::string name;
  DType like;
  double part = 1;  // of a step of that type
  Rounding rounding = Rounding::nearest;
};

// What may stand in the place of what a fault predicts, as it is read off the gradient: numbers of
// a narrow type, a part that is something else, a multiple. What a fault itself changes is its
// reading; where it does is a place.
struct Filling {
  enum class Number : std::uint8_t { none, factor };
  enum class Instead : std::uint8_t { nothing, zero, nan, plain };
  Number number = Number::none;        // is found from what is predicted
  Instead instead = Instead::nothing;  // plain: outside of where()
  const Grid* grid = nullptr;          // all numbers are of it
  double bits = 0;                     // of what was read off the gradient to name it
  std::vector<Fit::Part> parts;        // but for the number
  std::string only;                    // the place that is changed
  bool whole = false;                  // nothing else is left of the gradient
};

class Evidence {
 public:
  explicit Evidence(const Suspect& suspect);

  const Suspect& suspect() const { return suspect_; }
  const WgradProblem& problem() const { return suspect_.problem; }
  bool whole() const { return suspect_.indices.empty(); }
  std::size_t size() const { return suspect_.got.size(); }
  std::int64_t index(std::size_t at) const {
    return whole() ? static_cast<std::int64_t>(at) : suspect_.indices[at];
  }
  double got(std::size_t at) const { return suspect_.got[at]; }
  double want(std::size_t at) const { return suspect_.expected.values[at]; }
  double scale(std::size_t at) const;
  // |got - want| beyond the last rounding, in units of the scale.
  double error(std::size_t at) const { return errors_[at]; }
  const Positions& all() const { return all_; }
  // Entries that are wrong by themselves, and where; where groups alone show it, those.
  const Positions& wrong() const { return wrong_; }
  const Place& where() const { return where_; }

  // Up to count entries, the more likely the larger their errors. By a fixed seed.
  Positions choose(std::size_t count) const;

  bool fits(std::size_t at, double value, double scale) const;
  // The first of the fillings with which the predicted values explain these entries. bits: what it
  // cost to find the fault. plain: the values are those that are expected. lenient: a first look at
  // a few entries, which may not tell enough.
  std::optional<Fit> judge(const Positions& at, const Predicted& predicted, double bits, bool plain,
                           bool lenient = false) const;

 private:
  // A filling with its number, on top of what is predicted.
  struct Trial {
    const Positions& at;
    const Predicted& predicted;
    const Filling& filling;
    bool plain, lenient;
    double bits;
    double factor = 1;
    Fit::Part number = {};
  };
  double unexplained(std::size_t at, double value, const Grid* grid) const;
  std::optional<double> misfit(const Trial& trial) const;
  bool find_factor(Trial& trial) const;
  Place find_where() const;
  void find_grids();
  void make_fillings();

  const Suspect& suspect_;
  std::vector<double> errors_;
  Positions all_, wrong_, drawn_;
  std::vector<Grid> grids_;  // that hold every value of the suspect, but not the right ones
  Place where_, zeros_, nans_;
  std::vector<Filling> fillings_;  // the simplest and likeliest first
};

// What is spent: terms of sums.
struct Budget {
  double left = 0;
  bool take(double cost) {
    if (cost > left) return false;
    left -= cost;
    return true;
  }
};

// Parts of the gradient that stand in another's place: taps, channels, groups, tiles.
std::vector<Fault> find_slices(const Evidence& evidence);

// Some entries of the suspect, term by term.
struct Sample {
  Positions at;
  std::vector<Terms> terms;
};
// Pixels that are left out or counted twice, still to be confirmed.
std::vector<Fault> find_ranges(const Evidence& evidence, const Sample& sample);
// "image 3", "the pixel p 2, q 5 of image 0", of dy's pixels or x's; with a verb: "... is left
// out".
std::string range_text(const WgradProblem& problem, Range pixels, bool of_x,
                       const std::string& verb);
// Terms of some entries by another reading.
using TermsBy = std::function<std::vector<Terms>(std::span<const EntryTerms>, const Reading&)>;
// Readings that hold in a range of pixels alone; weights of images and constants in the padding.
std::vector<Fault> find_alternatives(const Evidence& evidence, const Sample& sample,
                                     const TermsBy& terms_by);
// Limits beyond which x or dy is cut off, or below which it is dropped.
std::vector<Fault> find_limits(const Evidence& evidence, const Sample& sample);
// The number of the fewest digits from low to high for which good() holds; of many digits, that
// next to the best.
std::optional<std::pair<double, std::string>> roundest(double low, double high, double best,
                                                       const std::function<bool(double)>& good);
// Sums that were rounded to a narrower type on the way; bits_only: what is the same bit by bit.
std::optional<Finding> find_partials(const Evidence& evidence, const Sample& sample,
                                     bool bits_only);
std::optional<Finding> find_size(const Evidence& evidence, const Sample& sample);

// A finding of a fault that fits.
Finding finding(const Fit::Part& fault, const Fit& fit, Certainty certainty, std::size_t checked);

}  // namespace convgrad::diagnosis
